"""Calendars: pages that exist for any date, each with a link to the next. Dates far away are a trap, articles are not.

A date counts only where it chooses a view: at the end of a path (`/events/2031/05/`), below a word that names a
calendar, or in a parameter that is named after a date. `/1912/04/16/archives/titanic.html` is an article, whose date
is its past; `?year=1939` alone is a filter of products.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.frontier.refusals import Refusal

CALENDAR_WORDS: Final = frozenset({
    "agenda", "calendar", "calendario", "calendrier", "event", "events", "kalender", "schedule", "termine",
    "veranstaltungen",
})  # fmt: skip
"""Segments below which any date chooses a view."""
VIEW_WORDS: Final = frozenset({"agenda", "day", "grid", "list", "map", "month", "photo", "summary", "today", "week"})
"""Segments that may follow a date at the end of a path and name the kind of view."""
DATE_PARAMETERS: Final = frozenset({
    "begin", "cal", "calendar", "date", "day", "end", "from", "month", "since", "start", "time", "to", "until", "week",
    "when",
})  # fmt: skip
DATE_ENDINGS: Final = ("date", "day", "month", "week")

_YEAR: Final = re.compile(r"[12][0-9]{3}")
_MONTH: Final = re.compile(r"0?[1-9]|1[0-2]")
_DATE: Final = re.compile(r"([0-9]{4})-(?:0?[1-9]|1[0-2])(?:-[0-9]{1,2})?(?:T.*)?")
_COMPACT_DATE: Final = re.compile(r"([12][0-9]{3})(?:0[1-9]|1[0-2])(?:[0-2][0-9]|3[01])?")
_WORD: Final = re.compile(r"[a-z]+")


def calendar(segments: Sequence[str], fields: Sequence[str], first_year: int, last_year: int) -> Refusal | None:
    """Refuse a view of a date outside the years from `first_year` to `last_year`.

    Args:
        segments: of the path, without empty ones.
        fields: of the query.
        first_year: the earliest that is followed.
        last_year: the latest.
    """
    for year, where in (*_in_path(segments), *_in_query(fields)):
        if not first_year <= year <= last_year:
            return Refusal("calendar", last_year if year > last_year else first_year, year, where)
    return None


def _in_path(segments: Sequence[str]) -> Iterator[tuple[int, str]]:
    for at, segment in enumerate(segments):
        if not segment[0].isdigit():
            continue
        whole = _DATE.fullmatch(segment)
        if whole is not None:
            year, length = int(whole[1]), 1
        elif at + 1 < len(segments) and _YEAR.fullmatch(segment) and _MONTH.fullmatch(segments[at + 1]):
            year = int(segment)
            length = 3 if at + 2 < len(segments) and segments[at + 2].isdigit() else 2
        else:
            continue
        after = segments[at + length :]
        is_view = not after or (len(after) == 1 and after[0].lower() in VIEW_WORDS)
        if is_view or any(word.lower() in CALENDAR_WORDS for word in segments[:at]):
            yield year, "/".join(segments[at : at + length])


def _in_query(fields: Sequence[str]) -> Iterator[tuple[int, str]]:
    lone_year, has_month = None, False
    for field in fields:
        name, _, value = field.partition("=")
        if not value or not value[0].isdigit():
            continue
        words = _WORD.findall(name.lower())
        if not words:
            continue
        if words[-1].endswith("year") and _YEAR.fullmatch(value):
            lone_year = (int(value), field)
            continue
        if not (DATE_PARAMETERS.intersection(words) or words[-1].endswith(DATE_ENDINGS)):
            continue
        date = _DATE.fullmatch(value) or _COMPACT_DATE.fullmatch(value)
        if date is not None:
            yield int(date[1]), field
        has_month = has_month or (words[-1].endswith("month") and _MONTH.fullmatch(value) is not None)
    if lone_year is not None and has_month:
        yield lone_year
