"""Refresh: a page that names its successor itself, in a header or in a meta element.

The value is read as the HTML Standard has it (4.2.5.3, "shared declarative refresh steps"), for the header and for
`<meta http-equiv=refresh>` alike.
"""

from __future__ import annotations

import html
import re
from typing import Final, NamedTuple

from pipeline.web.encoding import Encoding, decide, decode
from pipeline.web.markup import start_tags

SCANNED_BYTES: Final = 16_384
"""How far a meta element is looked for; pages that are nothing but a redirect are short."""
INERT: Final = frozenset({
    b"script", b"style", b"title", b"textarea", b"xmp", b"iframe", b"noembed", b"noframes", b"template", b"noscript",
})  # fmt: skip
"""Elements whose content does not refresh. noscript would, without scripts; but there it leads from the page to a
message that scripts are needed."""

_DELAY: Final = re.compile(r"[\t\n\f\r ]*(?:(?P<seconds>[0-9]+)[0-9.]*|(?=\.)[0-9.]+)(?P<rest>.*)", re.DOTALL)
_URL: Final = re.compile(
    r"[\t\n\f\r ]*[;,]?[\t\n\f\r ]*(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?P<url>.*)", re.DOTALL
)
_MOST_DIGITS: Final = 9
_HINT: Final = re.compile(rb"http-equiv[\t\n\f\r ]*=[\t\n\f\r ]*[\"']?refresh")


class Refresh(NamedTuple):
    """What a page asks for.

    Attributes:
        delay_s: after how many seconds.
        url: what is to take its place, as written; None for the page itself.
    """

    delay_s: int
    url: str | None


class DeclaredRefresh(NamedTuple):
    """A meta element's wish.

    Attributes:
        refresh: what it asks for.
        base: href of the first base element before it, as written; None for none.
    """

    refresh: Refresh
    base: str | None


def parse_refresh(value: str) -> Refresh | None:
    """Read the value of a Refresh header or of the `content` of its meta element; None where it means nothing."""
    written = _DELAY.match(value)
    if written is None:
        return None
    delay_s, rest = int((written["seconds"] or "0")[:_MOST_DIGITS]), written["rest"]
    if not rest:
        return Refresh(delay_s, None)
    if rest[0] not in ";,\t\n\f\r ":
        return None
    named = _URL.match(rest)
    url = named["url"] if named else ""
    if url[:1] in {'"', "'"} and url:
        url = url[1:].partition(url[0])[0]
    elif not url:
        return Refresh(delay_s, None)
    return Refresh(delay_s, url)


def declared_refresh(body: bytes, content_type: str) -> DeclaredRefresh | None:
    """Find the first meta element of an HTML document that asks for a refresh.

    Args:
        body: the document; `SCANNED_BYTES` of it are looked at.
        content_type: the header as sent; empty for none.

    Returns:
        None where there is none outside of `INERT` elements and comments, or none that means anything.
    """
    head = body[:SCANNED_BYTES]
    # Most pages end here, after a microsecond or two.
    if (b"efresh" not in head and b"EFRESH" not in head) or not _HINT.search(head.lower()):
        return None
    base: bytes | None = None
    for name, attributes in start_tags(head, INERT):
        if name == b"base" and base is None:
            base = attributes.get(b"href")
        if name != b"meta" or attributes.get(b"http-equiv", b"").lower() != b"refresh":
            continue
        encoding = decide(body, content_type)
        refresh = parse_refresh(_text(attributes.get(b"content", b""), encoding))
        if refresh is not None:
            return DeclaredRefresh(refresh, None if base is None else _text(base, encoding))
    return None


def _text(value: bytes, encoding: Encoding) -> str:
    """Decode an attribute, character references included (HTML 13.2.5.73)."""
    return html.unescape(decode(value, encoding)[0])
