"""How the rows of the frontier's state are packed; the first byte of each is the version of the packing.

Tables (one letter, as `StateView` takes them):

| table | key | value |
|---|---|---|
| `SEEN` | crawl, 0, URL key | `SeenRow` |
| `WAITING` | domain, 0, lane, due (ms), sequence | `Task` |
| `HELD` | kind, crawl, 0, [domain, 0,] lane, due (ms), sequence | `Task`, or a raw record of an unknown crawl |
| `OUT` | crawl, 0, URL key | `OutRow` |
| `DOMAINS` | domain | `Pace` |
| `CRAWLS` | crawl, 0, part | counters, see `pipeline.frontier.crawls` |
| `GIVEN` | crawl | `GivenRow`, only in the partition that keeps the crawl's budget |
| `USAGE` | crawl, 0, domain | `UsageRow`, only where a domain budget is set |
| `VARIANTS` | crawl, 0, kind, hash | a count and the day it began, see `pipeline.frontier.variants` |
| `RECURRING` | crawl, 0, URL key | `Recurrence`, see `pipeline.frontier.recurrence` |
| `META` | name | the sequence; how far the seen table was looked through |

Numbers in keys are big-endian, so that the order of keys is the order of lanes and times. Neither crawls nor domains
contain the byte 0 that ends them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from pipeline.errors import BugError
from pipeline.frontier.handling import PLAIN, Handling, pack_handling, unpack_handling

SEEN: Final = "s"
WAITING: Final = "w"
HELD: Final = "h"
OUT: Final = "o"
DOMAINS: Final = "d"
CRAWLS: Final = "c"
GIVEN: Final = "g"
USAGE: Final = "p"
VARIANTS: Final = "v"
RECURRING: Final = "r"
META: Final = "m"
TABLES: Final = (SEEN, WAITING, HELD, OUT, DOMAINS, CRAWLS, GIVEN, USAGE, VARIANTS, RECURRING, META)
"""All tables of the frontier, for whoever opens the store."""

PACKING: Final = 1
PACKING_WITH_TAIL: Final = 2
"""Of a task of which more is known than of one that was found as a link: its row ends with that."""
SEPARATOR: Final = b"\0"
KEY_BYTES: Final = 16


class Lane(IntEnum):
    """Lanes, the most pressing first; the number is part of keys."""

    URGENT = 0
    NORMAL = 1
    BULK = 2


def lane_of(priority: int) -> Lane:
    """Return the lane of a priority: 1 urgent, 2 and 3 normal, 4 and 5 bulk."""
    if priority <= 1:
        return Lane.URGENT
    return Lane.NORMAL if priority <= 3 else Lane.BULK


class UrlState(IntEnum):
    """What has become of a URL; the number is part of rows."""

    PENDING = 1
    """Waiting, held or out: the other tables say which."""
    DONE = 2
    REFUSED = 3


class PlaceKind(IntEnum):
    """Where a task that is not out stands; the number is part of keys and rows."""

    WAITING = 0
    HELD_BUDGET = 1
    """The crawl's budgets: nothing is granted to this partition."""
    HELD_DOMAIN = 2
    """The domain's page budget: its last pages are out."""
    HELD_UNKNOWN = 3
    """Nobody has told the crawl's definition."""
    RAW_UNKNOWN = 4
    """A record of an unknown crawl, as it came."""
    HELD_DAY = 5
    """The domain's page budget of this day."""
    HELD_PARSE = 6
    """The page of the URL's last poll is not parsed yet."""


class Place(NamedTuple):
    """Where a task that is not out stands.

    Attributes:
        kind: table and reason.
        lane: its lane.
        due_ms: when it may go, milliseconds since the epoch.
        sequence: order among tasks due together.
    """

    kind: PlaceKind
    lane: Lane
    due_ms: int
    sequence: int


_PLACE = struct.Struct(">BQQ")
PLACE_BYTES: Final = _PLACE.size


def place_key(place: Place) -> bytes:
    """Return the end of a row's key: lane, due time, sequence."""
    return _PLACE.pack(place.lane, place.due_ms, place.sequence)


