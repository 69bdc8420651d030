"""What happens when, in one thread: steps that wait between what they do, and tidy up however they end."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator

Steps = Generator[float, None, None]
"""Yields how many seconds it wants to wait. What it must put right stands in its `finally`."""


class Schedule:
    """Steps that are under way. Times are of a monotonic clock, seconds."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Steps]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, when_s: float, steps: Steps) -> None:
        """Let steps begin at that time."""
        heapq.heappush(self._waiting, (when_s, next(self._order), steps))

    def run(self, now_s: float) -> None:
        """Do what is due."""
        while self._waiting and self._waiting[0][0] <= now_s:
            _, _, steps = heapq.heappop(self._waiting)
            for wait_s in steps:
                self.add(now_s + wait_s, steps)
                break

    def close(self) -> None:
        """End all that is under way; each puts right what it has done."""
        while self._waiting:
            heapq.heappop(self._waiting)[2].close()
