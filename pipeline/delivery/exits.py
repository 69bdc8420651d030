"""How a worker ends: exit codes, and the watchdog for a shutdown that hangs.

Nothing is lost by a hard exit: everything that lasts is written in transactions.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses of a worker, after sysexits.h."""

    BROKER = 69
    """The cluster could not be used: start again."""
    BUG = 70
    """Something nobody foresaw: start again, and look at the log."""
    REPLACED = 75
    """Another worker of the same name has taken over, or this one was silent for too long."""
    CONFIGURATION = 78
    """Starting again will not help before somebody changes the configuration."""


def exit_after(seconds: float, code: int) -> None:
    """End the process hard unless it ended by itself within `seconds`.

    Faust's shutdown can hang for ever when it meets a rebalance or a broker outage: its consumer thread then waits
    for a callback of the stopped main loop while its heartbeats keep the member in the group.
    """
    timer = threading.Timer(seconds, os._exit, [int(code)])
    timer.daemon = True
    timer.start()


def exit_now(message: str, code: int) -> None:
    """Write one line to standard error and end the process at once, from any thread."""
    with contextlib.suppress(OSError):  # the log's disk is full: the end matters more than the word
        os.write(2, f"headrace: {message}\n".encode())
    os._exit(int(code))


@contextlib.contextmanager
def exit_unless_done(seconds: float, message: str, code: int) -> Iterator[None]:
    """End the process hard where the block takes longer than `seconds`: for calls that don't keep their time-out."""
    timer = threading.Timer(seconds, exit_now, [message, code])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
