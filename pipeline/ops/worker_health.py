"""Health of one worker: red when commits stand still, the event loop or the start."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.delivery.worker import Worker
from pipeline.ops.endpoint import Health


def worker_health(worker: Worker) -> Callable[[], Health]:
    """Return the function that `/healthz` asks.

    Heartbeats and HTTP stay well in a hang, so what is judged is progress (`Runner.complaint`): a commit that takes
    longer than `delivery.stall_s`, work that waits for longer without one, a loop that has not run for so long, a
    partition that has had something to read for so long of which nothing has arrived, or a start that does not move.
    """

    def health() -> Health:
        complaint = worker.runner.complaint()
        return Health(not complaint, complaint or "commits go on")

    return health
