"""RSS and Atom: the items of a feed."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import feedparser
from feedparser.mixin import _FeedParserMixin
from selectolax.lexbor import LexborHTMLParser

from pipeline.parse import xml
from pipeline.parse.dates import any_date, is_plausible
from pipeline.parse.links import Links
from pipeline.parse.text import one_line, title_line
from pipeline.web.url import MAX_URL_BYTES

MAX_FEED_BYTES: Final = 8 << 20
"""Of a longer feed the first so many bytes are read: the newest items stand first."""

DAMAGED: Final = "damaged_feed"
"""Under this reason `Links.refused` counts a feed on which the library gives up, whose items are not known."""

# An id is a name, compared as it is written (RFC 4287 4.2.6.1, RSS 2.0 "guid"): the library would resolve it as a URL.
_FeedParserMixin.can_be_relative_uri = _FeedParserMixin.can_be_relative_uri - {"id"}

_MAX_ID_CHARACTERS: Final = 2_048
_DATES_PUBLISHED: Final = ("published", "created")
_DATES_UPDATED: Final = ("updated",)


class FeedItem(NamedTuple):
    """An item.

    Attributes:
        url: canonical URL of its page; None where it has none that can be fetched.
        id: guid or atom:id as written; empty for none.
        title: plain text on one line; empty for none.
        published: as `pipeline.parse.dates` writes it; None for none.
        updated: likewise.
    """

    url: str | None
    id: str
    title: str
    published: str | None
    updated: str | None


@dataclass(frozen=True, slots=True)
class ParsedFeed:
    """A feed, read.

    Attributes:
        encoding: name as the Encoding Standard writes it.
        title: plain text on one line; empty for none.
        language: as written; None for none.
        items: in the order of the feed.
        links: pages of the items.
    """

    encoding: str
    title: str
    language: str | None
    items: tuple[FeedItem, ...]
    links: Links


def parse_feed(
    body: bytes, url: str, *, fetched_at_s: float, content_type: str = "", max_url_bytes: int = MAX_URL_BYTES
) -> ParsedFeed:
    """Read a feed; a damaged one as far as it goes. No bytes make it raise.

    Args:
        body: unpacked.
        url: of the feed, canonical or as it was asked for.
        fetched_at_s: when it was fetched, seconds since the epoch: times long after it are dropped.
        content_type: the header as sent; empty for none.
        max_url_bytes: longer URLs are refused.
    """
    document, encoding = xml.utf8(body[:MAX_FEED_BYTES], content_type)
    links = Links(url, max_url_bytes=max_url_bytes)
    try:
        read = feedparser.parse(
            io.BytesIO(document),  # bare bytes would be tried as the name of a file first
            response_headers={"content-type": xml.UTF8_TYPE, "content-location": url},
            resolve_relative_uris=False,  # of descriptions, which are not used; links are resolved all the same
            sanitize_html=False,
        )
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the library raises whatever its handlers meet, KeyError and AttributeError too
        links.refused[DAMAGED] = 1
        return ParsedFeed(encoding, "", None, (), links)
    items = tuple(_item(entry, links, fetched_at_s) for entry in read.entries)
    language = one_line(read.feed.get("language"))
    return ParsedFeed(encoding, _plain(read.feed.get("title_detail")), language or None, items, links)


def _item(entry: Mapping[str, Any], links: Links, fetched_at_s: float) -> FeedItem:
    written = entry.get("link")
    if written and entry.get("guidislink") and "://" not in written:
        written = None  # a guid is a permalink unless it says otherwise; a plain number is none, whatever it says
    target = links.add(written) if written else None
    return FeedItem(
        url=target.href if target else None,
        id=one_line(entry.get("id"))[:_MAX_ID_CHARACTERS],
        title=_plain(entry.get("title_detail")),
        published=_date(entry, _DATES_PUBLISHED, fetched_at_s),
        updated=_date(entry, _DATES_UPDATED, fetched_at_s),
    )


def _plain(detail: Mapping[str, Any] | None) -> str:
    """A title as text: RSS and Atom allow markup in it."""
    if detail is None:
        return ""
    text = detail.get("value") or ""
    if detail.get("type") in {"text/html", "application/xhtml+xml"} and ("<" in text or "&" in text):
        text = LexborHTMLParser(text).text()
    return title_line(text)


def _date(entry: Mapping[str, Any], names: tuple[str, ...], fetched_at_s: float) -> str | None:
    for name in names:
        # Not `get`, with which an item that was never updated answers with its time of publication.
        found = any_date(entry[name] or "") if name in entry else None
        if found is not None and is_plausible(found, fetched_at_s):
            return found
    return None
