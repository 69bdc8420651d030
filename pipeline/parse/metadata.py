"""What an HTML document says of itself: title, language, authors, times, and its wishes to robots.

Only what is declared counts: JSON-LD (schema.org), meta elements, microdata, time elements. Nothing is guessed from
running text, from scripts or from the URL. Where several places name a time, the first is taken that is a date, has a
zone where it has a time of day, and is no later than the fetch; its place and words are kept as evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson
from selectolax.lexbor import LexborHTMLParser, LexborNode

from pipeline.parse import directives
from pipeline.parse.dates import any_date, is_plausible
from pipeline.parse.directives import Directives
from pipeline.parse.text import one_line, title_line
from pipeline.web.refresh import Refresh, parse_refresh

_SELECTOR: Final = (
    "title,h1,base[href],meta[content],link[rel][href],script[type],time[pubdate],[itemprop],a[rel~=author]"
)
_TITLES: Final = ("og:title", "twitter:title", "dc.title", "dcterms.title")
_AUTHORS: Final = ("author", "article:author", "dc.creator", "dcterms.creator", "parsely-author", "sailthru.author")
_PUBLISHED: Final = (
    "article:published_time", "og:article:published_time", "og:published_time", "datepublished", "dc.date.issued",
    "dcterms.issued", "dc.date", "dcterms.date", "dcterms.created", "parsely-pub-date", "sailthru.date", "pubdate",
    "publishdate", "publish-date", "publish_date", "date",
)  # fmt: skip
_MODIFIED: Final = (
    "article:modified_time", "og:updated_time", "og:modified_time", "datemodified", "dc.date.modified",
    "dcterms.modified", "last-modified", "lastmod",
)  # fmt: skip
_TAG_OF_LANGUAGE: Final = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")
_HTML_COMMENT: Final = re.compile(r"^\s*(?:<!--|//<!\[CDATA\[|<!\[CDATA\[)|(?:-->|//\]\]>|\]\]>)\s*$")
_ARTICLE_TYPES: Final = re.compile(r"(?:https?://schema\.org/)?(?:\w*Article|\w*Posting|Report)")
_PAGE_TYPES: Final = re.compile(r"(?:https?://schema\.org/)?(?:\w*WebPage|ItemPage|AboutPage)")
_NESTED: Final = ("@graph", "mainEntity", "mainEntityOfPage")
_MAX_OBJECTS: Final = 1_000
_MAX_AUTHORS: Final = 32
_MAX_NAME_CHARACTERS: Final = 256
_MAX_EVIDENCE_CHARACTERS: Final = 256


class Candidate(NamedTuple):
    """A time as a page names it: where, and in which words."""

    place: str
    written: str


class Dated(NamedTuple):
    """A time that was taken.

    Attributes:
        value: as `pipeline.parse.dates` writes it.
        evidence: place and words it was read from.
    """

    value: str
    evidence: str


@dataclass(slots=True)
class Metadata:
    """What was declared.

    Attributes:
        title: on one line; empty for none.
        language: BCP 47 tag; None where none is declared.
        base_href: of the first base element that has one, as written.
        canonical_hrefs: of all `link rel=canonical`, as written.
        refresh: where the page leads by itself, as written; None where it stays.
        directives: of all meta elements for robots or for us.
        authors: names as printed, each once.
        published: the most trusted first.
        modified: the most trusted first.
    """

    title: str = ""
    language: str | None = None
    base_href: str | None = None
    canonical_hrefs: list[str] = field(default_factory=list)
    refresh: str | None = None
    directives: Directives = field(default_factory=Directives)
    authors: list[str] = field(default_factory=list)
    published: list[Candidate] = field(default_factory=list)
    modified: list[Candidate] = field(default_factory=list)


def first_dated(candidates: Iterable[Candidate], fetched_at_s: float) -> Dated | None:
    """Take the first candidate that is a date and not later than the fetch.

    Args:
        candidates: the most trusted first.
        fetched_at_s: when the page was fetched, seconds since the epoch.
    """
    for place, written in candidates:
        value = any_date(written)
        if value is not None and is_plausible(value, fetched_at_s):
            return Dated(value, f"{place}: {one_line(written)}"[:_MAX_EVIDENCE_CHARACTERS])
    return None


def read_metadata(tree: LexborHTMLParser, agent: str) -> Metadata:
    """Read the declarations of a document.

    Args:
        tree: the document; it is not changed.
        agent: our product token: `<meta name=…>` of that name counts as `robots` does.
    """
    elements = _Elements()
    for node in tree.css(_SELECTOR):
        elements.read(node, node.tag or "", node.attributes)
    meta, described, microdata = elements.meta, elements.described, elements.microdata
    root = tree.root
    languages = [] if root is None else [root.attributes.get("lang"), root.attributes.get("xml:lang")]
    wish = Directives()
    for content in _of(meta, ("robots", agent.lower())):
        wish = wish.and_also(directives.from_meta(content))
    return Metadata(
        title=next(filter(None, map(title_line, (*elements.titles, *_of(meta, _TITLES), *elements.headings))), ""),
        language=next(filter(None, map(_language, (*languages, *_of(meta, ("content-language",))))), None),
        base_href=elements.base_href,
        canonical_hrefs=elements.canonical_hrefs,
        refresh=elements.refresh.url if elements.refresh else None,
        directives=wish,
        authors=_names((*described.authors, *_of(meta, _AUTHORS), *microdata.authors)),
        published=[
            *described.times("datePublished"),
            *_dates(meta, _PUBLISHED),
            *microdata.published,
            *_time_of_article(tree),
        ],
        modified=[*described.times("dateModified"), *_dates(meta, _MODIFIED), *microdata.modified],
    )


class _Elements:
    """Sorts the elements of a document, each read once."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.headings: list[str] = []
        self.base_href: str | None = None
        self.canonical_hrefs: list[str] = []
        self.refresh: Refresh | None = None
        self.meta: dict[str, list[str]] = {}
        self.described = _LinkedData()
        self.microdata = _Microdata()

    def read(self, node: LexborNode, tag: str, attributes: Mapping[str, str | None]) -> None:
        if tag == "meta":
            self._read_meta(attributes)
            if self.refresh is None and (attributes.get("http-equiv") or "").strip().lower() == "refresh":
                self._read_refresh(node, attributes["content"] or "")
        elif tag == "title" and not (node.parent and node.parent.tag == "svg"):
            self.titles.append(node.text())
        elif tag == "h1":
            self.headings.append(node.text())
        elif tag == "base" and self.base_href is None:
            self.base_href = attributes["href"] or ""
        elif tag == "link" and "canonical" in (attributes["rel"] or "").lower().split():
            self.canonical_hrefs.append(attributes["href"] or "")
        elif tag == "script" and (attributes["type"] or "").strip().lower() == "application/ld+json":
            self.described.read(node.text())
        if "itemprop" in attributes or tag in {"time", "a"}:
            self.microdata.read(node, attributes)

    def _read_refresh(self, node: LexborNode, content: str) -> None:
        """Read where the page leads; what is only for those without scripts leads nowhere."""
        above = node.parent
        while above is not None:
            if above.tag in {"noscript", "template"}:
                return
            above = above.parent
        self.refresh = parse_refresh(content)

    def _read_meta(self, attributes: Mapping[str, str | None]) -> None:
        for kind in ("name", "property", "itemprop", "http-equiv"):
            name = attributes.get(kind)
            if name:
                self.meta.setdefault(one_line(name).lower(), []).append(attributes["content"] or "")


