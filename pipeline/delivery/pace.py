"""When to commit: leading edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

LINGER_S = 0.002


class Pace:
    """At once when the last commit is older than the interval, else at last commit + interval; at once when asked to.

    Idle latency is that of one transaction, and under load there are at most 1/interval of them a second.

    Args:
        interval_s: longest time between commits under load.
        clock: monotonic seconds.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._last_s = float("-inf")
        self._waiting_since_s: float | None = None
        self._work = asyncio.Event()
        self._now = asyncio.Event()

    def work(self, *, at_once: bool = False) -> None:
        """There is something to commit; `at_once`: it is urgent or large."""
        if self._waiting_since_s is None:
            self._waiting_since_s = self._clock()
        self._work.set()
        if at_once:
            self._now.set()

    def committed(self) -> None:
        """A commit has just ended."""
        self._last_s = self._clock()

    def delay_s(self) -> float:
        """How long to wait from now, with work at hand and nothing urgent: at least until neighbours have arrived."""
        return max(LINGER_S, self._last_s + self._interval_s - self._clock())

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until a commit is due, or for `timeout_s` where nothing is at hand before."""
        try:
            await asyncio.wait_for(self._work.wait(), timeout_s)
        except TimeoutError:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._now.wait(), self.delay_s())
        self._work.clear()
        self._now.clear()
        self._waiting_since_s = None

    @property
    def waiting_s(self) -> float:
        """How long work has been at hand without a commit beginning."""
        return 0.0 if self._waiting_since_s is None else self._clock() - self._waiting_since_s
