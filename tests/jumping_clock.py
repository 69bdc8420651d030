"""A clock for tests that moves only when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class JumpingClock:
    """A clock that moves by `advance` alone, and fires what is due on the way."""

    def __init__(self, start: float = 1000.0) -> None:
        self.time = start
        self._count = itertools.count()
        self._timers: list[tuple[float, int, dict[str, Callable[[], None] | None]]] = []

    def now(self) -> float:
        """The time."""
        return self.time

    def call_later(self, delay_s: float, callback: Callable[[], None]):
        """Note a callback."""
        entry = {"call": callback}
        heapq.heappush(self._timers, (self.time + delay_s, next(self._count), entry))

        class Handle:
            def cancel(self) -> None:
                entry["call"] = None

        return Handle()

    @property
    def armed(self) -> int:
        """Timers that are still to fire."""
        return sum(entry["call"] is not None for _, _, entry in self._timers)

    async def advance(self, seconds: float, after_each: Callable[[], None] = lambda: None) -> None:
        """Move on, stopping at each timer."""
        await settle()
        end = self.time + seconds
        while self._timers and self._timers[0][0] <= end:
            at, _, entry = heapq.heappop(self._timers)
            self.time = max(self.time, at)
            if entry["call"] is not None:
                entry["call"]()
                await settle()
                after_each()
        self.time = end
        await settle()
        after_each()


async def settle() -> None:
    """Let woken tasks run until they wait again."""
    for _ in range(6):
        await asyncio.sleep(0)
