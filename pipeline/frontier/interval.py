"""The pause between polls of recurring work: it follows what the polls find. Pure; times are milliseconds.

A poll without news makes the interval half as long again, one with news makes it as much shorter, between two bounds:
the rule of K. Sigurdsson, "Incremental crawling with Heritrix" (IWAW 2005). It settles where every other poll brings
something. That a page which changes all the time must not draw ever more requests, hence the floor, is shown by
J. Cho and H. Garcia-Molina, "Effective page refresh policies for Web crawlers" (ACM TODS 28(4), 2003).

When in the day news were found is kept as a habit: 24 counts, one for each hour of UTC. It moves polls from hours that
seldom bring news to those that often do. It makes no more of them: the rates of the hours are 1 on average.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final, NamedTuple

STEP: Final = 1.5
"""One poll changes the interval by this factor at most."""
HOURS: Final = 24
HOUR_MS: Final = 3_600_000
DAY_MS: Final = HOURS * HOUR_MS
NO_HABIT: Final = b""
"""Nothing was found yet: all hours are alike."""
HABIT_POLLS: Final = 240
"""When so many polls with news are counted, all counts are halved: what was long ago fades. A count fits a byte."""
UNKNOWN_POLLS: Final = 6.0
"""Added to the count of each hour, so that a few finds don't make a habit."""
RAREST, MOST_FREQUENT = 0.25, 3.0
"""Bounds of an hour's rate before the rates are brought to an average of 1."""
FLAT: Final = (1.0,) * HOURS


class Finding(Enum):
    """What a poll found."""

    NEWS = "news"
    NOTHING_NEW = "nothing new"
    FAILURE = "failure"
    """No page: the site or its robots.txt refused, or all attempts failed."""


class Bounds(NamedTuple):
    """The shortest and the longest interval, milliseconds."""

    floor_ms: int
    ceiling_ms: int


def bounds(wished_ms: int, floor_ms: int, span: float) -> Bounds:
    """Return what the interval of a task may become.

    Args:
        wished_ms: interval that its sender wished.
        floor_ms: configured shortest interval; a wish for a shorter one is its own floor.
        span: how many times longer or shorter than wished it may become, at least 1.
    """
    return Bounds(min(wished_ms, max(floor_ms, math.ceil(wished_ms / span))), int(wished_ms * span))


def adapted_ms(interval_ms: int, finding: Finding, limits: Bounds, rate: float) -> int:
    """Return the interval after a poll.

    Args:
        interval_ms: before.
        finding: what the poll found.
        limits: of the interval.
        rate: of the hour of the poll, from `rates`: that an hour without news brought none says little.
    """
    if finding is Finding.NEWS:
        factor = 1 / STEP
    elif finding is Finding.NOTHING_NEW:
        factor = STEP ** min(1.0, rate)
    else:
        factor = STEP
    return max(limits.floor_ms, min(limits.ceiling_ms, round(interval_ms * factor)))


def with_news(habit: bytes, at_ms: int) -> bytes:
    """Return the habit after a poll at `at_ms` found news."""
    counts = list(habit or bytes(HOURS))
    counts[hour_of(at_ms)] += 1
    if sum(counts) >= HABIT_POLLS:
        counts = [count // 2 for count in counts]
    return bytes(counts)


def rates(habit: bytes) -> tuple[float, ...]:
    """Return for each hour of UTC how fast the time until the next poll passes in it; 1 on average."""
    if not habit:
        return FLAT
    mean = sum(habit) / HOURS + UNKNOWN_POLLS
    bounded = [max(RAREST, min(MOST_FREQUENT, (count + UNKNOWN_POLLS) / mean)) for count in habit]
    scale = HOURS / sum(bounded)
    return tuple(rate * scale for rate in bounded)


def next_start_ms(start_ms: int, interval_ms: int, limits: Bounds, hourly: tuple[float, ...]) -> int:
    """Return when the next poll is due.

    Args:
        start_ms: start of the last one.
        interval_ms: pause until then, were all hours alike.
        limits: that the pause keeps to whatever the hours say.
        hourly: from `rates`.
    """
    at_ms, left = start_ms, float(interval_ms)
    days = left // DAY_MS  # the rates are 1 on average: a whole day passes as one
    at_ms += int(days) * DAY_MS
    left -= days * DAY_MS
    while True:
        rate, hour_left_ms = hourly[hour_of(at_ms)], HOUR_MS - at_ms % HOUR_MS
        if left <= hour_left_ms * rate:
            at_ms += math.ceil(left / rate)
            break
        left -= hour_left_ms * rate
        at_ms += hour_left_ms
    return max(start_ms + limits.floor_ms, min(start_ms + limits.ceiling_ms, at_ms))


def hour_of(at_ms: int) -> int:
    """Return the hour of UTC, 0 to 23."""
    return at_ms // HOUR_MS % HOURS
