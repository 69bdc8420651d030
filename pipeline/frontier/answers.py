"""What a partition answers to people: one mapping for each question, as JSON takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from pipeline.frontier.explain import explain
from pipeline.frontier.explain_domain import explain_domain
from pipeline.frontier.insight import Insight
from pipeline.frontier.overview import Overview
from pipeline.frontier.politeness import milliseconds
from pipeline.frontier.waits import Wait
from pipeline.web.url import url_key

MAX_DOMAINS: Final = 200
"""Domains of each kind that a partition tells of at most: its answer is one record."""


class Surveyed(Protocol):
    """A partition of the frontier."""

    def overview(self, domains: int, now: float) -> Overview:
        """Return what is under way, with so many domains of each kind."""
        ...


class Looked(Protocol):
    """A partition of the frontier."""

    def insight(self) -> Insight:
        """Return what may be looked at."""
        ...


def answer_explain(partition: Looked, argument: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Answer what `explain_rows` answers, from a partition at work."""
    return explain_rows(partition.insight(), argument, now)


def answer_top(partition: Surveyed, argument: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Say what is under way.

    Args:
        partition: at work.
        argument: `domains`, how many are wanted of each kind.
        now: seconds since the epoch.

    Returns:
        `totals` and `domains`, see `Overview`.
    """
    seen = partition.overview(min(argument["domains"], MAX_DOMAINS), now)
    return {"totals": dict(seen.totals), "domains": [row._asdict() for row in seen.domains]}


def explain_rows(insight: Insight, argument: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Say how a URL or a domain stands.

    Args:
        insight: of the partition that owns the domain.
        argument: `domain`, the registrable domain; for a URL `url`, canonical, and `crawl`, None for all.
        now: seconds since the epoch.

    Returns:
        `crawls`: a row for each crawl that knows the URL (`Standing`), and `domain`: `DomainStanding`.
    """
    now_ms, domain, url = milliseconds(now), argument["domain"], argument.get("url")
    standings = explain(insight, domain, url, url_key(url), now_ms, argument.get("crawl")) if url else []
    about = explain_domain(insight, domain, now_ms)
    return {
        "crawls": [{**asdict(row), "waits": _waits(row.waits)} for row in standings],
        "domain": {
            **about._asdict(),
            "waits": _waits(about.waits),
            "crawls": [row._asdict() for row in about.crawls],
        },
    }


def _waits(waits: tuple[Wait, ...]) -> list[dict[str, Any]]:
    return [wait._asdict() for wait in waits]
