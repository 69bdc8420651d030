"""What people are told about a partition is read from here: its state and its settings, nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pipeline.config import Frontier, Politeness
from pipeline.delivery.api import StateView
from pipeline.frontier.held import BY_DOMAIN, Group, held_prefix
from pipeline.frontier.policy import Policies
from pipeline.frontier.records import (
    CRAWLS,
    DOMAINS,
    HELD,
    SEPARATOR,
    USAGE,
    WAITING,
    Lane,
    Pace,
    Place,
    PlaceKind,
    Task,
    UsageRow,
    crawl_domain_key,
    place_key,
    unpack_pace,
    unpack_task,
    unpack_usage,
)
from pipeline.frontier.waiting import waiting_prefix

MAX_COUNTED: Final = 10_000
"""Rows that are counted for one answer at most; a backlog of millions must not hold the partition up for a person."""
MAX_CRAWLS: Final = 10_000
"""Crawls in which a URL is looked for when none is named."""


@dataclass(frozen=True, slots=True)
class Insight:
    """A partition, to be looked at.

    Attributes:
        view: its state.
        policies: what the crawls allow.
        politeness: settings.
        frontier: settings.
        out: how many tasks of a domain are out.
        decode_task: for `Task` records, which a crawl without a definition keeps as they came.
        queue_is_whole: whether all waiting and held tasks are in the view, so that they can be counted.
    """

    view: StateView
    policies: Policies
    politeness: Politeness
    frontier: Frontier
    out: Callable[[str], int]
    decode_task: Callable[[bytes], dict[str, Any]]
    queue_is_whole: bool = True

    def crawls(self) -> Iterator[str]:
        """Return the crawls that the partition has heard of, at most `MAX_CRAWLS`."""
        return islice(self._crawls(), MAX_CRAWLS)

    def _crawls(self) -> Iterator[str]:
        start = b""
        while (row := next(self.view.items(CRAWLS, b"", start), None)) is not None:
            crawl, _, _ = row[0].partition(SEPARATOR)
            yield crawl.decode()
            start = crawl + b"\x01"

    def pace(self, domain: str) -> Pace:
        """Return what is known of a domain's pace."""
        stored = self.view.get(DOMAINS, domain.encode())
        return unpack_pace(stored) if stored else Pace()

    def usage(self, crawl: str, domain: str) -> UsageRow:
        """Return what a domain has used of its budget in a crawl."""
        stored = self.view.get(USAGE, crawl_domain_key(crawl, domain))
        return unpack_usage(stored) if stored else UsageRow()

    def task(self, domain: str, crawl: str, place: Place) -> Task | None:
        """Return the task that waits or is held at a place; None where the view does not hold it."""
        if place.kind is PlaceKind.WAITING:
            packed = self.view.get(WAITING, waiting_prefix(domain) + place_key(place))
        else:
            group = Group(place.kind, crawl, domain if place.kind in BY_DOMAIN else "")
            packed = self.view.get(HELD, held_prefix(group) + place_key(place))
        return None if packed is None else unpack_task(packed)

    def waiting(self, domain: str, lane: Lane, before: Place | None = None, most: int = MAX_COUNTED) -> int | None:
        """Count the waiting tasks of a domain's lane.

        Args:
            domain: registrable domain.
            lane: of the tasks.
            before: only those that stand before this one.
            most: where the count ends.

        Returns:
            How many, `most` for as many or more; None where they can't be counted.
        """
        if not self.queue_is_whole:
            return None
        prefix = waiting_prefix(domain)
        end = None if before is None else prefix + place_key(before)
        return _count(self.view, WAITING, prefix + bytes((lane,)), end, most)

    def held(self, domain: str, crawl: str, most: int = MAX_COUNTED) -> int | None:
        """Count the tasks that the budgets of a domain hold in a crawl, as `waiting` does."""
        if not self.queue_is_whole:
            return None
        groups = (Group(kind, crawl, domain) for kind in BY_DOMAIN)
        return min(most, sum(_count(self.view, HELD, held_prefix(group), None, most) for group in groups))


def _count(view: StateView, table: str, prefix: bytes, end: bytes | None, most: int) -> int:
    count = 0
    for key, _ in islice(view.items(table, prefix), most):
        if end is not None and key >= end:
            break
        count += 1
    return count
