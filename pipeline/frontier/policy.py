"""A crawl's definition, ready to be asked: scope, traps, budgets, depth, delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pipeline.config import Frontier
from pipeline.frontier.refusals import Refusal
from pipeline.frontier.scope import Scope
from pipeline.frontier.traps import TrapLimits, trap

DEFAULT_CRAWL: Final = "default"
"""The crawl of tasks that name none: always known, with the configured limits, unless it is defined like any other."""

Definition = Mapping[str, Any]
"""A `Crawl` record."""


class CrawlPolicy:
    """What a crawl allows. A limit that is None is no limit.

    Args:
        definition: a `Crawl` record; None for a crawl without a definition of its own.
        settings: limits for crawls that say nothing.

    Attributes:
        max_pages: pages in all.
        max_pages_per_day: pages given out on a UTC day.
        max_bytes: body bytes in all, as received.
        max_depth: links followed from a start point.
        max_pages_per_domain: pages per registrable domain.
        max_pages_per_domain_per_day: pages per registrable domain and UTC day.
        max_bytes_per_domain: body bytes per registrable domain, as received.
        delay_ms: pause between requests to a domain; None for the configured one.
        scope: which URLs belong to the crawl.
        trap_limits: what looks like a trap.
    """

    def __init__(self, definition: Definition | None, settings: Frontier) -> None:
        said: Definition = definition or {}

        def limit(name: str) -> int | None:
            own: int | None = said.get(name)
            configured: int | None = getattr(settings, name)
            return configured if own is None else own

        self.max_pages = limit("max_pages")
        self.max_pages_per_day = limit("max_pages_per_day")
        self.max_bytes = limit("max_bytes")
        self.max_depth = limit("max_depth")
        self.max_pages_per_domain = limit("max_pages_per_domain")
        self.max_pages_per_domain_per_day = limit("max_pages_per_domain_per_day")
        self.max_bytes_per_domain = limit("max_bytes_per_domain")
        self.delay_ms: int | None = said.get("delay_ms")
        self.scope = Scope(said.get("scope", ()))
        self.trap_limits = TrapLimits(
            settings.max_path_segments,
            settings.max_parameters,
            settings.calendar_past_years,
            settings.calendar_future_years,
        )

    @property
    def grants_pages(self) -> bool:
        """Whether a task needs a page of the crawl's budget to go out."""
        return self.max_pages is not None or self.max_pages_per_day is not None

    @property
    def counts_domain_pages(self) -> bool:
        """Whether a task is charged to its domain when it goes out."""
        return self.max_pages_per_domain is not None or self.max_pages_per_domain_per_day is not None


def why(
    policy: CrawlPolicy, url: str, source: str, depth: int | None, now_ms: int, *, max_depth: int | None = None
) -> Refusal | None:
    """Return why a link is refused by what it says itself, or None; budgets and counts of a site are judged elsewhere.

    Args:
        policy: of its crawl.
        url: canonical.
        source: name of the source that found it.
        depth: links followed from a start point; None where it does not matter, as for the target of a redirect.
        now_ms: now.
        max_depth: what the link's own start point allows, where it said so; the lower of both limits holds.
    """
    refusal = trap(url, policy.trap_limits, datetime.fromtimestamp(now_ms / 1000, UTC).year)
    if refusal is not None:
        return refusal
    if depth is not None:
        limits = [limit for limit in (policy.max_depth, max_depth) if limit is not None]
        if limits and depth > min(limits):
            return Refusal("depth", min(limits), depth)
    return policy.scope.refusal(url, source)


class Policies:
    """Policies by crawl id; a definition is compiled once, and anew when another one takes its place.

    Args:
        definitions: returns a crawl's definition, None while nobody has told it.
        settings: limits for crawls that say nothing.
    """

    def __init__(self, definitions: Callable[[str], Definition | None], settings: Frontier) -> None:
        self._definitions = definitions
        self._settings = settings
        self._compiled: dict[str, tuple[Definition | None, CrawlPolicy]] = {}

    def get(self, crawl: str) -> CrawlPolicy | None:
        """Return the policy of a crawl, None while it is not known."""
        definition = self._definitions(crawl)
        if definition is None and crawl != DEFAULT_CRAWL:
            return None
        known = self._compiled.get(crawl)
        if known is not None and known[0] is definition:
            return known[1]
        policy = CrawlPolicy(definition, self._settings)
        self._compiled[crawl] = (definition, policy)
        return policy
