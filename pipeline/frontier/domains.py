"""Domain book: the pace of each domain, how many of its tasks are out, and when the next may go."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

from pipeline.config import Frontier, Politeness
from pipeline.delivery.api import StateView
from pipeline.frontier import politeness
from pipeline.frontier.policy import CrawlPolicy, Policies
from pipeline.frontier.records import DOMAINS, Lane, Pace, pack_pace, unpack_pace


class Domain:
    """A domain while something of it waits or is out.

    Args:
        pace: what is known of its pace.

    Attributes:
        out: tasks given to fetch and not ended.
    """

    __slots__ = ("out", "pace")

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.out = 0


class DomainBook:
    """Domains by name, read from the state when they are asked for.

    Args:
        view: the partition's state.
        out: tasks out by domain.
    """

    def __init__(self, view: StateView, out: dict[str, int]) -> None:
        self._view = view
        self._domains: dict[str, Domain] = {}
        self._slow: set[str] = set()
        for name, count in out.items():
            self.get(name).out = count

    def get(self, name: str) -> Domain:
        """Return a domain; one that was never heard of has a fresh pace."""
        domain = self._domains.get(name)
        if domain is None:
            stored = self._view.get(DOMAINS, name.encode())
            domain = self._domains[name] = Domain(unpack_pace(stored) if stored else Pace())
            self._note_slow(name, domain.pace)
        return domain

    def out(self, name: str) -> int:
        """Return how many tasks of a domain are out; asking keeps nothing in memory."""
        domain = self._domains.get(name)
        return 0 if domain is None else domain.out

    def most_out(self, domains: int, looked_at: int) -> list[str]:
        """Return the domains of which most is out, at most so many, of those that are looked at."""
        counts = ((domain.out, name) for name, domain in itertools.islice(self._domains.items(), looked_at))
        return [name for out, name in heapq.nlargest(domains, counts) if out]

    def set_pace(self, name: str, pace: Pace) -> None:
        """Write a domain's pace where it has changed."""
        domain = self.get(name)
        if pace != domain.pace:
            domain.pace = pace
            self._view.put(DOMAINS, name.encode(), pack_pace(pace))
            self._note_slow(name, pace)

    def release(self, name: str) -> None:
        """Forget a domain of which nothing waits; one with tasks out stays."""
        domain = self._domains.get(name)
        if domain is not None and domain.out == 0:
            del self._domains[name]
            self._slow.discard(name)

    def slow(self) -> Iterator[tuple[str, Pace]]:
        """Return the domains that have a hold, or something else of their own that keeps requests apart."""
        return ((name, self._domains[name].pace) for name in self._slow)

    def _note_slow(self, name: str, pace: Pace) -> None:
        if pace.hold_until_ms or pace.crawl_delays_ms or pace.learned_ms or pace.share_ms:
            self._slow.add(name)
        else:
            self._slow.discard(name)


def granted_delay_ms(granted: Politeness) -> int:
    """Return the pause that every site is granted, whatever it asks for."""
    return math.ceil(granted.delay_s * 1000 - 1e-6)  # up, but 0.07 s is 70 ms


class Slots:
    """When a domain has a free slot for a task of a crawl.

    Args:
        domains: pace, and what is out.
        policies: what the crawls want.
        granted: what every site is granted.
        settings: window.
    """

    def __init__(self, domains: DomainBook, policies: Policies, granted: Politeness, settings: Frontier) -> None:
        self._domains = domains
        self._policies = policies
        self._delay_ms = granted_delay_ms(granted)
        self._response_factor = granted.response_factor
        self._window_ms = politeness.milliseconds(settings.window_s)
        self._window_max = settings.window_max

    def granted_ms(self, domain: str, policy: CrawlPolicy | None) -> int:
        """Return the pause between requests to a domain that was configured and asked for, for a crawl."""
        return politeness.delay_ms(self._delay_ms, policy.delay_ms if policy else None, self._domains.get(domain).pace)

    def learned_ms(self, domain: str, policy: CrawlPolicy | None) -> int:
        """Return the same with what the domain's answers have taught."""
        pace = self._domains.get(domain).pace
        return politeness.learned_delay_ms(self.granted_ms(domain, policy), pace, self._response_factor)

    def delay_ms(self, domain: str, policy: CrawlPolicy, now_ms: int) -> int:
        """Return the pause that fetch is to keep around a task that is given out now."""
        pace = self._domains.get(domain).pace
        return max(self.learned_ms(domain, policy), min(pace.share_ms, pace.share_until_ms - now_ms))

    def ready_ms(
        self, domain: str, due_ms: int, crawl: str, concurrency: int = 0, lane: Lane = Lane.NORMAL
    ) -> int | None:
        """Return when a task of a crawl that is due at `due_ms` may be given out; None while its domain has no slot.

        Args:
            domain: registrable domain.
            due_ms: when the task's own time comes.
            crawl: of the task.
            concurrency: most tasks of the domain that may be out when this one goes; 0 for the configured window.
            lane: of the task. An urgent one has a slot more, and goes out by the window ahead of the pause that its
                domain keeps: fetch lets it pass those of its domain that are out, when the pause ends.
        """
        policy = self._policies.get(crawl)
        if policy is None:
            return due_ms  # its turn sets it aside: the tasks of other crawls must not wait behind it
        state = self._domains.get(domain)
        delay_ms = self.learned_ms(domain, policy)
        is_urgent = lane is Lane.URGENT
        slots = politeness.slots(
            max(delay_ms, state.pace.share_ms), self._window_ms, self._window_max, concurrency, urgent=is_urgent
        )
        if state.out >= slots:
            return None
        allowed_ms = politeness.allowed_ms(state.pace, delay_ms)
        if is_urgent:
            allowed_ms = max(state.pace.hold_until_ms, allowed_ms - self._window_ms)  # a hold is kept by both clocks
        return max(due_ms, allowed_ms)

    def allowed_ms(self, domain: str, due_ms: int, policy: CrawlPolicy) -> int:
        """Return when the request of a task that is due at `due_ms` may begin."""
        return max(due_ms, politeness.allowed_ms(self._domains.get(domain).pace, self.learned_ms(domain, policy)))
