"""Waiting queue: tasks by domain, lane and time, in the state; in memory only the head of each lane of each domain.

A step costs a look-up and a move in the heap of domains, however many tasks wait: a domain with a million URLs takes
the same memory as one with a single URL.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Final, NamedTuple

from pipeline.delivery.api import StateView
from pipeline.errors import BugError
from pipeline.frontier.records import (
    META,
    PLACE_BYTES,
    SEPARATOR,
    WAITING,
    Lane,
    Place,
    PlaceKind,
    Task,
    pace_of_task,
    pack_task,
    place_from_key,
    place_key,
    unpack_task,
)
from pipeline.frontier.turns import Turns

AGEING_TURNS: Final = 8
"""A lane with a task that could go gets at least every eighth turn of its domain, whatever stands in better lanes; so
do, of all turns, domains without an urgent task."""
SEQUENCE_BLOCK: Final = 1_024
"""Sequence numbers reserved by one write."""
_SEQUENCE_KEY: Final = b"sequence"


def waiting_prefix(domain: str) -> bytes:
    """Return how the keys of a domain's rows in `WAITING` begin; lane, time and sequence follow."""
    return domain.encode() + SEPARATOR


class Head(NamedTuple):
    """The first task of a lane of a domain.

    Attributes:
        due_ms: when it may go.
        sequence: order among tasks due together.
        crawl: its crawl, on which its delay depends.
        concurrency: most requests to the domain under way when it starts; 0 for the configured number.
    """

    due_ms: int
    sequence: int
    crawl: str
    concurrency: int


class Turn(NamedTuple):
    """Whose turn it is in a domain.

    Attributes:
        place: of the task.
        lane: the lane it goes out on: its own, or one better for a bulk task whose turn came by age.
    """

    place: Place
    lane: Lane


