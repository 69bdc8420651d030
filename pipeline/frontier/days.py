"""Days: what is counted by the UTC day, under a clock that may be set back."""

from __future__ import annotations

import math
from typing import Final

DAY_MS: Final = 86_400_000


def day_of(now_ms: int) -> int:
    """Return the UTC day of a moment, days since the epoch."""
    return now_ms // DAY_MS


def days_of(seconds: float) -> int:
    """Return how many days a time is, a part of one counted as a whole."""
    return math.ceil(seconds * 1000 / DAY_MS)


def on_day(counted_day: int, count: int, today: int) -> tuple[int, int]:
    """Return the day that counts, and what is counted of it.

    Args:
        counted_day: day of the count.
        count: what was counted of it.
        today: day of the clock.

    A clock that steps back over midnight does not begin the former day anew, nor the next one afterwards: the later day
    keeps counting. Is it behind by more than a day, it was wrong before; then today counts, with what was counted so
    far.
    """
    if today > counted_day:
        return today, 0
    return (today if today < counted_day - 1 else counted_day), count
