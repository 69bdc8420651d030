"""Releases: held tasks go on once what held them has changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pipeline.delivery.api import Output
from pipeline.frontier.budget import DomainBudget
from pipeline.frontier.claims import Claims
from pipeline.frontier.crawls import CrawlBook
from pipeline.frontier.held import Group
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.policy import CrawlPolicy, Policies
from pipeline.frontier.records import PlaceKind

ALL = sys.maxsize


class Releases:
    """Looks at groups of held tasks when something about them has changed, in bounded steps.

    Args:
        life: moves of URLs.
        claims: for records that waited for their crawl's definition.
        crawls: counters, with the pages granted.
        policies: what the crawls allow.
        domain_budget: pages of domains.
    """

    def __init__(
        self, life: Lifecycle, claims: Claims, crawls: CrawlBook, policies: Policies, domain_budget: DomainBudget
    ) -> None:
        self._life = life
        self._claims = claims
        self._crawls = crawls
        self._policies = policies
        self._domain_budget = domain_budget
        self._noted: dict[Group, int] = dict.fromkeys(life.held.groups, ALL)
        self._looked_at_with: dict[str, CrawlPolicy | None] = {}

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

    def run(self, most: int, now_ms: int) -> Iterator[Output]:
        """Let go of what is held no longer, at most `most` tasks; the rest stays noted."""
        for group in sorted(self._noted):
            if most <= 0:
                return
            policy = self._looked_at_with[group.crawl] = self._policies.get(group.crawl)
            wanted = self._noted.pop(group)
            if policy is None:
                continue
            allowed = min(wanted, self._allowed(group, policy))
            if allowed == 0 and group.kind is PlaceKind.HELD_BUDGET:
                self._crawls.change(group.crawl)  # it may have to ask for pages anew
            taken = min(allowed, most)
            if group.kind is PlaceKind.RAW_UNKNOWN:
                for raw in self._life.take_records(group.crawl, taken):
                    yield from self._claims.take_held(group.crawl, raw, policy, now_ms)
            elif self._is_spent(group, policy):
                self._life.refuse_held(group, taken, "domain_budget")
            else:
                self._life.release(group, taken)
            most -= taken
            if taken < allowed and group in self._life.held.groups:
                self._noted[group] = wanted - taken

    def _allowed(self, group: Group, policy: CrawlPolicy) -> int:
        """Return how many tasks of a group may go on."""
        if group.kind is PlaceKind.HELD_BUDGET and policy.max_pages is not None:
            state = self._crawls.get(group.crawl)
            return state.grant if state is not None else 0
        limit = policy.max_pages_per_domain
        if group.kind is PlaceKind.HELD_DOMAIN and limit is not None:
            pages = self._domain_budget.get(group.crawl, group.domain)
            return ALL if pages.brought >= limit else max(0, limit - pages.charged)
        return ALL

    def _is_spent(self, group: Group, policy: CrawlPolicy) -> bool:
        """Return whether what a group waits for will never come."""
        limit = policy.max_pages_per_domain
        if group.kind is not PlaceKind.HELD_DOMAIN or limit is None:
            return False
        return self._domain_budget.get(group.crawl, group.domain).brought >= limit
