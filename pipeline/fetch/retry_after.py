"""Retry-After: when a site wants to be asked again (RFC 9110 10.2.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

LONGEST_S: Final = 30 * 86_400.0
"""A longer wish is kept for 30 days; then the site is asked once and can repeat it."""
BELIEVED_SKEW_S: Final = 86_400.0
"""A site's clock that is further off is not believed."""
_CENTURY_PIVOT_S: Final = 50 * 365.25 * 86_400
"""A two-digit year that seems to be more than 50 years ahead is in the past (RFC 9110 5.6.7)."""

LONGEST_DATE: Final = len("Wednesday, 01-May-24 12:00:00 GMT")
"""What is longer is no date, and is not remembered either."""

_SECONDS: Final = re.compile(r"[0-9]+")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY: Final = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH: Final = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME: Final = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FIXED_DATE: Final = re.compile(rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT")
_OLD_DATES: Final = (
    re.compile(rf"{_DAY}[a-z]+, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),  # RFC 850
    re.compile(rf"{_DAY} {_MONTH} (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),  # asctime
)


def retry_after_s(values: Iterable[str], now: float, *, site_now: float | None = None) -> float | None:
    """Return how long a site wants to be left alone.

    Args:
        values: the Retry-After lines of a response; the longest wish counts.
        now: wall clock, s since the epoch.
        site_now: the site's own clock as its Date field tells it; None where it told nothing. A date is the site's
            time: by which of the two clocks it is later is how it is read, so that a clock that is behind shortens
            nothing.

    Returns:
        Seconds from now, 0 to `LONGEST_S`; a date that is past is 0. None where no line has one of the two forms
        (seconds without a sign or a point, or a date in one of its three spellings): then nothing was said.
    """
    earlier = now if site_now is None else min(now, site_now)
    return max((wish for value in values if (wish := _wish_s(value.strip(" \t"), earlier)) is not None), default=None)


def site_clock(dates: Iterable[str], now: float) -> float | None:
    """Return what the time was at the site when it answered, by its Date field (RFC 9110 6.6.1).

    Args:
        dates: the Date lines of the response.
        now: wall clock, s since the epoch.

    Returns:
        Seconds since the epoch; None without a date, or where it is more than `BELIEVED_SKEW_S` off.
    """
    for text in dates:
        at = http_date(text.strip(" \t"), now)
        if at is not None and abs(at - now) <= BELIEVED_SKEW_S:
            return at
    return None


def http_date(text: str, now: float) -> float | None:
    """Read an HTTP date in any of its three forms (RFC 9110 5.6.7).

    Args:
        text: without blanks around it.
        now: wall clock, s since the epoch; two-digit years are read by it.

    Returns:
        Seconds since the epoch; None where it is no date.
    """
    if len(text) > LONGEST_DATE:
        return None
    at = _fixed_date(text)
    if at is not None:
        return at
    match = next((match for pattern in _OLD_DATES if (match := pattern.fullmatch(text))), None)
    return None if match is None else _timestamp(match, now)


@lru_cache(maxsize=1024)
def _fixed_date(text: str) -> float | None:
    """Read the form that all sites use; of answers in the same second all have the same Date."""
    match = _FIXED_DATE.fullmatch(text)
    return None if match is None else _timestamp(match, 0.0)


def _wish_s(text: str, now: float) -> float | None:
    if _SECONDS.fullmatch(text):
        return min(LONGEST_S, float(text[:20]))
    at = http_date(text, now)
    return None if at is None else min(LONGEST_S, max(0.0, at - now))


def _timestamp(match: re.Match[str], now: float) -> float | None:
    year, month, day = int(match["year"]), _MONTHS.index(match["month"]) + 1, int(match["day"])
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    has_century = len(match["year"]) > 2
    try:
        at = datetime(year if has_century else 2000 + year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    if not has_century and at.timestamp() - now > _CENTURY_PIVOT_S:
        at = at.replace(year=at.year - 100)
    return at.timestamp()
