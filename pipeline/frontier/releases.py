"""Releases: held tasks go on once what held them has changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pipeline.delivery.api import Output
from pipeline.frontier.budget import CHUNK_PAGES, CrawlBudget
from pipeline.frontier.claims import Claims
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.days import day_of
from pipeline.frontier.domain_budget import DomainBudget
from pipeline.frontier.held import BY_DOMAIN, Group
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.policy import CrawlPolicy, Policies
from pipeline.frontier.records import PlaceKind
from pipeline.frontier.refusals import Refusal

ALL = sys.maxsize


class Releases:
    """Looks at groups of held tasks when something about them has changed, in bounded steps.

    Args:
        life: moves of URLs.
        claims: for records that waited for their crawl's definition.
        crawls: counters, with the pages granted.
        policies: what the crawls allow.
        crawl_budget: shares of the crawls' budgets.
        domain_budget: what domains have used.
    """

    def __init__(
        self,
        life: Lifecycle,
        claims: Claims,
        crawls: CrawlBook,
        policies: Policies,
        *,
        crawl_budget: CrawlBudget,
        domain_budget: DomainBudget,
    ) -> None:
        self._life = life
        self._claims = claims
        self._crawls = crawls
        self._policies = policies
        self._crawl_budget = crawl_budget
        self._domain_budget = domain_budget
        self._noted: dict[Group, int] = dict.fromkeys(life.held.groups, ALL)
        self._looked_at_with: dict[str, CrawlPolicy | None] = {}
        self._day = 0

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, group: Group, most: int = ALL) -> None:
        """Note that up to `most` tasks of a group may go on."""
        if group in self._life.held.groups:
            self._noted[group] = min(ALL, self._noted.get(group, 0) + most)

    def note_new_policies(self) -> None:
        """Note the held tasks of crawls whose definition has become known or has changed."""
        for group in self._life.held.groups:
            if self._policies.get(group.crawl) is not self._looked_at_with.get(group.crawl):
                self._noted[group] = ALL

    def note_new_day(self, now_ms: int) -> None:
        """Note the tasks that may wait for another day, where the day is another one than at the last look."""
        today = day_of(now_ms)
        if today != self._day:
            self._day = today
            for group in self._life.held.groups:
                if group.kind in {PlaceKind.HELD_DAY, PlaceKind.HELD_BUDGET}:
                    self._noted[group] = ALL

    def run(self, most: int, now_ms: int) -> Iterator[Output]:
        """Let go of what is held no longer, at most `most` tasks; the rest stays noted."""
        for group in sorted(self._noted):
            if most <= 0:
                return
            policy = self._looked_at_with[group.crawl] = self._policies.get(group.crawl)
            wanted = self._noted.pop(group)
            if policy is None:
                continue
            allowed = min(wanted, self._allowed(group, policy, now_ms))
            if allowed == 0 and group.kind is PlaceKind.HELD_BUDGET:
                self._crawls.change(group.crawl)  # it may have to ask anew
            taken = min(allowed, most)
            if group.kind is PlaceKind.RAW_UNKNOWN:
                for raw in self._life.take_records(group.crawl, taken):
                    yield from self._claims.take_held(group.crawl, raw, policy, now_ms)
            elif (refusal := self._spent(group, policy)) is not None:
                self._life.refuse_held(group, taken, refusal.reason)
            else:
                self._life.release(group, taken)
            most -= taken
            if taken < allowed and group in self._life.held.groups:
                self._noted[group] = wanted - taken

    def _allowed(self, group: Group, policy: CrawlPolicy, now_ms: int) -> int:
        """Return how many tasks of a group may go on."""
        if group.kind is PlaceKind.HELD_BUDGET:
            state = self._crawls.get(group.crawl)
            if not (policy.grants_pages or policy.max_bytes is not None):
                return ALL
            if state is None or not self._crawl_budget.may_spend(state, policy, now_ms):
                return 0
            return state.grant if policy.grants_pages else pages_in(state)
        if group.kind in BY_DOMAIN and self._spent(group, policy) is None:
            left = self._domain_budget.left(policy, group.kind, group.crawl, group.domain, now_ms)
            return ALL if left is None else max(0, left)
        return ALL

    def _spent(self, group: Group, policy: CrawlPolicy) -> Refusal | None:
        """Return why what a group waits for will never come, None where it may."""
        if group.kind not in BY_DOMAIN:
            return None
        return self._domain_budget.refusal(policy, group.crawl, group.domain)


def pages_in(state: CrawlState) -> int:
    """Estimate how many pages the unspent bytes of a crawl are, by the size of those that came; at least a few."""
    return max(CHUNK_PAGES, state.unspent_bytes * state.pages_fetched // max(1, state.bytes_received))
