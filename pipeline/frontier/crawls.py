"""Counters of each crawl in one partition: for its end, its budget and for people.

How the counts of all partitions agree at the end of a crawl (see `pipeline.frontier.ending`):

- A task record counts as received where it is handled; one that is forwarded to the owner of its domain does not
  count where it is forwarded.
- A link record counts as received wherever it arrives. URLs in it that belong elsewhere go on in a link record of
  their own, which the forwarding partition adds to its `links_sent`.
- Outcomes that brought a page or said `redirected` count even when they are stale: the page or task record that fetch
  wrote with them exists.
- Later polls of recurring work, which never end, are left out of the counts of pages, redirects and links: every record
  that comes of a poll carries its number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from pipeline.delivery.api import StateView
from pipeline.errors import BugError
from pipeline.frontier.records import CRAWLS, PACKING, SEPARATOR

REPORT_INTERVAL_MS: Final = 1_000
"""Progress of a crawl is reported at most once in this time, but at once when nothing is left to do."""

_NUMBERS: Final = (
    "waiting", "held_budget", "held_domain", "held_unknown", "out",
    "tasks_received", "redirects_received", "redirects_sent", "pages_fetched", "pages_parsed", "links_received",
    "seen", "done", "failed", "grant", "asked", "granted_ms", "grant_day",
    "asked_bytes", "granted_bytes", "bytes_received", "recurring", "recurring_out", "pages_polled",
    "asked_day",
)  # fmt: skip
_PART_NUMBERS: Final = b"n"
_PART_LINKS: Final = b"l"
_PART_REFUSED: Final = b"r"
_ROW = struct.Struct(f">BB{len(_NUMBERS)}Q")
_COUNT = struct.Struct(">Q")
_REASON = struct.Struct(">BQ")
_values = attrgetter(*_NUMBERS)


@dataclass(slots=True)
class CrawlState:
    """What a partition counts of a crawl.

    Attributes:
        crawl: its id.
        waiting: tasks not given out yet, held ones included.
        held_budget: of these, held by the crawl's budgets.
        held_domain: held by the page budgets of their domain.
        held_unknown: tasks and records held because the crawl's definition is not known.
        out: tasks given to fetch and not ended.
        recurring: of the waiting ones, recurring work after its first poll, held ones left out.
        recurring_out: of those out, recurring work after its first poll.
        tasks_received: task records handled that a person or the API sent.
        redirects_received: task records handled that a redirect made.
        redirects_sent: outcomes that said redirected.
        pages_fetched: outcomes that brought a page.
        bytes_received: body bytes of all outcomes, as received.
        pages_parsed: parsed records received.
        pages_polled: outcomes of later polls that brought a page; they count nowhere else.
        links_received: link records received.
        seen: URLs known.
        done: URLs ended, by whatever outcome.
        failed: of these, those that failed.
        grant: pages of the crawl's budget that this partition may still spend.
        asked: pages it has asked the budget's keeper for.
        granted_ms: when a page was last granted or spent.
        grant_day: UTC day of whose budget these pages are, days since the epoch; 0 for none.
        asked_bytes: body bytes it has asked for.
        asked_day: UTC day it has asked pages for, days since the epoch; 0 for none.
        granted_bytes: body bytes granted to this partition in all; what was received counts against them.
        links_sent: link records announced, by target partition.
        refused: URLs refused, by reason.
        unreported: whether anything has changed since the last report.
        changed: parts to be written: numbers, links, refused.
    """

    crawl: str
    links_sent: list[int]
    waiting: int = 0
    held_budget: int = 0
    held_domain: int = 0
    held_unknown: int = 0
    out: int = 0
    tasks_received: int = 0
    redirects_received: int = 0
    redirects_sent: int = 0
    pages_fetched: int = 0
    pages_parsed: int = 0
    links_received: int = 0
    seen: int = 0
    done: int = 0
    failed: int = 0
    grant: int = 0
    asked: int = 0
    granted_ms: int = 0
    grant_day: int = 0
    asked_bytes: int = 0
    asked_day: int = 0
    granted_bytes: int = 0
    bytes_received: int = 0
    recurring: int = 0
    recurring_out: int = 0
    pages_polled: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    unreported: bool = False
    changed_links: bool = False
    changed_refused: bool = False
    reported_ms: int = 0
    reported_busy: bool = True

    @property
    def parked(self) -> int:
        """Tasks that wait for a budget or a definition."""
        return self.held_budget + self.held_domain + self.held_unknown

    @property
    def busy(self) -> bool:
        """Whether anything is left to do that nothing but time holds back; later polls never end, and don't count."""
        return self.out > self.recurring_out or self.waiting > self.parked + self.recurring

    @property
    def unspent_bytes(self) -> int:
        """Body bytes of the crawl's budget that this partition may still receive; below 0 what it received too much."""
        return self.granted_bytes - self.bytes_received

    @property
    def demand(self) -> int:
        """Tasks that a share of the crawl's budgets would serve."""
        return self.waiting - self.held_domain - self.held_unknown - self.recurring

    def refuse(self, reason: str) -> None:
        """Count a refused URL."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
        self.changed_refused = True

    def unrefuse(self, reason: str) -> None:
        """Take back the count of a URL whose refusal is judged again."""
        left = self.refused.get(reason, 0) - 1
        if left > 0:
            self.refused[reason] = left
        else:
            self.refused.pop(reason, None)
        self.changed_refused = True

    def announce(self, partition: int) -> None:
        """Count a link record sent to a partition."""
        self.links_sent[partition] += 1
        self.changed_links = True

    def progress(self, partition: int, now_ms: int) -> dict[str, Any]:
        """Return the `Progress` record of this moment."""
        return {
            "crawl": self.crawl,
            "partition": partition,
            "waiting": self.waiting,
            "parked": self.parked,
            "out": self.out,
            "recurring": self.recurring + self.recurring_out,
            "tasks_received": self.tasks_received,
            "redirects_received": self.redirects_received,
            "redirects_sent": self.redirects_sent,
            "pages_fetched": self.pages_fetched,
            "bytes_received": self.bytes_received,
            "pages_parsed": self.pages_parsed,
            "pages_polled": self.pages_polled,
            "links_sent": list(self.links_sent),
            "links_received": self.links_received,
            "seen": self.seen,
            "done": self.done,
            "failed": self.failed,
            "refused": dict(self.refused),
            "at_ms": now_ms,
        }


class CrawlBook:
    """Crawls by id, with what has changed since they were last written.

    Args:
        view: the partition's state.
        partitions: partition count, the length of `links_sent`.

    Attributes:
        granted: crawls of whose budgets this partition holds an unspent share.
    """

    def __init__(self, view: StateView, partitions: int) -> None:
        self._view = view
        self._partitions = partitions
        self._crawls: dict[str, CrawlState] = {}
        self._touched: dict[str, CrawlState] = {}
        self._unreported: dict[str, CrawlState] = {}
        for key, packed in view.items(CRAWLS):
            self._read(key, packed)
        self.granted = {crawl for crawl, state in self._crawls.items() if _holds_a_share(state)}

    def change(self, crawl: str) -> CrawlState:
        """Return a crawl's counters to be changed; `write` is due afterwards."""
        state = self._touched.get(crawl)
        if state is None:
            state = self._crawls.get(crawl)
            if state is None:
                state = self._crawls[crawl] = CrawlState(crawl, [0] * self._partitions)
            self._touched[crawl] = state
        return state

    def get(self, crawl: str) -> CrawlState | None:
        """Return a crawl's counters to look at."""
        return self._crawls.get(crawl)

    def states(self) -> Iterable[CrawlState]:
        """Return the counters of all crawls to look at."""
        return self._crawls.values()

    def touched(self) -> list[CrawlState]:
        """Return the crawls that may have changed since the last `write`."""
        return list(self._touched.values())

    def write(self) -> None:
        """Write what has changed."""
        for crawl, state in self._touched.items():
            state.unreported = True
            self._unreported[crawl] = state
            self._put(state)
        self._touched.clear()

    def report_ms(self) -> int | None:
        """Return when the next report is due, None for never."""
        return min((_report_ms(state) for state in self._unreported.values()), default=None)

    def reports(self, partition: int, now_ms: int) -> Iterator[dict[str, Any]]:
        """Return the `Progress` records that are due; they count as written."""
        due = [state for state in self._unreported.values() if _report_ms(state) <= now_ms]
        for state in due:
            state.unreported = False
            state.reported_ms = now_ms
            state.reported_busy = state.busy
            del self._unreported[state.crawl]
            self._put(state)
            yield state.progress(partition, now_ms)

    def _put(self, state: CrawlState) -> None:
        prefix = state.crawl.encode() + SEPARATOR
        self._view.put(CRAWLS, prefix + _PART_NUMBERS, _ROW.pack(PACKING, state.unreported, *_values(state)))
        if state.changed_links:
            state.changed_links = False
            row = bytes((PACKING,)) + b"".join(map(_COUNT.pack, state.links_sent))
            self._view.put(CRAWLS, prefix + _PART_LINKS, row)
        if state.changed_refused:
            state.changed_refused = False
            self._view.put(CRAWLS, prefix + _PART_REFUSED, _pack_refused(state.refused.items()))
        if _holds_a_share(state):
            self.granted.add(state.crawl)
        else:
            self.granted.discard(state.crawl)

    def _read(self, key: bytes, packed: bytes) -> None:
        crawl, part = key[:-2].decode(), key[-1:]
        if packed[0] != PACKING:
            raise BugError(f"counters of crawl {crawl!r} are of packing {packed[0]}; this version knows {PACKING}")
        state = self._crawls.get(crawl)
        if state is None:
            state = self._crawls[crawl] = CrawlState(crawl, [0] * self._partitions)
        if part == _PART_NUMBERS:
            _, unreported, *numbers = _ROW.unpack(packed)
            for name, number in zip(_NUMBERS, numbers, strict=True):
                setattr(state, name, number)
            if unreported:
                state.unreported = True
                self._unreported[crawl] = state
        elif part == _PART_LINKS:
            state.links_sent = [count for (count,) in _COUNT.iter_unpack(packed[1:])]
        else:
            state.refused = dict(_unpack_refused(packed))


def _holds_a_share(state: CrawlState) -> bool:
    return state.grant > 0 or state.unspent_bytes > 0


def _report_ms(state: CrawlState) -> int:
    if state.reported_busy and not state.busy:
        return 0
    return state.reported_ms + REPORT_INTERVAL_MS


def _pack_refused(refused: Iterable[tuple[str, int]]) -> bytes:
    row = bytes((PACKING,))
    for reason, count in refused:
        text = reason.encode()
        row += _REASON.pack(len(text), count) + text
    return row


def _unpack_refused(packed: bytes) -> Iterator[tuple[str, int]]:
    at = 1
    while at < len(packed):
        length, count = _REASON.unpack_from(packed, at)
        at += _REASON.size
        yield packed[at : (at := at + length)].decode(), count