def place_from_key(kind: PlaceKind, end: bytes) -> Place:
    """Inverse of `place_key`; `end` may be a whole key."""
    lane, due_ms, sequence = _PLACE.unpack(end[-PLACE_BYTES:])
    return Place(kind, Lane(lane), due_ms, sequence)


def url_row_key(crawl: str, url_key: bytes) -> bytes:
    """Return the key of a URL's rows in `SEEN` and `OUT`."""
    return crawl.encode() + SEPARATOR + url_key


def crawl_domain_key(crawl: str, domain: str) -> bytes:
    """Return the key of what is counted for one domain in one crawl."""
    return crawl.encode() + SEPARATOR + domain.encode()


@dataclass(slots=True)
class Task:
    """A wish to fetch one URL, claimed by this partition.

    Attributes:
        crawl: id of its crawl.
        url: wire URL, as it was first found.
        key: 16-byte key of the canonical URL.
        domain: registrable domain.
        priority: 1 to 5.
        depth: links followed from a start point.
        source: name of the source package or sender.
        submitted_at_ms: when it was wished, or its link found.
        born_ms: when it was claimed, or may first be fetched: its age counts from here.
        timeout_ms: total time allowed for a fetch; 0 for the configured one.
        redirects: wire URLs that led here, the oldest first.
        attempts: attempts that failed.
        deliveries: emissions so far.
        replays: how often it came back from the dead letters.
        concurrency: most requests to its domain under way when it starts; 0 for the configured number.
        handling: what else its sender said.
    """

    crawl: str
    url: str
    key: bytes
    domain: str
    priority: int
    depth: int
    source: str
    submitted_at_ms: int
    born_ms: int
    timeout_ms: int = 0
    redirects: tuple[str, ...] = ()
    attempts: int = 0
    deliveries: int = 0
    replays: int = 0
    concurrency: int = 0
    handling: Handling = PLAIN

    @property
    def row_key(self) -> bytes:
        """Key of its rows in `SEEN` and `OUT`."""
        return url_row_key(self.crawl, self.key)

    @property
    def is_later_poll(self) -> bool:
        """Whether it is recurring work that has had its first poll: its crawl may end without it."""
        return self.handling.poll > 1

    @property
    def lane(self) -> Lane:
        """The lane of its priority."""
        return lane_of(self.priority)


# version, priority, depth, submitted, born, timeout, attempts, deliveries, concurrency, then lengths of crawl, domain,
# URL, source, number of redirects, URL key; the texts follow in that order, then the tail.
_TASK = struct.Struct(">BBIQQIIIBHHIHH16s")
_CONCURRENCY_AT, _CRAWL_BYTES_AT = 8, 9
_LENGTH = struct.Struct(">I")
_REPLAYS = struct.Struct(">I")


def pack_task(task: Task) -> bytes:
    """Pack a task; the crawl comes first among its texts, so that `pace_of_task` is cheap."""
    crawl, domain, url, source = task.crawl.encode(), task.domain.encode(), task.url.encode(), task.source.encode()
    has_tail = task.replays > 0 or task.handling is not PLAIN
    head = _TASK.pack(
        PACKING_WITH_TAIL if has_tail else PACKING,
        task.priority,
        task.depth,
        task.submitted_at_ms,
        task.born_ms,
        task.timeout_ms,
        task.attempts,
        task.deliveries,
        task.concurrency,
        len(crawl),
        len(domain),
        len(url),
        len(source),
        len(task.redirects),
        task.key,
    )
    row = head + crawl + domain + url + source
    if task.redirects:
        hops = [hop.encode() for hop in task.redirects]
        row += b"".join(_LENGTH.pack(len(hop)) + hop for hop in hops)
    return row + _REPLAYS.pack(task.replays) + pack_handling(task.handling) if has_tail else row


