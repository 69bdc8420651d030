"""What a body is: decided by its Content-Type and its first bytes, as a browser would, since both lie now and then.

After the WHATWG MIME Sniffing Standard: a root element that only a feed or a sitemap has decides over the type (7.2,
"sniffing a mislabelled feed"); without a type the first bytes decide (7.1); any other type is believed.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from pipeline.web.content_type import parse_content_type


class Kind(StrEnum):
    """Kinds of pages; in the parsed record the same words in capitals."""

    HTML = "html"
    FEED = "feed"
    SITEMAP = "sitemap"
    LIST = "list"
    OTHER = "other"


_WINDOW_BYTES: Final = 65_536  # a root element may stand behind long comments
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_FEED_TYPES: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
_XML_TYPES: Final = frozenset({"text/xml", "application/xml"})
_JSON_TYPES: Final = frozenset({"application/json", "text/json"})
_UNKNOWN_TYPES: Final = frozenset({
    "", "unknown/unknown", "application/unknown",  # MIME Sniffing 7
    "application/octet-stream", "binary/octet-stream", "application/gzip", "application/x-gzip",  # what *.gz is sent as
})  # fmt: skip
_XML_WITHOUT_MARKUP: Final = re.compile(
    rb"\s++|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL | re.IGNORECASE
)
_ELEMENT: Final = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[\s/>]")
_FEED_ROOTS: Final = frozenset({b"rss", b"feed"})
_SITEMAP_ROOTS: Final = frozenset({b"urlset", b"sitemapindex"})
_RSS1_NAMESPACES: Final = (b"http://purl.org/rss/1.0/", b"http://my.netscape.com/rdf/simple/0.9/")
_TAG: Final = re.compile(rb"<[A-Za-z!/]")
_JSON_START: Final = re.compile(rb"[\[{]\s*[\[{\"\]}tfn0-9-]")
_URL_LINES: Final = re.compile(rb"(?:https?://[^\s<>]++[ \t]*+(?:[\r\n]\s*+|\Z))+\Z", re.IGNORECASE)
_BOMS: Final = ((b"\xef\xbb\xbf", ""), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_UNMARKED_UTF16: Final = ((b"<\x00", "utf-16-le"), (b"\x00<", "utf-16-be"))


def kind_of(body: bytes, content_type: str = "") -> Kind:  # noqa: PLR0911 - a table of decisions
    """Decide what to read a body as.

    Args:
        body: unpacked.
        content_type: the header as sent; empty for none.
    """
    essence = parse_content_type(content_type).essence
    head, whole = _head(body)
    root = _root(head)
    if root in _FEED_ROOTS or (root == b"RDF" and any(namespace in head for namespace in _RSS1_NAMESPACES)):
        return Kind.FEED
    if root in _SITEMAP_ROOTS:
        return Kind.SITEMAP
    if essence in _HTML_TYPES:
        return Kind.HTML
    if essence in _FEED_TYPES:
        return Kind.FEED
    if essence in _JSON_TYPES or essence.endswith("+json"):
        return Kind.LIST
    if essence in _XML_TYPES or essence.endswith("+xml"):
        return Kind.HTML if root == b"html" else Kind.OTHER
    if essence == "text/plain":
        return Kind.SITEMAP if _is_url_list(head, whole=whole) else Kind.OTHER
    return _sniffed(head, whole=whole) if essence in _UNKNOWN_TYPES else Kind.OTHER


def _sniffed(head: bytes, *, whole: bool) -> Kind:
    start = head.lstrip()
    if _TAG.match(start):
        return Kind.HTML
    if _JSON_START.match(start):
        return Kind.LIST
    return Kind.SITEMAP if _is_url_list(head, whole=whole) else Kind.OTHER


def _head(body: bytes) -> tuple[bytes, bool]:
    """The first bytes in an encoding that holds ASCII, without a byte order mark; whether they are all."""
    head, whole = body[:_WINDOW_BYTES], len(body) <= _WINDOW_BYTES
    for mark, codec in _BOMS:
        if head.startswith(mark):
            head = head[len(mark) :]
            return (head.decode(codec, "ignore").encode() if codec else head), whole
    for mark, codec in _UNMARKED_UTF16:
        if head.startswith(mark):
            return head.decode(codec, "ignore").encode(), whole
    return head, whole


def _root(head: bytes) -> bytes:
    """Local name of the first element of an XML or HTML document; empty where it begins otherwise."""
    position = 0
    while match := _XML_WITHOUT_MARKUP.match(head, position):
        position = match.end()
    element = _ELEMENT.match(head, position)
    return element[1] if element else b""


def _is_url_list(head: bytes, *, whole: bool) -> bool:
    """Say whether each line is a URL (sitemaps.org, "Text file")."""
    if not whole:
        head = head[: head.rfind(b"\n") + 1]
    return _URL_LINES.match(head.lstrip()) is not None
