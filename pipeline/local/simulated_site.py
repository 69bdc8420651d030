"""Words of the simulated web: what a site, a page and a link are. No bytes and no sockets."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pipeline.local.expectation import PathRule

Kind = Literal["front", "section", "article", "month", "file", "redirect", "broken"]
Charset = Literal["utf-8", "gb18030-meta", "gb18030-silent", "gb18030-lying"]
"""How a page's bytes are encoded and what is said of it: UTF-8, in the header; GB18030, told by the page alone, by
nobody, or contradicted by a header that says UTF-8."""

SLUGS = (
    "harbour", "river", "orchard", "granite", "lantern", "meadow", "cobalt", "willow", "saffron", "quarry",
    "beacon", "thicket", "marble", "estuary", "copper", "juniper", "hollow", "ridge", "amber", "weir",
)  # fmt: skip


class Link(NamedTuple):
    """A link as it is written and the canonical URL it means."""

    href: str
    url: str


Style = Literal["structured", "ratelimit", "x-delta", "x-epoch", "x-epoch-ms", "silent"]
"""How a limit is announced: `RateLimit`, `RateLimit-*`, `X-RateLimit-*` with seconds or a time, `X-Rate-Limit-*` with a
time in milliseconds, or not at all."""
Refusal = Literal["seconds", "date", "silent"]
"""How Retry-After is written in a refusal; silent: it is not there."""


class Limit(NamedTuple):
    """What a site allows.

    Attributes:
        requests: in each window; 0 for a site that refuses everything.
        window_s: from its first request, seconds.
        style: how it is announced.
        status: of a refusal.
        refusal: when a refused client may come again.
    """

    requests: int
    window_s: float
    style: Style
    status: int
    refusal: Refusal


class FirstAnswer(NamedTuple):
    """An answer that is given once, before the real one.

    Attributes:
        status: HTTP status.
        retry_after: None, or how Retry-After is written and for how many seconds.
    """

    status: int
    retry_after: tuple[Literal["seconds", "date"], int] | None = None


@dataclass(slots=True)
class Resource:
    """What a site answers with at one URL.

    Attributes:
        url: canonical, absolute, with the port.
        host: without the port.
        target: path and query.
        kind: `front`, `section`, `article` and `month` are HTML pages, `broken` always answers 500.
        level: links from the site's front page to here, on the way that is surely there; redirects don't count.
        title: of a page; unique in the web.
        links: of a page, in the order they are written.
        location: where a redirect leads, as its header says it.
        leads_to: the same, canonical.
        first_answers: what is answered before the real answer.
        delay_s: time until the answer, seconds.
        gzip: whether the body is sent with Content-Encoding: gzip.
        charset: of a page.
        body: of a file.
        content_type: of a file.
    """

    url: str
    host: str
    target: str
    kind: Kind
    level: int = 0
    title: str = ""
    links: list[Link] = field(default_factory=list)
    location: str = ""
    leads_to: str = ""
    first_answers: tuple[FirstAnswer, ...] = ()
    delay_s: float = 0.0
    gzip: bool = False
    charset: Charset = "utf-8"
    body: bytes = b""
    content_type: str = ""

    @property
    def is_page(self) -> bool:
        """Whether it is an HTML page, with status 200 in the end."""
        return self.kind in {"front", "section", "article", "month"}


@dataclass(slots=True)
class Site:
    """One registrable domain.

    Attributes:
        domain: the registrable domain.
        hosts: its hosts, without ports.
        front: its front page.
        resources: by URL. Calendar months aren't among them; what else isn't is answered with 404.
        sections: listing pages in order; every second one is the second page of a section.
        articles: all of them, in order of the listing pages.
        entrances: article URL -> the redirect through which alone it is found.
        robots: body of robots.txt on all its hosts; None for 404.
        rules: what that body means to the crawler, wildcards apart.
        denied: URLs that a rule with a wildcard forbids.
        crawl_delay_s: what that body asks for.
        calendar: its endless calendar may be crawled, is hidden by robots.txt, or isn't there.
        limit: how often it may be asked; None for as often as one likes.
    """

    domain: str
    hosts: list[str]
    front: Resource
    resources: dict[str, Resource] = field(default_factory=dict)
    sections: list[Resource] = field(default_factory=list)
    articles: list[Resource] = field(default_factory=list)
    entrances: dict[str, Resource] = field(default_factory=dict)
    robots: bytes | None = None
    rules: tuple[PathRule, ...] = ()
    denied: set[str] = field(default_factory=set)
    crawl_delay_s: float | None = None
    calendar: Literal["open", "hidden", "none"] = "none"
    limit: Limit | None = None

    def add(self, resource: Resource) -> Resource:
        """Put a resource at its URL."""
        self.resources[resource.url] = resource
        return resource

    @property
    def landing(self) -> list[Resource]:
        """Articles that other sites may link to: every second one that isn't behind a redirect."""
        return [article for article in self.articles[::2] if article.url not in self.entrances]


def site_name(index: int) -> str:
    """Return the registrable domain of a site, counted from 0."""
    return f"site{index + 1:04d}.test"


def seeded(*parts: object) -> random.Random:
    """Return a generator of one's own; equal parts give equal numbers in every process."""
    return random.Random("/".join(map(str, parts)))  # noqa: S311 - made-up pages, no secrets


def phrase(rng: random.Random) -> str:
    """Return three words, the first with a capital."""
    return " ".join(rng.sample(SLUGS, 3)).capitalize()