def unpack_task(row: bytes) -> Task:
    """Inverse of `pack_task`."""
    _check_task(row)
    (
        packing, priority, depth, submitted, born, timeout, attempts, deliveries, concurrency,
        crawl_bytes, domain_bytes, url_bytes, source_bytes, hops, key,
    ) = _TASK.unpack_from(row)  # fmt: skip
    at = _TASK.size
    crawl = row[at : (at := at + crawl_bytes)].decode()
    domain = row[at : (at := at + domain_bytes)].decode()
    url = row[at : (at := at + url_bytes)].decode()
    source = row[at : (at := at + source_bytes)].decode()
    redirects = []
    for _ in range(hops):
        (length,) = _LENGTH.unpack_from(row, at)
        at += _LENGTH.size
        redirects.append(row[at : (at := at + length)].decode())
    replays, handling = 0, PLAIN
    if packing == PACKING_WITH_TAIL:
        (replays,) = _REPLAYS.unpack_from(row, at)
        handling = unpack_handling(row, at + _REPLAYS.size)
    return Task(
        crawl, url, key, domain, priority, depth, source, submitted, born, timeout, tuple(redirects),
        attempts, deliveries, replays, concurrency, handling,
    )  # fmt: skip


def pace_of_task(row: bytes) -> tuple[str, int]:
    """Return on what a packed task's pace depends, its crawl and its concurrency, without unpacking the rest."""
    _check_task(row)
    fields = _TASK.unpack_from(row)
    length: int = fields[_CRAWL_BYTES_AT]
    return row[_TASK.size : _TASK.size + length].decode(), fields[_CONCURRENCY_AT]


@dataclass(slots=True)
class SeenRow:
    """What is known of a URL in a crawl.

    Attributes:
        state: pending, done or refused.
        depth: smallest depth it was found at, as far as that mattered.
        deliveries: emissions when it was last done; a later one counts on from here.
        place: where its task stands when pending and not out.
        outcome: for done: the outcome's name.
        status: for done: the HTTP status, 0 for none.
        reason: for done: the outcome's reason; for refused: why.
        day: for done and refused: UTC day of that, days since the epoch.
    """

    state: UrlState
    depth: int
    deliveries: int = 0
    place: Place | None = None
    outcome: str = ""
    status: int = 0
    reason: str = ""
    day: int = 0


_SEEN_PENDING = struct.Struct(">BBIIBBQQ")
_SEEN_REFUSED = struct.Struct(">BBIIH")
_SEEN_DONE = struct.Struct(">BBIIHHB")
"""Version, state, depth, deliveries; then the place, or the day, for done also status and length of the outcome; texts
follow."""


def pack_seen(row: SeenRow) -> bytes:
    """Pack a row of the seen table."""
    head = PACKING, row.state, row.depth, row.deliveries
    if row.state is UrlState.PENDING:
        if row.place is None:
            raise BugError("a pending URL has a place")
        return _SEEN_PENDING.pack(*head, *row.place)
    if row.state is UrlState.DONE:
        outcome = row.outcome.encode()
        return _SEEN_DONE.pack(*head, row.day, row.status, len(outcome)) + outcome + row.reason.encode()
    return _SEEN_REFUSED.pack(*head, row.day) + row.reason.encode()


def day_of_seen(packed: bytes) -> int | None:
    """Return the day of a packed row of the seen table without unpacking the rest, None for a pending URL."""
    _check(packed)
    if packed[1] == UrlState.PENDING:
        return None
    day: int = _SEEN_REFUSED.unpack_from(packed)[-1]
    return day


def unpack_seen(packed: bytes) -> SeenRow:
    """Inverse of `pack_seen`; most of the rows that a large table is asked for are done."""
    _check(packed)
    state = packed[1]
    if state == UrlState.DONE:
        _, _, depth, deliveries, day, status, length = _SEEN_DONE.unpack_from(packed)
        texts = packed[_SEEN_DONE.size :].decode()
        return SeenRow(UrlState.DONE, depth, deliveries, None, texts[:length], status, texts[length:], day)
    if state == UrlState.PENDING:
        _, _, depth, deliveries, kind, lane, due_ms, sequence = _SEEN_PENDING.unpack(packed)
        return SeenRow(UrlState.PENDING, depth, deliveries, Place(PlaceKind(kind), Lane(lane), due_ms, sequence))
    _, _, depth, deliveries, day = _SEEN_REFUSED.unpack_from(packed)
    return SeenRow(UrlState.REFUSED, depth, deliveries, reason=packed[_SEEN_REFUSED.size :].decode(), day=day)


