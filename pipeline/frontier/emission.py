"""Emission: tasks whose time has come, whose domain has a slot and whose budget has a page go to a lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pipeline import topics
from pipeline.delivery.api import REPLAYS_HEADER, Output
from pipeline.frontier.budget import CrawlBudget
from pipeline.frontier.crawls import CrawlBook
from pipeline.frontier.domain_budget import DomainBudget
from pipeline.frontier.domains import DomainBook, Slots
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.policy import CrawlPolicy, Policies
from pipeline.frontier.records import Lane, OutRow, PlaceKind
from pipeline.frontier.recurring import RecurringWork
from pipeline.frontier.waiting import Turn, WaitingQueue

LANE_TOPICS: Final = {
    Lane.URGENT: topics.LANE_URGENT.name,
    Lane.NORMAL: topics.LANE_NORMAL.name,
    Lane.BULK: topics.LANE_BULK.name,
}


class Emission:
    """Gives tasks out, domain after domain.

    Args:
        partition: number of this partition.
        waiting: tasks that wait.
        domains: pace, and what is out.
        slots: when a domain has a free slot.
        crawls: counters, with the pages granted.
        policies: what the crawls allow.
        crawl_budget: shares of the crawls' budgets.
        domain_budget: what domains have used.
        life: moves of URLs.
        recurring: what is known of polled URLs.
        encode: encoder of `FrontierTask` records.
    """

    def __init__(
        self,
        partition: int,
        *,
        waiting: WaitingQueue,
        domains: DomainBook,
        slots: Slots,
        crawls: CrawlBook,
        policies: Policies,
        crawl_budget: CrawlBudget,
        domain_budget: DomainBudget,
        life: Lifecycle,
        recurring: RecurringWork,
        encode: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        self._partition = partition
        self._waiting = waiting
        self._domains = domains
        self._slots = slots
        self._crawls = crawls
        self._policies = policies
        self._crawl_budget = crawl_budget
        self._domain_budget = domain_budget
        self._life = life
        self._recurring = recurring
        self._encode = encode

    def run(self, turns: int, now_ms: int) -> Iterator[Output]:
        """Give out what may go, one task a turn, urgent ones first, domains in the order in which they became ready."""
        for _ in range(turns):
            domain = self._waiting.pop_ready(now_ms)
            if domain is None:
                return
            turn = self._waiting.choose(domain, now_ms)
            if turn is None:
                self._waiting.touch(domain)
                continue
            yield from self._take_turn(domain, turn, now_ms)  # whatever comes of it, the task waits no longer
            self.release(domain)

    def again(self, out: OutRow, now_ms: int) -> Iterator[Output]:
        """Give out a task anew whose lane record is lost; its slot and its charges stay."""
        policy = self._policies.get(out.task.crawl)
        if policy is None:
            return
        out.task.deliveries += 1
        out.emitted_ms = now_ms
        self._life.give_out_again(out)
        yield self._lane_record(out, policy, now_ms)

    def release(self, domain: str) -> None:
        """Forget a domain of which nothing waits any more."""
        if domain not in self._waiting:
            self._domains.release(domain)

    def _take_turn(self, domain: str, turn: Turn, now_ms: int) -> Iterator[Output]:
        """Let a task go, or set it aside where a budget or a definition is missing."""
        task = self._waiting.read(domain, turn.place)
        policy = self._policies.get(task.crawl)
        if policy is None:
            self._life.hold(task, turn.place, PlaceKind.HELD_UNKNOWN)
            return
        refusal = self._domain_budget.refusal(policy, task.crawl, domain)
        if refusal is not None:
            self._life.refuse_waiting(task, turn.place, refusal.reason)
            return
        state = self._crawls.change(task.crawl)
        held_by = self._domain_budget.holds(policy, task.crawl, domain, now_ms)
        if held_by is None and not self._crawl_budget.may_spend(state, policy, now_ms):
            held_by = PlaceKind.HELD_BUDGET
        if held_by is not None:
            self._life.hold(task, turn.place, held_by)
            return
        day = self._crawl_budget.spend(state, policy, now_ms)
        if policy.counts_domain_pages:
            self._domain_budget.charge(task.crawl, domain)
        task.deliveries += 1
        out = OutRow(task, now_ms, turn.lane, policy.grants_pages, policy.counts_domain_pages, day)
        self._life.give_out(out, turn.place)
        yield self._lane_record(out, policy, self._slots.allowed_ms(domain, turn.place.due_ms, policy))

    def _lane_record(self, out: OutRow, policy: CrawlPolicy, not_before_ms: int) -> Output:
        task = out.task
        known = self._recurring.get(task.row_key) if task.handling.poll or task.deliveries > 1 else None
        etag, last_modified = self._recurring.validators(known, out.emitted_ms) if known else (None, None)
        record = {
            "crawl": task.crawl,
            "url": task.url,
            "url_key": task.key,
            "delivery": task.deliveries,
            "attempt": task.attempts,
            "priority": task.priority,
            "depth": task.depth,
            "source": task.source,
            "submitted_at_ms": task.submitted_at_ms,
            "emitted_at_ms": out.emitted_ms,
            "not_before_ms": not_before_ms,
            "delay_ms": self._slots.delay_ms(task.domain, policy, out.emitted_ms),
            "timeout_ms": task.timeout_ms,
            "redirects": list(task.redirects),
            "concurrency": task.concurrency,
            **task.handling._asdict(),
            "etag": etag,
            "last_modified": last_modified,
            "known_content_hashes": list(known.hashes) if known else [],
        }
        replays = ((REPLAYS_HEADER, str(task.replays).encode()),) if task.replays else ()
        return Output(LANE_TOPICS[out.lane], self._encode(record), task.domain.encode(), self._partition, replays)
