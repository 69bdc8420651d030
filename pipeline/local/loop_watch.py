"""Whether the loop of the simulated server stood still, and how late it may be with what it reads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final

TICK_S: Final = 0.01
STANDSTILL_NS: Final = 20 * 10**6
"""So long without a tick is a standstill: more than a whole tick was missed."""
TICKS_KEPT: Final = 6
"""A standstill counts while its beginning is among so many ticks.

The tick may be served before the sockets are polled (libuv runs due timers first), and a new connection is accepted in
one turn of the loop and read in a later one: what came in meanwhile is read some turns after the standstill has ended.
"""


class LoopWatch:
    """Knows by the ticks of a timer since when requests may have lain in their sockets.

    Args:
        now_ns: nanoseconds since the epoch.
    """

    def __init__(self, now_ns: int) -> None:
        self._ticks = deque([now_ns], maxlen=TICKS_KEPT)
        self._ticked_ns = now_ns
        self._stood_from_ns: int | None = None

    def follow(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        """Tick from now on, every `TICK_S`.

        Args:
            call_later: of the loop to watch.
        """
        self.tick(time.time_ns())
        call_later(TICK_S, lambda: self.follow(call_later))

    def tick(self, now_ns: int) -> None:
        """Note that the loop had a turn."""
        self._ticks.append(now_ns)
        self._ticked_ns = now_ns
        self._stood_from_ns = next((a_ns for a_ns, b_ns in pairwise(self._ticks) if b_ns - a_ns > STANDSTILL_NS), None)

    def late_ns(self, now_ns: int) -> int:
        """Return how long what is seen now may have been there already, nanoseconds; 0 where the loop is in time.

        After a standstill that is the time since it began: nothing was read in it, and its own tick may be still due.
        """
        if self._stood_from_ns is not None:
            return max(0, now_ns - self._stood_from_ns)
        silent_ns = now_ns - self._ticked_ns
        return silent_ns if silent_ns > STANDSTILL_NS else 0
