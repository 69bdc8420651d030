"""How much a user may ask: a token bucket each, of the size and pace of the user's class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pipeline.api.tokens import User
from pipeline.config import RateClass

_ROUNDING: Final = 1e-9


class TokenBucket:
    """Holds up to `burst` tokens and gets `per_s` new ones every second; it begins full.

    Args:
        burst: most tokens.
        per_s: new ones, per second.
        now_s: of a clock that only goes forward.
    """

    __slots__ = ("_at_s", "_burst", "_level", "_per_s")

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = float(burst)
        self._at_s = now_s

    def take(self, count: int, now_s: float) -> float:
        """Take tokens, all or none.

        Args:
            count: at most `burst`.
            now_s: of the same clock.

        Returns:
            0.0 where they were taken, else how many seconds later they will be there.
        """
        self._level = min(self._burst, self._level + max(0.0, now_s - self._at_s) * self._per_s)
        self._at_s = max(self._at_s, now_s)
        if self._level + _ROUNDING >= count:
            self._level -= count
            return 0.0
        return (count - self._level) / self._per_s

    def give_back(self, count: int) -> None:
        """Put tokens back that were taken, at once or later."""
        self._level = min(self._burst, self._level + count)


class Buckets:
    """The buckets of all users; there are as many as users are configured.

    Args:
        classes: of the configuration, by name.
        clock: seconds; only goes forward.
    """

    def __init__(self, classes: Mapping[str, RateClass], clock: Callable[[], float]) -> None:
        self._classes = classes
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    def burst(self, user: User) -> int:
        """Return the most that the user can ever take at once."""
        return self._classes[user.rate].burst

    def take(self, user: User, count: int) -> float:
        """As `TokenBucket.take`."""
        now_s = self._clock()
        bucket = self._buckets.get(user.name)
        if bucket is None:
            rate = self._classes[user.rate]
            bucket = self._buckets[user.name] = TokenBucket(rate.burst, rate.per_s, now_s)
        return bucket.take(count, now_s)

    def give_back(self, user: User, count: int) -> None:
        """As `TokenBucket.give_back`, for a user who took some."""
        self._buckets[user.name].give_back(count)