@dataclass(slots=True)
class OutRow:
    """A task that was given to fetch and has not ended.

    Attributes:
        task: with the delivery number of the lane record.
        emitted_ms: when it was given out.
        lane: the lane topic it went to, which ageing may have moved up.
        charged_crawl: whether a page of the crawl's budget was taken for it.
        charged_domain: whether a page of the domain's budget was taken for it.
        charged_day: UTC day, days since the epoch, of whose budget the crawl's page was; 0 for none.
    """

    task: Task
    emitted_ms: int
    lane: Lane
    charged_crawl: bool
    charged_domain: bool
    charged_day: int = 0


_OUT = struct.Struct(">BQBBI")


def pack_out(row: OutRow) -> bytes:
    """Pack a row of what is out."""
    charges = row.charged_crawl | row.charged_domain << 1
    return _OUT.pack(PACKING, row.emitted_ms, row.lane, charges, row.charged_day) + pack_task(row.task)


def unpack_out(packed: bytes) -> OutRow:
    """Inverse of `pack_out`."""
    _check(packed)
    _, emitted_ms, lane, charges, day = _OUT.unpack_from(packed)
    task = unpack_task(packed[_OUT.size :])
    return OutRow(task, emitted_ms, Lane(lane), bool(charges & 1), bool(charges & 2), day)


class Pace(NamedTuple):
    """What is known of a domain's pace; see `pipeline.frontier.politeness` for how it changes.

    Attributes:
        last_end_ms: end of the last request, milliseconds since the epoch; 0 for none.
        hold_until_ms: no request before (backoff, Retry-After, a window that is used up).
        backoff_level: incidents since the last good answer.
        backoff_began_ms: when the last incident was noted.
        crawl_delays_ms: robots.txt Crawl-delay of each host that has one.
        learned_ms: pause that its incidents have taught; 0 for none.
        response_ms: how long its answers take, smoothed.
        share_ms: pause by which the requests that the site still allows are shared out; 0 for none.
        share_until_ms: when the site counts anew.
        asked: long pauses that the site has asked for, from and until, the last ones, the oldest first.
        trouble: what the last incident was, outcome and reason, for people; empty after a good answer.
    """

    last_end_ms: int = 0
    hold_until_ms: int = 0
    backoff_level: int = 0
    backoff_began_ms: int = 0
    crawl_delays_ms: tuple[tuple[str, int], ...] = ()
    learned_ms: int = 0
    response_ms: int = 0
    share_ms: int = 0
    share_until_ms: int = 0
    asked: tuple[tuple[int, int], ...] = ()
    trouble: str = ""


# version, last end, hold, level and begin of the backoff, learned, response, share and its end; then how many pauses
# and hosts follow, and how many bytes of trouble behind them.
_PACE = struct.Struct(">BQQIQIIQQBHB")
_ASKED = struct.Struct(">QQ")
_HOST_DELAY = struct.Struct(">QH")


def pack_pace(pace: Pace) -> bytes:
    """Pack a row of the domain book."""
    (
        last_end_ms, hold_until_ms, level, began_ms, delays, learned_ms, response_ms, share_ms, share_until_ms, asked,
        said,
    ) = pace  # fmt: skip
    trouble = said.encode()
    head = _PACE.pack(
        PACKING, last_end_ms, hold_until_ms, level, began_ms, learned_ms, response_ms, share_ms, share_until_ms,
        len(asked), len(delays), len(trouble),
    )  # fmt: skip
    hosts = ((host.encode(), delay_ms) for host, delay_ms in delays)
    pauses = b"".join(_ASKED.pack(*pause) for pause in asked)
    return head + pauses + b"".join(_HOST_DELAY.pack(delay_ms, len(host)) + host for host, delay_ms in hosts) + trouble


