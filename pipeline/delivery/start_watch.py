"""Notices a start that stands still: no commit is due yet, so nothing else would tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Step:
    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.moved_s = now_s


class StartWatch:
    """The steps of a worker's start that are under way, and since when each has made no progress. From any thread.

    It only tells. Each step has a limit of its own, with an exit status that says more, and waits out an outage of the
    broker, which a restart would not end.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: list[_Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[], None]]:
        """Watch what the block does.

        Args:
            name: what goes on, as in "nothing has moved for 60 s while ...".

        Yields:
            What is to be called at each progress, from any thread.
        """
        step = _Step(name, self._clock())

        def moved() -> None:
            step.moved_s = self._clock()

        self._steps.append(step)
        try:
            yield moved
        finally:
            self._steps.remove(step)

    def complaint(self, limit_s: float) -> str:
        """Return which step has made no progress for longer than `limit_s`, in words; empty where none."""
        now_s = self._clock()
        for step in tuple(self._steps):
            if now_s - step.moved_s > limit_s:
                return f"nothing has moved for {now_s - step.moved_s:.0f} s while {step.name}"
        return ""
