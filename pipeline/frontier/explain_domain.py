"""What a domain waits for and how much of it there is, read from the state of the partition that owns it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from pipeline.frontier.insight import MAX_COUNTED, Insight
from pipeline.frontier.parked import PARKED_FROM_MS
from pipeline.frontier.records import WAITING, Lane, PlaceKind, place_from_key
from pipeline.frontier.waiting import waiting_prefix
from pipeline.frontier.waits import Wait, delays_ms, domain_waits

MAX_CRAWLS_TOLD: Final = 100


class DomainInCrawl(NamedTuple):
    """What a domain has used of a crawl's budget for each domain.

    Attributes:
        crawl: id of the crawl.
        limit: pages; None for no limit.
        brought: pages brought; counted only where a limit is set.
        charged: these, and tasks that are out.
        held: tasks that the budget holds, at most `MAX_COUNTED`; None where they can't be counted.
    """

    crawl: str
    limit: int | None
    brought: int
    charged: int
    held: int | None


class DomainStanding(NamedTuple):
    """How a domain stands. Times are milliseconds since the epoch.

    Attributes:
        known: whether anything is kept of it.
        waiting: tasks by lane, at most `MAX_COUNTED` in each; None where they can't be counted.
        next_due_ms: when the own time of the first task of each lane comes; only lanes in which one waits.
        out: tasks given out and not ended.
        delays_ms: pauses between two requests that somebody wants, by who wants them, milliseconds.
        last_end_ms: end of the last request; 0 for none.
        hold_until_ms: no request before; 0 for none.
        window_until_ms: until when the site counts the requests that it still allows; 0 where it has not said so.
        backoff_level: incidents since the last good answer.
        backoff_since_ms: when the last of them was noted; 0 for none.
        parked: whether it must not be asked for longer than `PARKED_FROM_MS`.
        waits: what the next task waits for beside its own time, the latest first.
        crawls: those with a budget for each domain, at most `MAX_CRAWLS_TOLD`.
    """

    known: bool
    waiting: Mapping[str, int] | None
    next_due_ms: Mapping[str, int]
    out: int
    delays_ms: Mapping[str, int]
    last_end_ms: int
    hold_until_ms: int
    window_until_ms: int
    backoff_level: int
    backoff_since_ms: int
    parked: bool
    waits: tuple[Wait, ...]
    crawls: tuple[DomainInCrawl, ...]


def explain_domain(insight: Insight, domain: str, now_ms: int, most: int = MAX_COUNTED) -> DomainStanding:
    """Say how a domain stands.

    Args:
        insight: of the partition that owns it.
        domain: registrable domain.
        now_ms: now.
        most: tasks of a lane that are counted at most.
    """
    pace = insight.pace(domain)
    counts = {lane.name.lower(): insight.waiting(domain, lane, most=most) for lane in Lane}
    waiting = {lane: count for lane, count in counts.items() if count is not None} if insight.queue_is_whole else None
    due_ms = _next_due_ms(insight, domain) if insight.queue_is_whole else {}
    out = insight.out(domain)
    waits = tuple(domain_waits(insight, domain, None, now_ms))
    crawls = tuple(islice(_budgets(insight, domain), MAX_CRAWLS_TOLD))
    known = bool(out or any(pace) or due_ms or any(row.charged or row.held for row in crawls))
    return DomainStanding(
        known=known,
        waiting=waiting,
        next_due_ms=due_ms,
        out=out,
        delays_ms=delays_ms(insight, None, pace),
        last_end_ms=pace.last_end_ms,
        hold_until_ms=pace.hold_until_ms,
        window_until_ms=pace.share_until_ms,
        backoff_level=pace.backoff_level,
        backoff_since_ms=pace.backoff_began_ms,
        parked=any((wait.until_ms or 0) > now_ms + PARKED_FROM_MS for wait in waits),
        waits=waits,
        crawls=crawls,
    )


def _next_due_ms(insight: Insight, domain: str) -> dict[str, int]:
    prefix, due_ms = waiting_prefix(domain), {}
    for lane in Lane:
        first = next(insight.view.items(WAITING, prefix + bytes((lane,))), None)
        if first is not None:
            due_ms[lane.name.lower()] = place_from_key(PlaceKind.WAITING, first[0]).due_ms
    return due_ms


def _budgets(insight: Insight, domain: str) -> Iterator[DomainInCrawl]:
    for crawl in insight.crawls():
        policy = insight.policies.get(crawl)
        usage = insight.usage(crawl, domain)
        limit = None if policy is None else policy.max_pages_per_domain
        if limit is not None or usage.charged:
            yield DomainInCrawl(crawl, limit, usage.brought, usage.charged, insight.held(domain, crawl))