def unpack_pace(packed: bytes) -> Pace:
    """Inverse of `pack_pace`."""
    _check(packed)
    (
        _, last_end_ms, hold_until_ms, level, began_ms, learned_ms, response_ms, share_ms, share_until_ms,
        pauses, hosts, trouble_bytes,
    ) = _PACE.unpack_from(packed)  # fmt: skip
    at = _PACE.size + pauses * _ASKED.size
    asked = tuple((since_ms, until_ms) for since_ms, until_ms in _ASKED.iter_unpack(packed[_PACE.size : at]))
    delays = []
    for _ in range(hosts):
        delay_ms, length = _HOST_DELAY.unpack_from(packed, at)
        at += _HOST_DELAY.size
        delays.append((packed[at : (at := at + length)].decode(), delay_ms))
    return Pace(
        last_end_ms, hold_until_ms, level, began_ms, tuple(delays), learned_ms, response_ms, share_ms, share_until_ms,
        asked, packed[at : at + trouble_bytes].decode(),
    )  # fmt: skip


class Ask(NamedTuple):
    """A share of a crawl's budgets that a partition asks for, gets or gives back.

    Attributes:
        partition: whose share.
        pages: how many.
        bytes: how many.
        day: UTC day of whose budget the pages are, days since the epoch; 0 for a crawl without a budget by day.
    """

    partition: int
    pages: int
    bytes: int = 0
    day: int = 0


class GivenRow(NamedTuple):
    """What the keeper of a crawl's budgets has given away.

    Attributes:
        pages: granted and not given back, all partitions together.
        bytes: the same of body bytes.
        day: UTC day that is counted apart, days since the epoch.
        pages_of_day: pages granted of this day's budget and not given back.
        pending: asks that wait, the oldest first.
    """

    pages: int = 0
    bytes: int = 0
    day: int = 0
    pages_of_day: int = 0
    pending: tuple[Ask, ...] = ()


_GIVEN = struct.Struct(">BQQIQ")
_ASK = struct.Struct(">IQQI")


def pack_given(row: GivenRow) -> bytes:
    """Pack a row of the budgets' keeper."""
    head = _GIVEN.pack(PACKING, row.pages, row.bytes, row.day, row.pages_of_day)
    return head + b"".join(_ASK.pack(*ask) for ask in row.pending)


def unpack_given(packed: bytes) -> GivenRow:
    """Inverse of `pack_given`."""
    _check(packed)
    _, pages, received, day, pages_of_day = _GIVEN.unpack_from(packed)
    pending = tuple(Ask(*ask) for ask in _ASK.iter_unpack(packed[_GIVEN.size :]))
    return GivenRow(pages, received, day, pages_of_day, pending)


class UsageRow(NamedTuple):
    """What a domain has used of a crawl's budgets, where it has some.

    Attributes:
        charged: tasks out and pages brought.
        brought: pages brought.
        bytes: body bytes of its outcomes, as received.
        day: UTC day that is counted apart, days since the epoch.
        brought_on_day: pages brought on it.
    """

    charged: int = 0
    brought: int = 0
    bytes: int = 0
    day: int = 0
    brought_on_day: int = 0


_USAGE = struct.Struct(">BQQQIQ")


def pack_usage(row: UsageRow) -> bytes:
    """Pack a row of a domain's budgets."""
    return _USAGE.pack(PACKING, *row)


def unpack_usage(packed: bytes) -> UsageRow:
    """Inverse of `pack_usage`."""
    _check(packed)
    return UsageRow(*_USAGE.unpack(packed)[1:])


def _check_task(row: bytes) -> None:
    if row[0] != PACKING_WITH_TAIL:
        _check(row)


def _check(row: bytes) -> None:
    if row[0] != PACKING:
        raise BugError(f"a row of packing {row[0]}; this version knows {PACKING}")
