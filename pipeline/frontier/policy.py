"""A crawl's definition, ready to be asked: scope, budgets, depth, delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pipeline.config import Frontier
from pipeline.frontier.scope import Scope

DEFAULT_CRAWL: Final = "default"
"""The crawl of tasks that name none: always known, with the configured limits, unless it is defined like any other."""

Definition = Mapping[str, Any]
"""A `Crawl` record."""


class CrawlPolicy:
    """What a crawl allows.

    Args:
        definition: a `Crawl` record; None for a crawl without a definition of its own.
        settings: limits for crawls that say nothing.

    Attributes:
        max_pages: pages in all; None for no limit.
        max_depth: links followed from a start point; None for no limit.
        max_pages_per_domain: pages per registrable domain; None for no limit.
        delay_ms: pause between requests to a domain; None for the configured one.
    """

    def __init__(self, definition: Definition | None, settings: Frontier) -> None:
        said: Definition = definition or {}
        self._scope = Scope(said.get("scope", ()))
        self.max_pages: int | None = said.get("max_pages")
        self.max_depth: int | None = _first(said.get("max_depth"), settings.max_depth)
        self.max_pages_per_domain: int | None = _first(said.get("max_pages_per_domain"), settings.max_pages_per_domain)
        self.delay_ms: int | None = said.get("delay_ms")

    def in_scope(self, url: str) -> bool:
        """Return whether a canonical URL belongs to the crawl."""
        return self._scope.allows(url)


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


def _first(said: int | None, configured: int | None) -> int | None:
    return configured if said is None else said
