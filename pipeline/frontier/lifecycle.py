"""The life of a URL in one partition: the moves between its states, each with its rows and its counts.

```
                 refuse                          give_out
   new ──────────────────> refused    waiting ────────────> out ──> done   (end)
    │                         │        ^  │ ^                │
    └──── claim ──────────────┴────────┘  │ └────────────────┘            (wait_again)
                                   hold   v
                                        held  ── release ──> waiting
```

Recurring work goes from out back to waiting, poll after poll (`next_poll`), or to held until its page is parsed.

Every move leaves rows, counters and what memory derives from them in agreement, so it is the only place that writes the
seen, waiting, held and outstanding tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pipeline.delivery.api import StateView
from pipeline.errors import BugError
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.domains import DomainBook
from pipeline.frontier.held import Group, HeldTable
from pipeline.frontier.outcomes import SUCCESSES
from pipeline.frontier.outstanding import Outstanding
from pipeline.frontier.records import (
    Lane,
    OutRow,
    Place,
    PlaceKind,
    SeenRow,
    Task,
    UrlState,
    unpack_task,
    url_row_key,
)
from pipeline.frontier.seen import SeenTable
from pipeline.frontier.waiting import Sequence, WaitingQueue

_HELD_COUNTER: Final = {
    PlaceKind.HELD_BUDGET: "held_budget",
    PlaceKind.HELD_DOMAIN: "held_domain",
    PlaceKind.HELD_DAY: "held_domain",
    PlaceKind.HELD_UNKNOWN: "held_unknown",
    PlaceKind.RAW_UNKNOWN: "held_unknown",
}


class Lifecycle:
    """Moves of URLs between their states.

    Args:
        view: the partition's state.
        crawls: counters.
        seen: what is known of every URL.
        waiting: tasks that wait for their time or domain.
        outstanding: tasks that are out.
        domains: pace and slots of domains.
    """

    def __init__(
        self,
        view: StateView,
        *,
        crawls: CrawlBook,
        seen: SeenTable,
        waiting: WaitingQueue,
        outstanding: Outstanding,
        domains: DomainBook,
    ) -> None:
        self._crawls = crawls
        self._seen = seen
        self._waiting = waiting
        self._outstanding = outstanding
        self._domains = domains
        self._sequence = Sequence(view)
        self.held = HeldTable(view)
        """What is held, to be looked at."""

    # ---- from new, refused or done

    def claim(self, task: Task, due_ms: int, known: SeenRow | None, kind: PlaceKind = PlaceKind.WAITING) -> None:
        """Take a URL in: it waits from now on.

        Args:
            task: with the deliveries of its former life, if any.
            due_ms: when it may go.
            known: its row where it was refused or done before.
            kind: `HELD_PARSE` where its last page is not parsed yet.
        """
        state = self._crawls.change(task.crawl)
        self._forget(state, known)
        state.seen += 1
        self._wait(state, task, kind, due_ms)

    def refuse(self, crawl: str, key: bytes, depth: int, reason: str, known: SeenRow | None) -> None:
        """Record a refusal.

        Args:
            crawl: id of the crawl.
            key: row key of the URL.
            depth: it was found at.
            reason: why.
            known: its row where it was refused before.
        """
        state = self._crawls.change(crawl)
        self._forget(state, known)
        state.seen += 1
        state.refuse(reason)
        deliveries = known.deliveries if known else 0
        self._seen.put(key, SeenRow(UrlState.REFUSED, depth, deliveries, reason=reason))

    # ---- while pending

    def task_of(self, crawl: str, domain: str, key: bytes, row: SeenRow) -> OutRow | Task:
        """Return what is pending for a URL: the row of what is out, or the task that waits or is held."""
        out = self._outstanding.get(key)
        if out is not None:
            return out
        place = _place(row)
        if place.kind is PlaceKind.WAITING:
            return self._waiting.read(domain, place)
        return self.held.read(domain, crawl, place)

    def rewrite_out(self, out: OutRow, row: SeenRow) -> None:
        """Write what has changed in a task that is out: its depth, its attempts, its delivery."""
        self._outstanding.put(out)
        self._seen.put(out.task.row_key, replace(row, depth=out.task.depth))

    def move(self, task: Task, row: SeenRow, lane: Lane, due_ms: int) -> None:
        """Write what has changed in a task that waits or is held, and put it where lane and time say."""
        place = _place(row)
        target = place
        if (lane, due_ms) != (place.lane, place.due_ms):
            target = Place(place.kind, lane, due_ms, self._sequence.next())
        if place.kind is PlaceKind.WAITING:
            self._waiting.put(task, target)
            if target != place:
                self._waiting.remove(task.domain, place)
        else:
            self.held.put(task, target)
            if target != place:
                self.held.remove(task, place)
        self._seen.put(task.row_key, replace(row, depth=task.depth, place=target))

    # ---- from waiting

    def give_out(self, out: OutRow, place: Place) -> None:
        """Let a waiting task go: it takes a slot of its domain."""
        self._domains.get(out.task.domain).out += 1  # before the queue reckons the domain's next turn
        self._waiting.remove(out.task.domain, place)
        self._outstanding.put(out)
        state = self._crawls.change(out.task.crawl)
        state.waiting -= 1
        state.out += 1
        _count_place(state, out.task, PlaceKind.WAITING, -1)
        state.recurring_out += out.task.is_later_poll

    def give_out_again(self, out: OutRow) -> None:
        """Write a task that was given out anew; it keeps its slot."""
        self._outstanding.put(out)

    def hold(self, task: Task, place: Place, kind: PlaceKind) -> None:
        """Set a waiting task aside."""
        self._waiting.remove(task.domain, place)
        held = place._replace(kind=kind)
        self.held.put(task, held)
        self._place(task, held)
        state = self._crawls.change(task.crawl)
        _count_place(state, task, PlaceKind.WAITING, -1)
        _count_place(state, task, kind, 1)

    def refuse_waiting(self, task: Task, place: Place, reason: str) -> None:
        """Refuse a task that waits or is held: what it waited for will not come."""
        state = self._crawls.change(task.crawl)
        state.waiting -= 1
        if place.kind is PlaceKind.WAITING:
            self._waiting.remove(task.domain, place)
        else:
            self.held.remove(task, place)
        _count_place(state, task, place.kind, -1)
        state.refuse(reason)
        row = SeenRow(UrlState.REFUSED, task.depth, task.deliveries, reason=reason)
        self._seen.put(task.row_key, row)

    # ---- from held

    def release(self, group: Group, count: int) -> int:
        """Let up to `count` tasks of a group wait again, in order. Return how many there were."""
        rows = self.held.first(group, count)
        for place, packed in rows:
            task = unpack_task(packed)
            self._let_wait(task, place, place._replace(kind=PlaceKind.WAITING))
        return len(rows)

    def release_at(self, task: Task, row: SeenRow, due_ms: int) -> None:
        """Let one held task wait again, until `due_ms`."""
        place = _place(row)
        self._let_wait(task, place, Place(PlaceKind.WAITING, task.lane, due_ms, self._sequence.next()))

    def refuse_held(self, group: Group, count: int, reason: str) -> int:
        """Refuse up to `count` tasks of a group, in order. Return how many there were."""
        rows = self.held.first(group, count)
        for place, packed in rows:
            self.refuse_waiting(unpack_task(packed), place, reason)
        return len(rows)

    def hold_record(self, crawl: str, record: bytes) -> None:
        """Keep a record of an unknown crawl."""
        place = Place(PlaceKind.RAW_UNKNOWN, Lane.NORMAL, 0, self._sequence.next())
        self.held.put_raw(crawl, place, record)
        state = self._crawls.change(crawl)
        state.waiting += 1
        _count_held(state, PlaceKind.RAW_UNKNOWN, 1)

    def take_records(self, crawl: str, count: int) -> list[bytes]:
        """Take up to `count` records of a crawl that is known now, in order."""
        rows = self.held.first(Group(PlaceKind.RAW_UNKNOWN, crawl), count)
        state = self._crawls.change(crawl)
        for place, _ in rows:
            self.held.remove_raw(crawl, place)
            state.waiting -= 1
            _count_held(state, PlaceKind.RAW_UNKNOWN, -1)
        return [record for _, record in rows]

    # ---- from out

    def wait_again(self, out: OutRow, due_ms: int) -> None:
        """Take a task back: it waits again, its slot is free."""
        state = self._free_slot(out)
        self._wait(state, out.task, PlaceKind.WAITING, due_ms)

    def next_poll(self, out: OutRow, task: Task, kind: PlaceKind, due_ms: int) -> None:
        """End a poll of recurring work; its slot is free.

        Args:
            out: the poll.
            task: the next one.
            kind: `WAITING`, or `HELD_PARSE` where the page must be parsed first.
            due_ms: when the next one may go.
        """
        state = self._free_slot(out)
        self._wait(state, task, kind, due_ms)

    def end(self, out: OutRow, outcome: str, status: int, reason: str, *, failed: bool) -> None:
        """End a task: its slot is free, its URL done."""
        state = self._free_slot(out)
        state.done += 1
        state.failed += failed
        task = out.task
        row = SeenRow(UrlState.DONE, task.depth, task.deliveries, outcome=outcome, status=status, reason=reason)
        self._seen.put(task.row_key, row)

    # ---- parts of moves

    def _free_slot(self, out: OutRow) -> CrawlState:
        self._outstanding.remove(out.task.row_key)
        self._domains.get(out.task.domain).out -= 1
        self._waiting.touch(out.task.domain)
        state = self._crawls.change(out.task.crawl)
        state.out -= 1
        state.recurring_out -= out.task.is_later_poll
        return state

    def _wait(self, state: CrawlState, task: Task, kind: PlaceKind, due_ms: int) -> None:
        place = Place(kind, task.lane, due_ms, self._sequence.next())
        if kind is PlaceKind.WAITING:
            self._waiting.put(task, place)
        else:
            self.held.put(task, place)
        self._place(task, place)
        state.waiting += 1
        _count_place(state, task, kind, 1)

    def _let_wait(self, task: Task, place: Place, waiting: Place) -> None:
        self.held.remove(task, place)
        self._waiting.put(task, waiting)
        self._place(task, waiting)
        state = self._crawls.change(task.crawl)
        _count_place(state, task, place.kind, -1)
        _count_place(state, task, PlaceKind.WAITING, 1)

    def _place(self, task: Task, place: Place) -> None:
        key = url_row_key(task.crawl, task.key)
        self._seen.put(key, SeenRow(UrlState.PENDING, task.depth, task.deliveries, place))

    def _forget(self, state: CrawlState, known: SeenRow | None) -> None:
        """Take back the counts of a URL's former life."""
        if known is None:
            return
        state.seen -= 1
        if known.state is UrlState.REFUSED:
            state.unrefuse(known.reason)
        elif known.state is UrlState.DONE:
            state.done -= 1
            state.failed -= known.outcome not in SUCCESSES


def _count_place(state: CrawlState, task: Task, kind: PlaceKind, number: int) -> None:
    """Count a task that stands at a place: what holds it, or that it is recurring work between two polls."""
    if kind in _HELD_COUNTER:
        _count_held(state, kind, number)
    elif task.is_later_poll:
        state.recurring += number


def _count_held(state: CrawlState, kind: PlaceKind, number: int) -> None:
    counter = _HELD_COUNTER[kind]
    setattr(state, counter, getattr(state, counter) + number)


def _place(row: SeenRow) -> Place:
    if row.place is None:
        raise BugError("a pending URL has a place")
    return row.place
