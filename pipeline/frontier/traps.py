"""Traps: URLs that a site makes without end out of the same pages. Each kind is a small function with a reason.

What is judged by the URL alone stands here and in `pipeline.frontier.calendars`; what takes a count of a site's other
URLs is in `pipeline.frontier.variants`. All of it is linear in the URL: no expression here can backtrack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pipeline.frontier.calendars import calendar
from pipeline.frontier.refusals import Refusal

MAX_REPEATS: Final = 2
"""The same run of path segments in a row; Heritrix' PathologicalPathDecideRule has the same default."""
MAX_PERIOD: Final = 16
"""Longest run of segments that is looked for, segments."""
MAX_SAME_SEGMENT: Final = 4
"""The same segment anywhere in a path: relative links that take turns grow it without a run that repeats."""
MAX_SAME_NUMBER: Final = 8
"""The same for numbers, in a row too: a tile of a map is /1/1/1, an id cut in pieces /11/11/11."""
MAX_SAME_PARAMETER: Final = 16
"""Fields of one name: a filter with many choices has some, a link that appends to itself ever more."""
MAX_SAME_FIELD: Final = 2
"""The same field with the same value: to say it again chooses nothing more. Forms send fields left empty as often."""
TOO_OFTEN_ESCAPED: Final = "%252525"
"""An address inside an address inside an address …: each step escapes the percent signs of the one before."""


class TrapLimits(NamedTuple):
    """What a crawl allows.

    Attributes:
        segments: most segments of a path. Heritrix' TooManyPathSegmentsDecideRule stops at 20; source trees go deeper.
        parameters: most fields of a query; a page that is chosen by more is a generated view of others.
        past_years: how far back a calendar is followed; what is no calendar has no such limit.
        future_years: how far ahead any view of a date is.
    """

    segments: int = 32
    parameters: int = 32
    past_years: int = 60
    future_years: int = 2


def trap(href: str, limits: TrapLimits, year: int) -> Refusal | None:
    """Return why a canonical URL looks like a trap, or None.

    Args:
        href: the URL.
        limits: of its crawl.
        year: the present one.

    | reason | what the site does |
    |---|---|
    | `parameters` | a query grows by a field at each step |
    | `repeated_parameter` | a query says the same again and again |
    | `nested_url` | a query holds an address that holds an address that … |
    | `path_depth` | a path grows without a pattern |
    | `path_repetition` | a relative link on a site that answers any path grows it: `/a/x/y/x/y/x/y` |
    | `calendar` | every month has a next one |
    """
    address, _, query = href.partition("?")
    segments = [segment for segment in address.split("/")[3:] if segment]
    if query:
        fields = query.split("&")
        for find in _IN_QUERY:
            refusal = find(fields, limits)
            if refusal is not None:
                return refusal
    else:
        fields = []
    for find in _IN_PATH:
        refusal = find(segments, limits)
        if refusal is not None:
            return refusal
    return calendar(segments, fields, year - limits.past_years, year + limits.future_years)


def too_many_parameters(fields: Sequence[str], limits: TrapLimits) -> Refusal | None:
    """Refuse a query of too many fields."""
    if len(fields) <= limits.parameters:
        return None
    return Refusal("parameters", limits.parameters, len(fields))


def repeated_parameter(fields: Sequence[str], limits: TrapLimits) -> Refusal | None:
    """Refuse a query that says the same field thrice, or gives one name too many values."""
    del limits
    if len(fields) <= MAX_SAME_FIELD:
        return None
    said = Counter(field for field in fields if field.partition("=")[2])
    field, count = said.most_common(1)[0] if said else ("", 0)
    if count > MAX_SAME_FIELD:
        return Refusal("repeated_parameter", MAX_SAME_FIELD, count, field)
    name, count = Counter(field.partition("=")[0] for field in fields).most_common(1)[0]
    if count > MAX_SAME_PARAMETER:
        return Refusal("repeated_parameter", MAX_SAME_PARAMETER, count, name)
    return None


def nested_url(fields: Sequence[str], limits: TrapLimits) -> Refusal | None:
    """Refuse a query with a value that was escaped four times over."""
    del limits
    for field in fields:
        if TOO_OFTEN_ESCAPED in field:
            return Refusal("nested_url", detail=field.partition("=")[0])
    return None


def too_many_segments(segments: Sequence[str], limits: TrapLimits) -> Refusal | None:
    """Refuse a path that is too deep."""
    if len(segments) <= limits.segments:
        return None
    return Refusal("path_depth", limits.segments, len(segments))


def repeated_path(segments: Sequence[str], limits: TrapLimits) -> Refusal | None:
    """Refuse a path in which segments repeat: a run in a row, or one of them again and again."""
    del limits
    if len(set(segments)) == len(segments):
        return None
    run = _repeated_run(segments)
    if run:
        most = _most(run, MAX_REPEATS)
        return Refusal("path_repetition", most, most + 1, "/".join(run))
    for segment, count in Counter(segments).most_common():
        most = _most((segment,), MAX_SAME_SEGMENT)
        if count > most:
            return Refusal("path_repetition", most, count, segment)
    return None


def _repeated_run(segments: Sequence[str]) -> Sequence[str]:
    """Return the run of segments that stands too many times in a row, empty where none does."""
    for period in range(1, min(MAX_PERIOD, len(segments) // (MAX_REPEATS + 1)) + 1):
        alike = 0
        for at in range(period, len(segments)):
            alike = alike + 1 if segments[at] == segments[at - period] else 0
            if alike in {period * MAX_REPEATS, period * MAX_SAME_NUMBER}:
                run = segments[at - period + 1 : at + 1]
                if alike == period * _most(run, MAX_REPEATS):
                    return run
    return ()


def _most(run: Sequence[str], most: int) -> int:
    """Return how often a run may be repeated: `most`, but for numbers."""
    return MAX_SAME_NUMBER if all(map(str.isdecimal, run)) else most


_Find = Callable[[Sequence[str], TrapLimits], Refusal | None]

_IN_QUERY: Final[tuple[_Find, ...]] = (too_many_parameters, repeated_parameter, nested_url)
_IN_PATH: Final[tuple[_Find, ...]] = (too_many_segments, repeated_path)