class _Microdata:
    """Elements with itemprop (HTML 5.2.4: the value stands in content, datetime, or the text), and their older kin."""

    def __init__(self) -> None:
        self.authors: list[str] = []
        self.published: list[Candidate] = []
        self.modified: list[Candidate] = []

    def read(self, node: LexborNode, attributes: Mapping[str, str | None]) -> None:
        properties = (attributes.get("itemprop") or "").split()
        value = attributes.get("content") or attributes.get("datetime")
        if "author" in properties:
            self.authors.append(value or (node.css_first("[itemprop~=name]") or node).text())
        elif "author" in (attributes.get("rel") or "").lower().split():
            self.authors.append(node.text())
        if "datePublished" in properties:
            self.published.append(Candidate("itemprop datePublished", value or node.text()))
        elif "pubdate" in attributes:
            self.published.append(Candidate("time pubdate", value or node.text()))
        if "dateModified" in properties:
            self.modified.append(Candidate("itemprop dateModified", value or node.text()))


class _LinkedData:
    """JSON-LD: the objects that describe the page; one that is an article comes before the page it stands on."""

    def __init__(self) -> None:
        self._articles: list[Mapping[str, Any]] = []
        self._pages: list[Mapping[str, Any]] = []

    def read(self, text: str) -> None:
        waiting = [_json(text)]
        for _ in range(_MAX_OBJECTS):
            if not waiting:
                return
            value = waiting.pop()
            if isinstance(value, list):
                waiting.extend(reversed(value))
            elif isinstance(value, dict):
                types = value.get("@type")
                words = [word for word in (types if isinstance(types, list) else [types]) if isinstance(word, str)]
                if any(map(_ARTICLE_TYPES.fullmatch, words)):
                    self._articles.append(value)
                elif any(map(_PAGE_TYPES.fullmatch, words)):
                    self._pages.append(value)
                waiting.extend(value[key] for key in reversed(_NESTED) if key in value)

    @property
    def authors(self) -> list[str]:
        found: list[Any] = []
        for article in self._articles:
            authors = article.get("author")
            for author in authors if isinstance(authors, list) else [authors]:
                names = author.get("name") if isinstance(author, dict) else author
                found += names if isinstance(names, list) else [names]
        return [name for name in found if isinstance(name, str)]

    def times(self, name: str) -> Iterator[Candidate]:
        for described in (*self._articles, *self._pages):
            if isinstance(described.get(name), str):
                yield Candidate(f"json-ld {name}", described[name])


def _json(text: str) -> Any:
    """Read JSON as sites write it: in a comment, with line breaks in strings; None where it can't be read."""
    text = _HTML_COMMENT.sub("", text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _of(meta: Mapping[str, list[str]], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from meta.get(name, ())


def _dates(meta: Mapping[str, list[str]], names: Iterable[str]) -> Iterator[Candidate]:
    for name in names:
        for content in meta.get(name, ()):
            yield Candidate(f"meta {name}", content)


def _time_of_article(tree: LexborHTMLParser) -> list[Candidate]:
    """The first time element of a page that is one article; among several nobody knows whose it is."""
    times = tree.css("article time[datetime]")
    if not times or len(tree.css("article")) > 1:
        return []
    return [Candidate("time datetime", times[0].attributes["datetime"] or "")]


def _names(written: Iterable[str]) -> list[str]:
    """Names, each once; an author that is given as a URL has no name here."""
    names: dict[str, None] = {}
    for text in written:
        name = one_line(text)
        if name and len(name) <= _MAX_NAME_CHARACTERS and "://" not in name:
            names.setdefault(name)
    return list(names)[:_MAX_AUTHORS]


def _language(written: str | None) -> str | None:
    tag = (written or "").partition(",")[0].strip()
    return tag.replace("_", "-") if _TAG_OF_LANGUAGE.fullmatch(tag) else None
