"""Health of one worker: red when commits stand still or the event loop does."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.delivery.worker import Worker
from pipeline.ops.endpoint import Health


def worker_health(worker: Worker) -> Callable[[], Health]:
    """Return the function that `/healthz` asks.

    Heartbeats and HTTP stay well in a hang, so what is judged is whether work at hand is committed: a commit that takes
    longer than `delivery.stall_s`, work that waits for longer without one, or a loop that has not run for so long.
    """
    limit_s = worker.settings.delivery.stall_s

    def health() -> Health:
        stalled_s = worker.runner.stalled_s()
        if stalled_s > limit_s:
            return Health(False, f"no commit for {stalled_s:.0f} s with work at hand (limit {limit_s:.0f} s)")
        return Health(True, "commits go on")

    return health
