"""Rate limits that a site announces: how many requests it still allows, and when it counts anew. Pure.

Three ways of saying it are read, and of several limits the one that allows the slowest pace:

- `RateLimit` as a structured field (draft-ietf-httpapi-ratelimit-headers-08 and later): a list of policies with
  `r` (remaining) and `t` (seconds until the reset; without it the window `w` that `RateLimit-Policy` gives the policy).
  Before it was a dictionary (-07): `limit=100, remaining=50, reset=30`.
- `RateLimit-Remaining` with `RateLimit-Reset` (the drafts until -06).
- `X-RateLimit-Remaining` or `X-Rate-Limit-Remaining` with `-Reset` or `-Reset-After`: nobody's standard.

A reset is a number of seconds by the drafts; others send a time, in seconds or milliseconds since the epoch, or an HTTP
date. Numbers are told apart by their size: what is at most `LONGEST_S` is a pause, what lies at most so far ahead as a
time is a time, anything else is nonsense and ignored. No pause that is believed is as long as the time since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from http_sf import StructuredFieldError, Token, parse

from pipeline.fetch.retry_after import LONGEST_S, http_date

MOST_REMAINING: Final = 2**53
"""A larger number is nonsense; and no record could carry it."""
PAST_S: Final = 86_400.0
"""A reset that passed longer ago than this is no time but nonsense."""
MAX_FIELD_BYTES: Final = 4 << 10
FAMILIES: Final = (b"ratelimit", b"x-ratelimit", b"x-rate-limit")

_COUNT: Final = re.compile(r"[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?")

Values = Callable[[bytes], Sequence[bytes]]
"""Values of a header by its name in lower case, in order."""


class RateLimit(NamedTuple):
    """What a site still allows.

    Attributes:
        remaining: requests until the reset.
        reset_s: seconds from now until it counts anew; 0 where that is past.
    """

    remaining: int
    reset_s: float

    @property
    def pause_s(self) -> float:
        """Pause that shares out what remains; the whole rest where nothing does."""
        return self.reset_s / max(1, self.remaining)


class Announced(NamedTuple):
    """What the headers of a response say.

    Attributes:
        limit: the one with the longest pause; None where none was announced, or none that can be believed.
        ignored: limits that were announced and are not believed: no numbers, or absurd ones.
    """

    limit: RateLimit | None
    ignored: int


def announced(values: Values, now: float, *, site_now: float | None = None) -> Announced:
    """Read the rate limits of a response.

    Args:
        values: of the response's headers.
        now: wall clock, s since the epoch.
        site_now: the site's own clock as its Date field tells it; None where it told nothing. A reset that is given as
            a time is read by the clock that is behind: nothing is shortened by a difference between them.
    """
    earlier = now if site_now is None else min(now, site_now)
    found: list[RateLimit] = []
    ignored = 0
    for pair in (*_structured(values), *_plain(values)):
        limit = _believed(*pair, earlier)
        if limit is None:
            ignored += 1
        else:
            found.append(limit)
    return Announced(max(found, key=lambda limit: (limit.pause_s, -limit.remaining), default=None), ignored)


Pair = tuple[str, str]
"""Remaining and reset as they were written; a text that is none stands for what can't be read."""
_UNREADABLE: Final[Pair] = ("", "")


def _structured(values: Values) -> Iterator[Pair]:
    field = b", ".join(values(b"ratelimit"))
    if not field:
        return
    try:
        policies = _policies(field)
    except StructuredFieldError:
        yield _dictionary(field)
        return
    windows: dict[str, str] | None = None
    for name, parameters in policies:
        remaining, reset = parameters.get("r"), parameters.get("t")
        if reset is None:
            windows = _windows(values) if windows is None else windows
            reset = windows.get(name)
        if reset is None and remaining:
            continue  # requests remain, and nobody knows until when: that asks for no pause
        yield str(remaining), str(reset)


def _dictionary(field: bytes) -> Pair:
    try:
        members: Any = parse(field, tltype="dictionary")
        return str(members["remaining"][0]), str(members["reset"][0])
    except (StructuredFieldError, KeyError):
        return _UNREADABLE


def _windows(values: Values) -> dict[str, str]:
    """Window of each policy, the longest time until its reset."""
    try:
        policies = _policies(b", ".join(values(b"ratelimit-policy")))
    except StructuredFieldError:
        return {}
    return {name: str(parameters["w"]) for name, parameters in policies if "w" in parameters}


def _policies(field: bytes) -> list[tuple[str, dict[str, object]]]:
    """Name and parameters of each policy; the name is a string, in some drafts a token."""
    if not field or len(field) > MAX_FIELD_BYTES:
        return []
    members: Any = parse(field, tltype="list")
    return [(str(name) if isinstance(name, str | Token) else "", parameters) for name, parameters in members]


def _plain(values: Values) -> Iterator[Pair]:
    for family in FAMILIES:
        remaining = _last(values(family + b"-remaining"))
        reset = _last(values(family + b"-reset-after")) or _last(values(family + b"-reset"))
        # Alone neither says anything: `remaining` of a window without an end, an end without a number.
        if remaining and reset:
            yield remaining, reset


def _last(lines: Sequence[bytes]) -> str:
    return lines[-1].decode("latin-1").strip(" \t") if lines else ""


def _believed(remaining: str, reset: str, now: float) -> RateLimit | None:
    count = int(remaining) if _COUNT.fullmatch(remaining) else None
    pause_s = _pause_s(reset, now)
    if count is None or count > MOST_REMAINING or pause_s is None:
        return None
    return RateLimit(count, pause_s)


def _pause_s(text: str, now: float) -> float | None:
    """Seconds from now until a reset; None for nonsense."""
    if not _NUMBER.fullmatch(text):
        at = http_date(text[:64], now)
        return None if at is None else _until_s(at, now)
    number = float(text)
    if number <= LONGEST_S:
        return number
    pauses = (_until_s(number / scale, now) for scale in (1, 1_000))
    return next((pause_s for pause_s in pauses if pause_s is not None), None)


def _until_s(at: float, now: float) -> float | None:
    return max(0.0, at - now) if now - PAST_S <= at <= now + LONGEST_S else None
