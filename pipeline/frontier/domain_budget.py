"""Budgets of domains: pages, pages per UTC day, bytes. Counted where the domain lives, so that they are exact."""

from __future__ import annotations

from pipeline.delivery.api import StateView
from pipeline.frontier.days import day_of, on_day
from pipeline.frontier.policy import CrawlPolicy
from pipeline.frontier.records import USAGE, PlaceKind, UsageRow, crawl_domain_key, pack_usage, unpack_usage
from pipeline.frontier.refusals import Refusal


class DomainBudget:
    """What each domain has used in each crawl; counted only where a limit is set, from then on.

    Pages are never exceeded: a task that is out is charged until it is known to have brought none. On a new day what is
    still out counts on it. The bytes of a page are known only when it has come: more than the budget is received by
    what was out when it was spent.

    Args:
        view: the partition's state.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view

    def get(self, crawl: str, domain: str) -> UsageRow:
        """Return what a domain has used."""
        stored = self._view.get(USAGE, crawl_domain_key(crawl, domain))
        return unpack_usage(stored) if stored else UsageRow()

    def refusal(self, policy: CrawlPolicy, crawl: str, domain: str) -> Refusal | None:
        """Return which budget of a domain is spent for good, None where none is."""
        pages, received = policy.max_pages_per_domain, policy.max_bytes_per_domain
        if pages is None and received is None:
            return None
        usage = self.get(crawl, domain)
        if pages is not None and usage.brought >= pages:
            return Refusal("domain_budget", pages, usage.brought)
        if received is not None and usage.bytes >= received:
            return Refusal("domain_bytes", received, usage.bytes)
        return None

    def holds(self, policy: CrawlPolicy, crawl: str, domain: str, now_ms: int) -> PlaceKind | None:
        """Return what holds a domain's next task, None where it may go: pages that are out, or this day's budget."""
        if not policy.counts_domain_pages:
            return None
        for kind in (PlaceKind.HELD_DOMAIN, PlaceKind.HELD_DAY):
            left = self.left(policy, kind, crawl, domain, now_ms)
            if left is not None and left <= 0:
                return kind
        return None

    def left(self, policy: CrawlPolicy, kind: PlaceKind, crawl: str, domain: str, now_ms: int) -> int | None:
        """Return how many tasks of a domain may still go out by the budget of a kind; None for no limit."""
        of_day = kind is PlaceKind.HELD_DAY
        limit = policy.max_pages_per_domain_per_day if of_day else policy.max_pages_per_domain
        if limit is None:
            return None
        usage = self.get(crawl, domain)
        if not of_day:
            return limit - usage.charged
        day, brought = on_day(usage.day, usage.brought_on_day, day_of(now_ms))
        if day < usage.day:  # the clock was wrong; from here on it is right
            self._put(crawl, domain, usage._replace(day=day))
        return limit - brought - (usage.charged - usage.brought)

    def charge(self, crawl: str, domain: str) -> None:
        """Take a page for a task that goes out."""
        usage = self.get(crawl, domain)
        self._put(crawl, domain, usage._replace(charged=usage.charged + 1))

    def settle(
        self, crawl: str, domain: str, now_ms: int, *, charged: bool, brought: bool, received_bytes: int = 0
    ) -> None:
        """Note how a task ended: with a page, or with its charge given back.

        Args:
            crawl: id of the crawl.
            domain: registrable domain.
            now_ms: now; the page counts on its day.
            charged: whether a page was taken for the task.
            brought: whether it brought one.
            received_bytes: of its body, where they are counted.
        """
        before = usage = self.get(crawl, domain)
        usage = usage._replace(bytes=usage.bytes + received_bytes)
        if charged and brought:
            day, count = on_day(usage.day, usage.brought_on_day, day_of(now_ms))
            usage = usage._replace(brought=usage.brought + 1, day=day, brought_on_day=count + 1)
        elif charged:
            usage = usage._replace(charged=usage.charged - 1)
        if usage != before:
            self._put(crawl, domain, usage)

    def _put(self, crawl: str, domain: str, usage: UsageRow) -> None:
        self._view.put(USAGE, crawl_domain_key(crawl, domain), pack_usage(usage))
