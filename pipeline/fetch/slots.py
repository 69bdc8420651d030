"""What the limiters of fetch have in common: a clock, slots that are given back, and those who wait for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self


class Timer(Protocol):
    """A call that was put off."""

    def cancel(self) -> None: ...


class GateClock(Protocol):
    """Time as the gate sees it."""

    def now(self) -> float:
        """Seconds, monotonic, from any start."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call back after `delay_s`; a little early does no harm."""
        ...


class LoopClock:
    """The running event loop's timers and the system's monotonic clock, finer than some loops' own."""

    def now(self) -> float:
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class Deferred(NamedTuple):
    """No slot soon.

    Attributes:
        not_before: when one may be free, gate clock.
    """

    not_before: float


class Slot:
    """Leave for one request. Given back at the end of a `with`, when the response has ended."""

    def __init__(self, give_back: Callable[[bool], None]) -> None:
        self._give_back: Callable[[bool], None] | None = give_back

    def release(self) -> None:
        """Say that the response has ended, now; again is nothing."""
        self._end(used=True)

    def discard(self) -> None:
        """Give the slot back without a request having been made; after `release` it is nothing."""
        self._end(used=False)

    def _end(self, *, used: bool) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(used)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Waiter:
    """One who waits; `granted` becomes a slot or the time to come again.

    Args:
        delay_s: pause around its request.
        not_before: earliest start.
        deadline: latest start, for it waits no longer.
        urgent: whether it passes those that are not.

    Attributes:
        passed_by: how many have come later and stand before it.
    """

    __slots__ = ("deadline", "delay_s", "granted", "not_before", "passed_by", "urgent")

    def __init__(self, delay_s: float, not_before: float, deadline: float, *, urgent: bool = False) -> None:
        self.delay_s = delay_s
        self.not_before = not_before
        self.deadline = deadline
        self.urgent = urgent
        self.passed_by = 0
        self.granted: asyncio.Future[Slot | Deferred] = asyncio.get_running_loop().create_future()

    async def answer(self, withdraw: Callable[[], None]) -> Slot | Deferred:
        """Wait for what is granted.

        Args:
            withdraw: called when the waiter is cancelled before anything was; a slot that it was given meanwhile goes
                back unused.
        """
        try:
            return await self.granted
        except asyncio.CancelledError:
            if self.granted.cancelled():
                withdraw()
            elif isinstance(granted := self.granted.result(), Slot):
                granted.discard()
            raise
