from __future__ import annotations

from types import SimpleNamespace

from pipeline.ops.endpoint import Health
from pipeline.ops.worker_health import worker_health


def health_of(complaint):
    """Ask for the health of a worker with such a complaint."""
    return worker_health(SimpleNamespace(runner=SimpleNamespace(complaint=lambda: complaint)))()


def test_a_worker_without_a_complaint_is_green():
    """An idle worker has nothing to commit and is not restarted for it."""
    assert Health(True, "commits go on") == health_of("")


def test_a_worker_with_a_complaint_is_red_and_says_it():
    """Heartbeats and HTTP stay well in a hang."""
    assert Health(False, "no commit for 75 s") == health_of("no commit for 75 s")
