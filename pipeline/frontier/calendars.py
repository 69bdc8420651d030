"""Calendars: pages that exist for any date, each with a link to the next. Dates far ahead are a trap, articles are not.

A date counts only where it chooses a view: at the end of a path (`/diary/2031/05/`), below a word that names a
calendar, or in a parameter that is named after a date. `/1912/04/16/archives/titanic.html` is an article, whose date
is its past; `?year=1939` alone is a filter of products.

What has been is finite: charts, debates and papers are followed as far back as they go. Only beside a word that names a
calendar is a date of long ago refused, since such a site makes pages of the past, too. A number that only could be a
year is none: `/q/1732/12` and `/t/topic/2045/5` are ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pipeline.frontier.refusals import Refusal

CALENDAR_WORDS: Final = frozenset({
    "agenda", "cal", "calendar", "calendario", "calendrier", "event", "events", "kalender", "schedule", "termine",
    "veranstaltungen",
})  # fmt: skip
"""Segments, up to their first point, below which any date chooses a view; words in the names of parameters, too."""
VIEW_WORDS: Final = frozenset({"agenda", "day", "grid", "list", "map", "month", "photo", "summary", "today", "week"})
"""Segments that may follow a date at the end of a path and name the kind of view."""
DATE_PARAMETERS: Final = frozenset({
    "begin", "cal", "calendar", "date", "day", "end", "from", "month", "since", "start", "time", "to", "until", "week",
    "when",
})  # fmt: skip
DATE_ENDINGS: Final = ("date", "day", "month", "week")
_MONTH_LENGTH: Final = 2
"""Segments of a year and a month."""

_YEAR: Final = re.compile(r"(?:19|20|21)[0-9]{2}")
_MONTH: Final = re.compile(r"0?[1-9]|1[0-2]")
_DAY: Final = re.compile(r"0?[1-9]|[12][0-9]|3[01]")
_DATE: Final = re.compile(r"((?:19|20|21)[0-9]{2})-(?:0?[1-9]|1[0-2])(?:-[0-9]{1,2})?(?:T.*)?")
_COMPACT_DATE: Final = re.compile(r"((?:19|20|21)[0-9]{2})(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])?")
_WORD: Final = re.compile(r"[a-z]+")


class _View(NamedTuple):
    """A date that chooses a view.

    Attributes:
        year: of the date.
        where: the segments or the field that hold it.
        in_calendar: whether a word beside it names a calendar.
    """

    year: int
    where: str
    in_calendar: bool


def calendar(segments: Sequence[str], fields: Sequence[str], first_year: int, last_year: int) -> Refusal | None:
    """Refuse a view of a date after `last_year`, and one of a calendar before `first_year`.

    Args:
        segments: of the path, without empty ones.
        fields: of the query.
        first_year: the earliest in which a calendar is followed.
        last_year: the latest that is followed.
    """
    for year, where, in_calendar in (*_in_path(segments), *_in_query(segments, fields)):
        if year > last_year:
            return Refusal("calendar", last_year, year, where)
        if in_calendar and year < first_year:
            return Refusal("calendar", value=year, detail=f"before {first_year}: {where}")
    return None


def _in_path(segments: Sequence[str]) -> Iterator[_View]:
    for at, segment in enumerate(segments):
        if not segment[0].isdigit():
            continue
        length = _date_length(segments[at : at + 3])
        if not length:
            continue
        in_calendar = _names_calendar(segments[:at])
        after = segments[at + length :]
        is_view = not after or (len(after) == 1 and after[0].lower() in VIEW_WORDS)
        # An id and the number of a reply look like a year and a month: only a month of two digits is clear by itself.
        is_clear = length != _MONTH_LENGTH or len(segments[at + 1]) > 1
        if in_calendar or (is_view and is_clear):
            yield _View(int(segment[:4]), "/".join(segments[at : at + length]), in_calendar)


def _date_length(segments: Sequence[str]) -> int:
    """Return how many segments are a date, at most three; 0 where the first begins none."""
    if _DATE.fullmatch(segments[0]):
        return 1
    if len(segments) == 1 or not _YEAR.fullmatch(segments[0]) or not _MONTH.fullmatch(segments[1]):
        return 0
    return _MONTH_LENGTH + (len(segments) > _MONTH_LENGTH and _DAY.fullmatch(segments[2]) is not None)


def _names_calendar(segments: Sequence[str]) -> bool:
    return any(segment.partition(".")[0].lower() in CALENDAR_WORDS for segment in segments)


def _in_query(segments: Sequence[str], fields: Sequence[str]) -> Iterator[_View]:
    lone_year, has_month = None, False
    below_calendar = bool(fields) and _names_calendar(segments)
    for field in fields:
        name, _, value = field.partition("=")
        if not value or not value[0].isdigit():
            continue
        words = _WORD.findall(name.lower())
        if not words:
            continue
        in_calendar = below_calendar or not CALENDAR_WORDS.isdisjoint(words)
        if words[-1].endswith("year") and _YEAR.fullmatch(value):
            lone_year = _View(int(value), field, in_calendar)
            continue
        if DATE_PARAMETERS.isdisjoint(words) and not words[-1].endswith(DATE_ENDINGS):
            continue
        date = _DATE.fullmatch(value) or _COMPACT_DATE.fullmatch(value)
        if date is not None:
            yield _View(int(date[1]), field, in_calendar)
        has_month = has_month or (words[-1].endswith("month") and _MONTH.fullmatch(value) is not None)
    if lone_year is not None and has_month:
        yield lone_year