class Sequence:
    """Numbers that rise over the life of a partition; some are skipped when it is opened anew.

    Args:
        view: the partition's state.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view
        stored = view.get(META, _SEQUENCE_KEY)
        self._next = self._reserved = int.from_bytes(stored, "big") if stored else 0

    def next(self) -> int:
        """Return the next number."""
        if self._next == self._reserved:
            self._reserved += SEQUENCE_BLOCK
            self._view.put(META, _SEQUENCE_KEY, self._reserved.to_bytes(8, "big"))
        self._next += 1
        return self._next - 1


class _Waiting:
    """What memory holds of a domain with waiting tasks."""

    __slots__ = ("heads", "passed_over", "served_ms")

    def __init__(self) -> None:
        self.heads: list[Head | None] = [None] * len(Lane)
        self.passed_over = [0] * len(Lane)
        """Turns that went to better lanes since this one had its last, while it could have gone."""
        self.served_ms = 0


class WaitingQueue:
    """Tasks that wait for their time or their domain.

    Args:
        view: the partition's state.
        ready_ms: when a task of (domain, due time, crawl, concurrency, lane) may go, None while the domain has no free
            slot.
    """

    def __init__(self, view: StateView, ready_ms: Callable[[str, int, str, int, Lane], int | None]) -> None:
        self._view = view
        self._ready_ms = ready_ms
        self._domains: dict[str, _Waiting] = {}
        self._urgent, self._others = Turns(), Turns()
        """By the urgent head and by the best of the others; a domain may be in both."""
        self._others_passed_over = 0
        """Turns in a row that went to urgent tasks while another one could have gone."""
        self._load()

    def __contains__(self, domain: str) -> bool:
        return domain in self._domains

    def put(self, task: Task, place: Place) -> None:
        """Write a task at its place, or what has changed in it."""
        self._view.put(WAITING, waiting_prefix(task.domain) + place_key(place), pack_task(task))
        waiting = self._domains.get(task.domain)
        if waiting is None:
            waiting = self._domains[task.domain] = _Waiting()
        head = Head(place.due_ms, place.sequence, task.crawl, task.concurrency)
        first = waiting.heads[place.lane]
        if first is None or head < first:
            waiting.heads[place.lane] = head
            self.touch(task.domain)

    def read(self, domain: str, place: Place) -> Task:
        """Return the task at a place.

        Raises:
            BugError: there is none.
        """
        row = self._view.get(WAITING, waiting_prefix(domain) + place_key(place))
        if row is None:
            raise BugError(f"no task of {domain} waits at {place}")
        return unpack_task(row)

    def remove(self, domain: str, place: Place) -> None:
        """Take a task away."""
        prefix, end = waiting_prefix(domain), place_key(place)
        self._view.delete(WAITING, prefix + end)
        waiting = self._domains[domain]
        first = waiting.heads[place.lane]
        if first is None or (first.due_ms, first.sequence) != (place.due_ms, place.sequence):
            return
        # Nothing stands before the head: to start behind it saves the store from stepping over what was deleted there.
        lane_prefix = prefix + end[:1]
        following = next(self._view.items(WAITING, lane_prefix, prefix + end + SEPARATOR), None)
        waiting.heads[place.lane] = None if following is None else _head(*following)
        self.touch(domain)

    def __len__(self) -> int:
        return len(self._domains)

    def longest(self, domains: int, looked_at: int) -> list[tuple[int, str]]:
        """Return the domains whose first task has been due for longest, as (when its time came, domain).

        Args:
            domains: how many are wanted.
            looked_at: how many are looked at, at most: all memory holds is stepped over.
        """
        names = itertools.islice(self._domains, looked_at)
        return heapq.nsmallest(domains, ((due, name) for name in names if (due := self.due_ms(name)) is not None))

    def due_ms(self, domain: str) -> int | None:
        """Return when the own time of a domain's first task comes, None where none waits."""
        waiting = self._domains.get(domain)
        heads = () if waiting is None else waiting.heads
        return min((head.due_ms for head in heads if head is not None), default=None)

    def count(self, domain: str, most: int) -> int:
        """Return how many tasks of a domain wait, at most `most`: each is stepped over."""
        return sum(1 for _ in itertools.islice(self._view.items(WAITING, waiting_prefix(domain)), max(0, most)))

    def touch(self, domain: str) -> None:
        """Reckon anew when a domain's turn is: its heads, its pace or its slots have changed."""
        waiting = self._domains.get(domain)
        if waiting is None:
            return
        moments = [self._head_ms(domain, lane, head) for lane, head in zip(Lane, waiting.heads, strict=True)]
        # A domain that had its turn stands behind those that are ready and had none.
        ready = [None if moment is None else max(moment, waiting.served_ms) for moment in moments]
        self._urgent.set(domain, ready[Lane.URGENT])
        self._others.set(domain, min((moment for moment in ready[Lane.NORMAL :] if moment is not None), default=None))
        if not any(waiting.heads):
            del self._domains[domain]

    def next_ms(self) -> int | None:
        """Return when the next domain's turn is, None for never."""
        moments = (self._urgent.first_ms(), self._others.first_ms())
        return min((moment for moment in moments if moment is not None), default=None)

    def pop_ready(self, now_ms: int) -> str | None:
        """Return a domain whose turn has come, None where there is none; `remove` or `touch` puts it back.

        Domains with an urgent task go first, but every eighth turn is another one's.
        """
        others_ms = self._others.first_ms()
        if others_ms is None or others_ms > now_ms:
            domain = self._urgent.pop(now_ms)
        elif self._others_passed_over < AGEING_TURNS - 1 and (domain := self._urgent.pop(now_ms)) is not None:
            self._others_passed_over += 1
        else:
            self._others_passed_over = 0
            domain = self._others.pop(now_ms)
        if domain is not None:
            self._domains[domain].served_ms = now_ms
        return domain

    def choose(self, domain: str, now_ms: int) -> Turn | None:
        """Return which task of a domain goes next, None where none can.

        The best lane goes first; a lane that was passed over `AGEING_TURNS` - 1 times goes before it, bulk before
        normal. An aged bulk task goes out on the normal lane, so that it ages in fetch's slots too. The counts are
        memory alone: opening the partition starts them anew.
        """
        waiting = self._domains.get(domain)
        if waiting is None:
            return None
        ready: list[Lane] = []
        for lane in Lane:
            moment = self._head_ms(domain, lane, waiting.heads[lane])
            if moment is not None and moment <= now_ms:
                ready.append(lane)
        if not ready:
            return None
        aged = [lane for lane in ready if waiting.passed_over[lane] >= AGEING_TURNS - 1]
        lane = max(aged) if aged else min(ready)
        for other in ready:
            if other > lane:
                waiting.passed_over[other] += 1
        waiting.passed_over[lane] = 0
        head = waiting.heads[lane]
        if head is None:  # ruled out above
            return None
        place = Place(PlaceKind.WAITING, lane, head.due_ms, head.sequence)
        return Turn(place, Lane.NORMAL if aged and lane is Lane.BULK else lane)

    def _head_ms(self, domain: str, lane: Lane, head: Head | None) -> int | None:
        """Return when the first task of a lane may go, None for never."""
        return None if head is None else self._ready_ms(domain, head.due_ms, head.crawl, head.concurrency, lane)

    def _load(self) -> None:
        """Find the head of each lane of each domain, by leaping from lane to lane."""
        start = b""
        while (row := next(self._view.items(WAITING, b"", start), None)) is not None:
            key, _ = row
            domain = key[: -PLACE_BYTES - 1].decode()
            lane = key[-PLACE_BYTES]
            self._domains.setdefault(domain, _Waiting()).heads[lane] = _head(*row)
            start = key[:-PLACE_BYTES] + bytes((lane + 1,))
        for domain in list(self._domains):
            self.touch(domain)


def _head(key: bytes, row: bytes) -> Head:
    place = place_from_key(PlaceKind.WAITING, key)
    return Head(place.due_ms, place.sequence, *pace_of_task(row))
