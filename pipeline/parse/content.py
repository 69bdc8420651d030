"""One page, whatever it is: the way from bytes to links, items and text that worker and command share."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.parse import directives
from pipeline.parse.directives import Directives
from pipeline.parse.feed import ParsedFeed, parse_feed
from pipeline.parse.html import ParsedHtml, parse_html
from pipeline.parse.kinds import Kind, kind_of
from pipeline.parse.links import Links
from pipeline.parse.sitemap import ParsedSitemap, parse_sitemap
from pipeline.parse.unpack import gunzip
from pipeline.web.url import MAX_URL_BYTES


@dataclass(frozen=True, slots=True)
class Options:
    """What reading a page depends on beside the page.

    Attributes:
        agent: our product token in robots directives.
        max_url_bytes: longer links are refused.
    """

    agent: str = "headrace"
    max_url_bytes: int = MAX_URL_BYTES


@dataclass(frozen=True, slots=True)
class Content:
    """A page, read.

    Attributes:
        kind: what it was taken for.
        directives: what the page asks of robots.
        links: what it links to: anchors, items of a feed, entries of a sitemap.
        read: by kind; None for a list (which only its source's description can read) and other kinds.
    """

    kind: Kind
    directives: Directives
    links: Links
    read: ParsedHtml | ParsedFeed | ParsedSitemap | None = None

    @property
    def html(self) -> ParsedHtml | None:
        """The document, where the page is HTML."""
        return self.read if isinstance(self.read, ParsedHtml) else None

    @property
    def items_found(self) -> int:
        """Items of a feed, entries of a sitemap; 0 for other kinds."""
        if isinstance(self.read, ParsedFeed):
            return len(self.read.items)
        return len(self.read.urls) + len(self.read.sitemaps) if isinstance(self.read, ParsedSitemap) else 0


def read_content(
    body: bytes, url: str, *, fetched_at_s: float, content_type: str, robots_header: str, options: Options
) -> Content:
    """Read a page of any kind. No bytes make it raise.

    Args:
        body: as it was sent, content codings undone; a gzip file is unpacked here.
        url: of the page, canonical or as it was asked for.
        fetched_at_s: seconds since the epoch.
        content_type: the header as sent; empty for none.
        robots_header: values of X-Robots-Tag, one a line.
        options: see there.
    """
    body = gunzip(body)
    kind = kind_of(body, content_type)
    longest = options.max_url_bytes
    if kind is Kind.HTML:
        document = parse_html(
            body, url, fetched_at_s=fetched_at_s, content_type=content_type, robots_header=robots_header,
            agent=options.agent, max_url_bytes=longest,
        )  # fmt: skip
        return Content(kind, document.directives, document.links, document)
    wish = directives.from_header(robots_header.splitlines(), options.agent)
    if kind is Kind.FEED:
        feed = parse_feed(body, url, fetched_at_s=fetched_at_s, content_type=content_type, max_url_bytes=longest)
        return Content(kind, wish, feed.links, feed)
    if kind is Kind.SITEMAP:
        sitemap = parse_sitemap(body, url, content_type=content_type, max_url_bytes=longest)
        return Content(kind, wish, sitemap.links, sitemap)
    return Content(kind, wish, Links(url))
