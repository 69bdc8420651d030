"""Dates as pages write them, to RFC 3339; a zone or a time of day that is not written is never invented.

A result has one of two precisions:

- a moment, in UTC: `2024-05-10T06:00:00Z`. Only where the zone was written: a time of day without a zone gives None.
- a calendar date: `2024-05-10`, in sitemaps also `2024-05` and `2024`. It says nothing of the time: no zone is needed.

Read are the six forms of W3C NOTE-datetime with the liberties of ISO 8601 that pages take (a blank for the `T`,
`+0200`, `UTC`), and the dates of RFC 822 as RFC 2822 4.3 reads them (two-digit years, zones by name). Display forms
(`10/05/24`, `3 hours ago`) are not guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_MAX_CHARACTERS: Final = 64
_ZONE: Final = r"(?P<zone>[Zz]|(?:GMT|UTC)?[+-]\d\d:?\d\d|[+-]\d\d|[A-Za-z]{2,4}|)"
_W3C: Final = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[Tt ]\s?(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?\s?"
    + _ZONE
    + r")?)?)?",
    re.ASCII,
)
_DAY_NAME: Final = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s*)?"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?"
_RFC822: Final = re.compile(
    _DAY_NAME + r"(?P<day>\d{1,2})[ -](?P<name>[a-z]{3,9})\.?,?[ -](?P<year>\d{4}|\d{2})"
    r"(?:\s+" + _CLOCK + r"\s*" + _ZONE + r")?",
    re.ASCII | re.IGNORECASE,
)
_MONTH_FIRST: Final = re.compile(  # as JavaScript, Ruby and Java print a time
    _DAY_NAME + r"(?P<name>[a-z]{3,9}) (?P<day>\d{1,2}) (?P<year>\d{4}) " + _CLOCK + r" ?" + _ZONE,
    re.ASCII | re.IGNORECASE,
)
_YEAR_LAST: Final = re.compile(  # as C's asctime and the like do
    _DAY_NAME + r"(?P<name>[a-z]{3,9}) (?P<day>\d{1,2}) " + _CLOCK + r" (?:" + _ZONE + r" )?(?P<year>\d{4})",
    re.ASCII | re.IGNORECASE,
)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NAMES: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ZONE_MINUTES: Final = {
    # RFC 822 5.1 and RFC 2822 4.3; letters of the military zones are left out, as RFC 2822 advises.
    "UT": 0, "UTC": 0, "GMT": 0, "Z": 0,
    "EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
    # Names with one meaning in use; IST, BST, AST and their like have several and count as unknown.
    "WET": 0, "WEST": 60, "CET": 60, "CEST": 120, "MET": 60, "MEST": 120, "EET": 120, "EEST": 180,
    "MSK": 180, "HKT": 480, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660,
}  # fmt: skip
_DAY_S: Final = 86_400


def w3c_date(text: str) -> str | None:
    """Read a date of W3C NOTE-datetime.

    Returns:
        As in the module's text, `YYYY-MM` and `YYYY` included; None for anything else, for a day that does not exist,
        and for a time of day without a zone. A fraction of a second is kept as written, up to nine digits.
    """
    text = text.strip()
    match = _W3C.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        return None
    year, month, day = match["year"], match["month"], match["day"]
    try:
        if day is None:
            date(int(year), int(month or 1), 1)
            return f"{year}-{month}" if month else year
        day_of_year = date(int(year), int(month), int(day))
    except ValueError:
        return None
    return _result(day_of_year, match, match["zone"], match["fraction"])


def rfc822_date(text: str) -> str | None:
    """Read a date of RFC 822 with the obsolete forms of RFC 2822 4.3, or as the common languages print a time.

    Returns:
        As in the module's text; None for anything else.
    """
    text = " ".join(text.split())
    if len(text) > _MAX_CHARACTERS:
        return None
    match = _RFC822.fullmatch(text) or _MONTH_FIRST.fullmatch(text) or _YEAR_LAST.fullmatch(text)
    if match is None:
        return None
    name = match["name"].lower()
    if name[:3] not in _MONTHS or not (_MONTH_NAMES[_MONTHS.index(name[:3])].startswith(name) or name == "sept"):
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        year += 2000 if year <= 49 else 1900  # RFC 2822 4.3
    try:
        day = date(year, _MONTHS.index(name[:3]) + 1, int(match["day"]))
    except ValueError:
        return None
    return _result(day, match, match["zone"], None)


def any_date(text: str) -> str | None:
    """Read a date of either kind, day at least: what metadata of pages and items of feeds carry."""
    found = w3c_date(text)
    if found is not None:
        return found if len(found) > len("YYYY-MM") else None
    return rfc822_date(text)


def is_plausible(found: str, fetched_at_s: float) -> bool:
    """Say whether a page fetched then can speak of this date as past: a day of grace covers zones and clocks.

    Args:
        found: a result of this module, day at least.
        fetched_at_s: seconds since the epoch.
    """
    try:
        moment = datetime.fromisoformat(found[:10]).replace(tzinfo=UTC)
        if len(found) > len("YYYY-MM-DD"):
            moment = datetime.fromisoformat(found[: len("YYYY-MM-DDThh:mm:ss")] + "+00:00")
        return moment.timestamp() <= fetched_at_s + _DAY_S
    except (ValueError, OverflowError):
        return False


def _result(day: date, match: re.Match[str], zone: str | None, fraction: str | None) -> str | None:
    if match["hour"] is None:
        return day.isoformat()
    offset = _offset(zone)
    if offset is None:
        return None
    second = int(match["second"] or 0)
    try:
        moment = datetime(
            day.year, day.month, day.day, int(match["hour"]), int(match["minute"]),
            59 if second == 60 else second,  # a leap second, which datetime does not know
            tzinfo=UTC,
        ) - offset  # fmt: skip
    except (ValueError, OverflowError):
        return None
    tail = f".{fraction[:9]}" if fraction else ""
    return f"{moment.replace(tzinfo=None).isoformat()}{tail}Z"


def _offset(zone: str | None) -> timedelta | None:
    if not zone:
        return None
    if len(zone) > 4:
        zone = zone[-6:].lstrip("GMTUCgmtuc")  # GMT+02:00
    if zone[0] not in "+-":
        minutes = _ZONE_MINUTES.get(zone.upper())
        return None if minutes is None else timedelta(minutes=minutes)
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    if hours > 23 or minutes > 59:  # RFC 3339 5.6
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone[0] == "-" else offset
