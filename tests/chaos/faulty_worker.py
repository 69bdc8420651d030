"""The real worker of a stage, with faults at named points and a clock that somebody else can shift.

`python -m tests.chaos.faulty_worker STAGE`, configured as `headrace worker`. CHAOS_POINTS is the directory in which its
points are armed, CHAOS_CLOCK the file its clock follows, CHAOS_NAME its name in both.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from pathlib import Path

import uvloop

from tests.chaos import clock
from tests.chaos.points import Points, install


def main() -> None:
    """Run one worker until a signal."""
    faulthandler.register(signal.SIGQUIT)  # a run that waits in vain asks where the threads are
    # As the command itself does, before faust is imported; what is wrapped imports it.
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    clock.install(Path(os.environ["CHAOS_CLOCK"]))
    install(Points(Path(os.environ["CHAOS_POINTS"]), os.environ["CHAOS_NAME"]))
    from pipeline import cli  # noqa: PLC0415  # stages bind the clock when they are imported

    sys.argv = ["headrace", "worker", sys.argv[1]]
    cli.main()


if __name__ == "__main__":
    main()
