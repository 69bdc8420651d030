"""Sitemaps (sitemaps.org protocol 0.9): urlset, index, plain text, with Google's news extension.

Lenient where sites are: any or no namespace, bare ampersands, a damaged end, relative locations. Not lenient where it
would be unsafe: no entity of the document is expanded, nothing is loaded, and a location with an entity in it is none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lxml import etree

from pipeline.parse import xml
from pipeline.parse.dates import w3c_date
from pipeline.parse.links import Links
from pipeline.parse.text import one_line
from pipeline.web.encoding import decide, decode
from pipeline.web.url import MAX_URL_BYTES

MAX_SITEMAP_BYTES: Final = 50 << 20
"""The protocol's limit; what stands behind it is not read."""

_CHANGE_FREQUENCIES: Final = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_BARE_AMPERSAND: Final = re.compile(
    rb"(<!\[CDATA\[.*?\]\]>)|&(?!(?:#[0-9]+|#[xX][0-9A-Fa-f]+|[A-Za-z_][\w.-]*);)", re.DOTALL
)
_NEWS: Final = "news"
_TEXT_BYTES: Final = 65_536  # a sitemap without a tag in so many bytes is plain text


class News(NamedTuple):
    """Google's news extension of an entry: texts empty for none, `published` as `pipeline.parse.dates` writes it."""

    publication: str
    language: str
    title: str
    published: str | None


class SitemapUrl(NamedTuple):
    """An entry of a urlset.

    Attributes:
        loc: canonical URL.
        lastmod: as `pipeline.parse.dates` writes it, months and years included; None for none.
        changefreq: one of the protocol's words; None for none.
        priority: 0 to 1; None for none.
        news: None where the entry has no such extension.
    """

    loc: str
    lastmod: str | None = None
    changefreq: str | None = None
    priority: float | None = None
    news: News | None = None


@dataclass(frozen=True, slots=True)
class ParsedSitemap:
    """A sitemap, read.

    Attributes:
        encoding: name as the Encoding Standard writes it.
        urls: pages, in the order of the file; each once.
        sitemaps: canonical URLs of the sitemaps that an index names; each once.
        links: both together.
    """

    encoding: str
    urls: tuple[SitemapUrl, ...]
    sitemaps: tuple[str, ...]
    links: Links


def parse_sitemap(
    body: bytes, url: str, *, content_type: str = "", max_url_bytes: int = MAX_URL_BYTES
) -> ParsedSitemap:
    """Read a sitemap; a damaged one as far as it goes. No bytes make it raise.

    Args:
        body: unpacked.
        url: of the sitemap, canonical or as it was asked for.
        content_type: the header as sent; empty for none.
        max_url_bytes: longer URLs are refused.
    """
    body = body[:MAX_SITEMAP_BYTES]
    if b"<" not in body[:_TEXT_BYTES]:
        return _parse_text(body, content_type, max_url_bytes)
    links = Links(url, max_url_bytes=max_url_bytes)
    urls: dict[str, SitemapUrl] = {}
    sitemaps: dict[str, None] = {}
    document, name = xml.utf8(body, content_type)
    for entry in _entries(document):
        target = links.add(entry.loc) if entry.loc else None
        if target is None:
            continue
        if entry.kind == "sitemap":
            sitemaps.setdefault(target.href)
        else:
            urls.setdefault(target.href, _url(target.href, entry))
    return ParsedSitemap(name, tuple(urls.values()), tuple(sitemaps), links)


def _parse_text(body: bytes, content_type: str, max_url_bytes: int) -> ParsedSitemap:
    """Read a sitemap in plain text: one absolute URL a line."""
    encoding = decide(body, content_type or "text/plain")
    links = Links("about:blank", max_url_bytes=max_url_bytes)
    for line in filter(None, map(str.strip, decode(body, encoding)[0].splitlines())):
        links.add(line)
    return ParsedSitemap(encoding.name, tuple(map(SitemapUrl, links.found)), (), links)


class _Entry(NamedTuple):
    """One `url` or `sitemap` element: texts of its children by local name."""

    kind: str
    loc: str
    texts: dict[str, str]
    news: dict[str, str] | None


def _entries(document: bytes) -> Iterator[_Entry]:
    # What follows the last closing tag is the stump of a cut file: half a URL is a wrong URL.
    last = document.rfind(b"</")
    end = document.find(b">", last) + 1
    document = _BARE_AMPERSAND.sub(_escaped, document[: end or last] if last >= 0 else b"")
    events = etree.iterparse(
        io.BytesIO(document),
        events=("start", "end"),
        encoding="utf-8",
        recover=True,
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    namespace = None
    try:
        for event, element in events:
            space, name = _split(element.tag)
            if namespace is None:
                namespace = space  # the root's: whatever it is, the protocol's own elements share it
            if event == "end" and name in {"url", "sitemap"} and space == namespace:
                yield _entry(name, element, namespace)
                element.clear()
                while element.getprevious() is not None:  # else the tree keeps a stub of each entry
                    del element.getparent()[0]
    except etree.XMLSyntaxError:
        return  # what was read so far counts


def _entry(kind: str, element: etree._Element, namespace: str) -> _Entry:
    texts: dict[str, str] = {}
    news = None
    for child in element:
        if not isinstance(child.tag, str):
            continue  # an entity that was not expanded
        space, name = _split(child.tag)
        if space == namespace:
            texts.setdefault(name, _text(child))
        elif name == _NEWS and news is None:
            news = {_split(part.tag)[1]: _text(part) for part in child.iter(etree.Element)}
    location = texts.get("loc", "")
    if not location and one_line(element.text).startswith("http"):
        location = one_line(element.text)  # some indexes leave the loc element out
    return _Entry(kind, location, texts, news)


def _url(loc: str, entry: _Entry) -> SitemapUrl:
    frequency = entry.texts.get("changefreq", "").lower()
    news = entry.news
    return SitemapUrl(
        loc,
        lastmod=w3c_date(entry.texts.get("lastmod", "")),
        changefreq=frequency if frequency in _CHANGE_FREQUENCIES else None,
        priority=_priority(entry.texts.get("priority", "")),
        news=None if news is None else News(
            news.get("name", ""), news.get("language", ""), news.get("title", ""),
            w3c_date(news.get("publication_date", "")),
        ),
    )  # fmt: skip


def _priority(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None


def _text(element: etree._Element) -> str:
    """Text of an element; empty where it has elements or entities inside: then it is not what it should be."""
    return one_line(element.text) if len(element) == 0 else ""


def _split(tag: str) -> tuple[str, str]:
    space, _, name = tag.rpartition("}")
    return space, name


def _escaped(match: re.Match[bytes]) -> bytes:
    return match[1] or b"&amp;"
