"""Traps: URLs that a site makes without end out of the same pages."""

from __future__ import annotations

from typing import Final

MAX_REPEATS: Final = 2
"""The same run of path segments in a row; Heritrix' PathologicalPathDecideRule has the same default."""
MAX_PERIOD: Final = 16
"""Longest run of segments that is looked for, segments."""
MAX_PARAMETERS: Final = 32
"""Fields of a query; a page that is chosen by more is a generated view of others."""

PATH_REPETITION: Final = "path_repetition"
PARAMETERS: Final = "parameters"


def trap(href: str) -> str | None:
    """Return why a canonical URL looks like a trap, or None.

    A relative link on a site that answers any path grows it by the same segments at each step
    (`/a/x/y/x/y/x/y`): `path_repetition` from the third in a row on. A query that grows by a field at each step:
    `parameters`.
    """
    path, _, query = href.partition("?")
    if query.count("&") >= MAX_PARAMETERS:
        return PARAMETERS
    segments = [segment for segment in path.split("/")[3:] if segment]
    if len(set(segments)) < len(segments) and _repeats(segments):
        return PATH_REPETITION
    return None


def _repeats(segments: list[str]) -> bool:
    """Return whether a run of segments stands more than `MAX_REPEATS` times in a row."""
    times = MAX_REPEATS + 1
    for period in range(1, min(MAX_PERIOD, len(segments) // times) + 1):
        alike = 0
        for at in range(period, len(segments)):
            alike = alike + 1 if segments[at] == segments[at - period] else 0
            if alike == period * MAX_REPEATS:
                return True
    return False
