"""Sites that bound how often they are asked: announced in another way by each, or not at all."""

from __future__ import annotations

import math
from email.utils import formatdate
from typing import Final, NamedTuple

from pipeline.local.simulated_site import Limit, Link, Resource, Site, phrase, seeded, site_name

SECOND_NS: Final = 10**9
WINDOW_S: Final = 3.0
REQUESTS: Final = 4
CRAWL_DELAY_S: Final = 1.0

LIMITS: Final[tuple[Limit | None, ...]] = (
    None,  # a Crawl-delay instead
    Limit(REQUESTS, WINDOW_S, "structured", 429, "seconds"),
    Limit(REQUESTS, WINDOW_S, "ratelimit", 429, "date"),
    Limit(REQUESTS, WINDOW_S, "x-delta", 429, "seconds"),
    Limit(REQUESTS, WINDOW_S, "x-epoch", 429, "seconds"),
    Limit(REQUESTS, WINDOW_S, "x-epoch-ms", 429, "seconds"),
    Limit(REQUESTS, WINDOW_S, "silent", 429, "seconds"),
    Limit(REQUESTS, WINDOW_S, "silent", 503, "date"),
    Limit(REQUESTS, WINDOW_S, "silent", 429, "silent"),
    Limit(0, WINDOW_S, "silent", 429, "silent"),
)
"""One for each kind of site; the last is one that never answers anything else."""


class Told(NamedTuple):
    """What a request is told of a limit.

    Attributes:
        is_refused: whether it gets no page.
        fields: header fields.
        not_before_ns: earliest next request that these ask for, nanoseconds since the epoch; None for none.
    """

    is_refused: bool
    fields: tuple[str, ...]
    not_before_ns: int | None


class Quota:
    """Counts the requests to a site in windows that begin with their first request.

    Args:
        limit: of the site.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self._used = 0
        self._reset_ns = 0

    def ask(self, now_ns: int, *, may_refuse: bool) -> Told:
        """Count a request; one that may not be refused (robots.txt) counts as any other."""
        limit = self.limit
        if now_ns >= self._reset_ns:
            self._used, self._reset_ns = 0, now_ns + int(limit.window_s * SECOND_NS)
        self._used += 1
        if self._used > limit.requests and may_refuse:
            fields, until_ns = self._refusal(now_ns)
            return Told(True, fields, until_ns)
        if limit.style == "silent":
            return Told(False, (), None)
        remaining = max(0, limit.requests - self._used)
        fields, until_ns = self._announcement(remaining, now_ns)
        return Told(False, fields, None if remaining else until_ns)

    def _refusal(self, now_ns: int) -> tuple[tuple[str, ...], int | None]:
        match self.limit.refusal:
            case "seconds":
                seconds = math.ceil((self._reset_ns - now_ns) / SECOND_NS)
                return (f"Retry-After: {seconds}",), now_ns + seconds * SECOND_NS
            case "date":
                at_s = math.ceil(self._reset_ns / SECOND_NS)
                return (f"Retry-After: {formatdate(at_s, usegmt=True)}",), at_s * SECOND_NS
            case "silent":
                return (), None

    def _announcement(self, remaining: int, now_ns: int) -> tuple[tuple[str, ...], int]:
        """Header fields, and when they say that the window ends: rounded up, as sites do."""
        seconds = math.ceil((self._reset_ns - now_ns) / SECOND_NS)
        by_pause_ns = now_ns + seconds * SECOND_NS
        at_s = math.ceil(self._reset_ns / SECOND_NS)
        at_ms = math.ceil(self._reset_ns / 10**6)
        most, window_s = self.limit.requests, math.ceil(self.limit.window_s)
        match self.limit.style:
            case "structured":
                policy = f'RateLimit-Policy: "default";q={most};w={window_s}'
                return (policy, f'RateLimit: "default";r={remaining};t={seconds}'), by_pause_ns
            case "ratelimit":
                return _three("RateLimit", most, remaining, seconds), by_pause_ns
            case "x-epoch":
                return _three("X-RateLimit", most, remaining, at_s), at_s * SECOND_NS
            case "x-epoch-ms":
                return _three("X-Rate-Limit", most, remaining, at_ms), at_ms * 10**6
            case _:
                return _three("X-RateLimit", most, remaining, seconds), by_pause_ns


def _three(family: str, most: int, remaining: int, reset: int) -> tuple[str, ...]:
    return (f"{family}-Limit: {most}", f"{family}-Remaining: {remaining}", f"{family}-Reset: {reset}")


def plan_limited_sites(seed: int, hosts: int, pages: int, port: int) -> list[Site]:
    """Plan a web of sites with limits, of the kinds in `LIMITS` in turn; the front page of each links to all others.

    Args:
        seed: equal seeds give equal webs.
        hosts: domains, at least 1.
        pages: pages of each, at least 1.
        port: port in all URLs.
    """
    return [_site(seed, index, pages, port) for index in range(hosts)]


def _site(seed: int, index: int, pages: int, port: int) -> Site:
    domain = site_name(index)
    rng = seeded(seed, "site", index)
    limit = LIMITS[index % len(LIMITS)]
    articles = []
    for number in range(pages):
        target = f"/a/{number}" if number else "/"
        page = Resource(f"http://{domain}:{port}{target}", domain, target, "article", min(number, 1))
        page.title = f"{phrase(rng)}, page {number} of {domain}"
        articles.append(page)
    articles[0].links = [Link(page.target, page.url) for page in articles[1:]]
    delay_s = None if limit else CRAWL_DELAY_S
    rule = f"Crawl-delay: {delay_s:g}" if delay_s else "Disallow:"
    site = Site(domain, [domain], articles[0], articles=articles, robots=f"User-agent: *\n{rule}\n".encode())
    site.crawl_delay_s, site.limit = delay_s, limit
    site.resources = {page.url: page for page in articles}
    return site
