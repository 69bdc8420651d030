"""HTML: bytes to links, title, main text and what the page says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from pipeline.parse import directives
from pipeline.parse.directives import Directives
from pipeline.parse.links import Links, base_url
from pipeline.parse.metadata import Dated, first_dated, read_metadata
from pipeline.parse.text import main_text
from pipeline.web.encoding import decide, decode
from pipeline.web.url import MAX_URL_BYTES, RefusedUrl, canonicalize

_LINKING: Final = "a[href],area[href],iframe[src],frame[src]"
_UTF8_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ParsedHtml:
    """An HTML document, read.

    Attributes:
        encoding: name as the Encoding Standard writes it.
        title: on one line; empty for none.
        text: main text, one line a block; empty for none.
        language: BCP 47 tag; None where none is declared.
        authors: names as printed, each once.
        published: when, with its evidence; None where nothing says so reliably.
        modified: likewise.
        canonical: canonical URL of the `rel=canonical` target: an alias, not a key (RFC 6596). None where there is
            none, or several that differ.
        directives: what meta elements and X-Robots-Tag ask for.
        links: all links, whatever `directives` say.
    """

    encoding: str
    title: str
    text: str
    language: str | None
    authors: tuple[str, ...]
    published: Dated | None
    modified: Dated | None
    canonical: str | None
    directives: Directives
    links: Links


def parse_html(
    body: bytes,
    url: str,
    *,
    fetched_at_s: float,
    content_type: str = "",
    robots_header: str = "",
    agent: str = "headrace",
    max_url_bytes: int = MAX_URL_BYTES,
) -> ParsedHtml:
    """Read an HTML document. No bytes make it raise.

    Args:
        body: unpacked.
        url: of the document, canonical or as it was asked for.
        fetched_at_s: when it was fetched, seconds since the epoch: it can't have been published long after.
        content_type: the header as sent; empty for none.
        robots_header: values of X-Robots-Tag, one a line.
        agent: our product token.
        max_url_bytes: longer links are refused.

    Raises:
        MemoryError: the process may take no more.
    """
    encoding, tree = _tree(body, content_type)
    said = read_metadata(tree, agent)
    links = read_links(tree, base_url(url, said.base_href), encoding, max_url_bytes, refresh=said.refresh)
    return ParsedHtml(
        encoding=encoding,
        title=said.title,
        text=main_text(tree),
        language=said.language,
        authors=tuple(said.authors),
        published=first_dated(said.published, fetched_at_s),
        modified=first_dated(said.modified, fetched_at_s),
        canonical=_canonical(said.canonical_hrefs, links.base),
        directives=said.directives.and_also(directives.from_header(robots_header.splitlines(), agent)),
        links=links,
    )


def read_links(
    tree: LexborHTMLParser,
    base: str,
    encoding: str = "UTF-8",
    max_url_bytes: int = MAX_URL_BYTES,
    *,
    refresh: str | None = None,
) -> Links:
    """Read the links of a document: anchors, areas and frames.

    Args:
        tree: the document; it is not changed.
        base: what relative links are resolved against.
        encoding: the document's, as the Encoding Standard names it.
        max_url_bytes: longer links are refused.
        refresh: where the document leads by itself, as written: the first link, its `rel` is `refresh`. None where it
            stays.
    """
    links = Links(base, encoding, max_url_bytes)
    if refresh is not None:
        links.add(refresh, "refresh")
    for node in tree.css(_LINKING):
        attributes = node.attributes
        links.add(attributes.get("href" if node.tag in {"a", "area"} else "src") or "", attributes.get("rel") or "")
    return links


def _tree(body: bytes, content_type: str) -> tuple[str, LexborHTMLParser]:
    encoding = decide(body, content_type)
    # Lexbor reads UTF-8 and puts U+FFFD for what is none, when a text is taken out: nothing to decode before.
    html = body.removeprefix(_UTF8_BOM) if encoding.name == "UTF-8" else decode(body, encoding)[0]
    try:
        return encoding.name, LexborHTMLParser(html)
    except SelectolaxError as exc:
        raise MemoryError(str(exc)) from exc  # any bytes are a document: only a refused allocation ends the parser


def _canonical(hrefs: Iterable[str], base: str) -> str | None:
    found = set()
    for href in filter(str.strip, hrefs):
        try:
            found.add(canonicalize(href, base).href)
        except RefusedUrl:
            continue
    return found.pop() if len(found) == 1 else None
