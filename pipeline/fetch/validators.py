"""Validators of conditional requests: which are worth keeping, and how they are sent back (RFC 9110 8.8 and 13.1).

A validator that is kept for nothing costs a page each time; one that is kept wrongly costs news, since the site will
say "not modified" for ever. So what could be either is not kept:

- of an answer that is not whole, or whose lines contradict each other;
- an entity tag that is not printable ASCII, longer than `MAX_CHARACTERS`, a list, or `*`, which would ask whether
  anything is there at all (13.1.2). One without its quotes is kept as it is: its site compares texts;
- a Last-Modified that is no HTTP date (13.1.3: it is ignored), lies in the future, or is not older than the answer by
  `SETTLED_S`: within the same second the page may have changed again (8.8.2.2).

A weak tag (`W/"…"`) is sent as it came: If-None-Match compares weakly (13.1.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from pipeline.fetch.client import Response
from pipeline.fetch.retry_after import http_date, site_clock

MAX_CHARACTERS: Final = 1024
"""Longest validator that is kept: a site could fill records, and the frontier's state, with them."""
SETTLED_S: Final = 1.0

_QUOTED_TAG: Final = re.compile(rb'(?:[Ww]/)?"[\x20\x21\x23-\x7e]*"')
_BARE_TAG: Final = re.compile(rb"[\x21\x23-\x29\x2b\x2d-\x7e]+")  # neither quote, asterisk nor comma


class Validators(NamedTuple):
    """What an answer is known by.

    Attributes:
        etag: entity tag as it came; None for none.
        last_modified: date as it came; None for none.
    """

    etag: str | None = None
    last_modified: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the fields of a conditional request; what can't stand in a header is left out."""
        named = (("If-None-Match", self.etag), ("If-Modified-Since", self.last_modified))
        return {name: text for name, text in named if text and _HEADER_TEXT.fullmatch(text)}


NO_VALIDATORS: Final = Validators()
_HEADER_TEXT: Final = re.compile(r"[\x21-\x7e][\x20-\x7e]*")


def validators_of(response: Response, now: float) -> Validators:
    """Return what the next request may be made conditional by.

    Args:
        response: any answer.
        now: wall clock, s since the epoch.
    """
    if response.body.truncated is not None:
        return NO_VALIDATORS  # they vouch for all of it
    return Validators(_etag(response.values(b"etag")), _last_modified(response, now))


def _etag(lines: Sequence[bytes]) -> str | None:
    tag = _the_one(lines)
    if tag is None or len(tag) > MAX_CHARACTERS:
        return None
    return tag.decode("latin-1") if _QUOTED_TAG.fullmatch(tag) or _BARE_TAG.fullmatch(tag) else None


def _last_modified(response: Response, now: float) -> str | None:
    date = _the_one(response.values(b"last-modified"))
    if date is None or len(date) > MAX_CHARACTERS:
        return None
    text = date.decode("latin-1")
    modified = http_date(text, now)
    site_now = site_clock([value.decode("latin-1") for value in response.values(b"date")], now)
    answered = now if site_now is None else site_now
    return text if modified is not None and modified <= answered - SETTLED_S else None


def _the_one(lines: Sequence[bytes]) -> bytes | None:
    """Return what all lines of a field say; None where they say nothing, or differ."""
    values = {line.strip(b" \t") for line in lines}
    return (values.pop() or None) if len(values) == 1 else None
