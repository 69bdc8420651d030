"""What a right crawl of a known web gives: the yardstick of the checker, plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.web.url import canonical_form


class PathRule(NamedTuple):
    """One robots.txt rule without wildcards: a prefix of path and query, and whether it allows."""

    prefix: str
    allow: bool


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a right crawl publishes and asks, known before it starts.

    Attributes:
        documents: canonical URL of each document -> its title; None where the page's bytes leave the title open.
        domains: host without port -> registrable domain, for each host of the web.
        crawl_delay_s: registrable domain -> Crawl-delay of its robots.txt files, seconds; only where they give one.
        rules: host without port -> rules that its robots.txt gives the crawler.
        disallowed: canonical URLs that are linked or redirected to and must not be asked, whatever `rules` say (rules
            with wildcards are told by their URLs).
    """

    documents: Mapping[str, str | None]
    domains: Mapping[str, str] = field(default_factory=dict)
    crawl_delay_s: Mapping[str, float] = field(default_factory=dict)
    rules: Mapping[str, tuple[PathRule, ...]] = field(default_factory=dict)
    disallowed: frozenset[str] = frozenset()

    def is_disallowed(self, host: str, target: str) -> bool:
        """Tell whether a request must not be made.

        Args:
            host: as in the Host header, with its port where it has one.
            target: path and query.
        """
        page = canonical_form(f"http://{host}{target}")
        rules = self.rules.get(host.partition(":")[0], ())
        return page in self.disallowed or is_denied(rules, page.removeprefix(f"http://{host}"))

    def domain(self, host: str) -> str:
        """Return the registrable domain of a host (with or without port); the host itself where the web has none."""
        name = host.partition(":")[0].lower()
        return self.domains.get(name, name)


def is_denied(rules: tuple[PathRule, ...], target: str) -> bool:
    """Apply rules to path and query: the longest prefix decides, allow wins a tie (RFC 9309 2.2.2)."""
    matching = [(len(rule.prefix), rule.allow) for rule in rules if target.startswith(rule.prefix)]
    return bool(matching) and not max(matching)[1]
