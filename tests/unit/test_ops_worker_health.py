from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.config import Delivery, Settings
from pipeline.ops.endpoint import Health
from pipeline.ops.worker_health import worker_health

LIMIT_S = 60.0


def health_at(stalled_s):
    """Ask for the health of a worker whose commits have stood still for so long."""
    runner = SimpleNamespace(stalled_s=lambda: stalled_s)
    worker = SimpleNamespace(settings=Settings(delivery=Delivery(stall_s=LIMIT_S)), runner=runner)
    return worker_health(worker)()


@pytest.mark.parametrize("stalled_s", [0.0, LIMIT_S])
def test_a_worker_whose_commits_go_on_is_green(stalled_s):
    """An idle worker has nothing to commit and is not restarted for it."""
    assert Health(True, "commits go on") == health_at(stalled_s)


def test_a_worker_whose_commits_stand_still_is_red_and_says_for_how_long():
    """Heartbeats and HTTP stay well in a hang; only commits tell."""
    assert Health(False, "no commit for 75 s with work at hand (limit 60 s)") == health_at(75.2)
