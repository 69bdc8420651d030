"""A frontier worker without a broker: all its partitions on real stores, URLs by number, and a way to have many."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.stopwatch import Spent, Stopwatch
from pipeline import topics
from pipeline.config import Frontier, Politeness
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.delivery.api import Output
from pipeline.frontier.crawls import CrawlBook
from pipeline.frontier.records import (
    SEEN,
    TABLES,
    WAITING,
    Lane,
    Place,
    PlaceKind,
    SeenRow,
    Task,
    UrlState,
    pack_seen,
    pack_task,
    place_key,
    url_row_key,
)
from pipeline.frontier.stage import FrontierStage
from pipeline.frontier.waiting import Sequence as SequenceNumbers
from pipeline.frontier.waiting import waiting_prefix
from pipeline.process import calm_garbage_collection
from pipeline.state.contract_rows import ContractRows
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView, changelog_key
from pipeline.web.domains import PSL_VERSION
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key

CRAWL = "default"
PARTITIONS = 6
START_MS = 1_700_000_000_000
DAY = START_MS // 86_400_000
WAITING_SHARE = 10
"""One of so many URLs that are there waits; the others are done."""
LOAD_ROWS = 20_000
"""Changes in a write when URLs are loaded: those that a restore applies at once."""
ROUND_RECORDS = 600
RECENT_LINKS = 10_000
PAGE_LINKS, PAGE_RECENT, PAGE_STORED = 60, 40, 14
"""Links of a page; of these, those that stood on one of the pages before it, and any of those that are stored. The
other six are new."""


class Record(NamedTuple):
    """A source record."""

    topic: str
    value: bytes | None
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Web:
    """URLs by number, spread over sites, and the sites by partition.

    Args:
        sites: how many; each is a domain of its own.

    Attributes:
        of_partition: numbers of the sites that belong to each partition.
    """

    def __init__(self, sites: int) -> None:
        self.sites = sites
        self.of_partition: list[list[int]] = [[] for _ in range(PARTITIONS)]
        for site in range(sites):
            self.of_partition[partition_for(self.domain(site).encode(), PARTITIONS)].append(site)

    def domain(self, site: int) -> str:
        """Return the registrable domain of a site."""
        return f"site-{site}.example"

    def url(self, site: int, page: int) -> str:
        """Return the URL of a page of a site; 75 bytes or so."""
        return f"https://www.site-{site}.example/section-{page // 50}/a-story-of-some-length-{page}.html"


class Pages:
    """Link records of one partition, as a crawl finds them.

    Args:
        web: the URLs.
        partition: number of the partition.
        stored: pages that are stored of each site, from 0 on.
        codecs: contracts.
    """

    def __init__(self, web: Web, partition: int, stored: int, codecs: Codecs) -> None:
        self._web, self._partition, self._stored = web, partition, stored
        self._sites = web.of_partition[partition]
        self._random = random.Random(partition)  # noqa: S311  # the same links in each run
        self._encode = codecs.encoder(topics.LINKS.subject)
        self._recent: list[str] = []
        self._new: dict[int, int] = {}
        self._turn = 0

    def record(self, recent: int = PAGE_RECENT, stored: int = PAGE_STORED, links: int = PAGE_LINKS) -> Record:
        """Return a page's links: so many recent ones, so many stored ones, the others new and on the page's own site.

        Pages of all sites take turns.
        """
        site = self._sites[self._turn % len(self._sites)]
        self._turn += 1
        choice, recents = self._random.choice, self._recent
        fresh = [self._any_stored() for _ in range(stored)]
        fresh += [self._next_new(site) for _ in range(links - stored - (recent if recents else 0))]
        urls = [choice(recents) for _ in range(links - len(fresh))] + fresh
        recents += fresh
        del recents[:-RECENT_LINKS]
        self._random.shuffle(urls)
        value = self._encode(
            {
                "crawl": CRAWL, "page": self._web.url(site, 0), "depth": 2, "found_at_ms": START_MS,
                "psl_version": PSL_VERSION, "urls": urls, "source": "", "priority": 3, "max_depth": None,
            }
        )  # fmt: skip
        return Record(topics.LINKS.name, value, self._partition)

    def _any_stored(self) -> str:
        return self._web.url(self._random.choice(self._sites), self._random.randrange(self._stored))

    def _next_new(self, site: int) -> str:
        number = self._new.get(site, self._stored)
        self._new[site] = number + 1
        return self._web.url(site, number)


class FrontierWorker:
    """The partitions of one worker.

    Args:
        directory: for the stores.
        delay_s: politeness; 0: all tasks of a domain may go at once.
    """

    def __init__(self, directory: Path, delay_s: float = 0.0) -> None:
        calm_garbage_collection()  # as a worker does
        self.codecs = load_codec()
        self._directory = directory
        self._stage = FrontierStage(
            frontier=Frontier(window_max=1_000_000_000),
            politeness=Politeness(delay_s=delay_s),
            codecs=self.codecs,
            partitions=PARTITIONS,
            crawls=lambda _: None,
            task_dead_letter=_no_dead_letter,
        )
        self._rows = ContractRows(
            self.codecs.encoder(topics.FRONTIER_STATE.subject), self.codecs.decoder(topics.FRONTIER_STATE.subject)
        )
        self._decode_lane = self.codecs.decoder(topics.LANE_NORMAL.subject)
        self._encode_outcome = self.codecs.encoder(topics.FETCHES.subject)
        self.open()

    def open(self) -> Spent:
        """Open all stores and partitions."""
        watch = Stopwatch()
        self._stores = [PartitionStore(self._directory / str(number), TABLES) for number in range(PARTITIONS)]
        self._views = [StagedView(store, TABLES) for store in self._stores]
        self._logics = [self._stage.open(number, view, START_MS / 1000) for number, view in enumerate(self._views)]
        return watch.spent()

    def close(self) -> None:
        """Close all."""
        self._logics.clear()
        self._views.clear()
        for store in self._stores:
            store.close()

    def load(self, web: Web, stored: int, waiting_share: int = WAITING_SHARE) -> Spent:
        """Write the rows of so many pages of each site, in bulk, and open the partitions anew.

        Args:
            web: the URLs.
            stored: pages of each site.
            waiting_share: one of so many waits, the others are done.

        Returns:
            What the writing of the rows cost, their making left out.
        """
        cpu_s = wall_s = 0.0
        for number, (store, view) in enumerate(zip(self._stores, self._views, strict=True)):
            self._logics[number].close()
            for changes in _rows(web, number, stored, waiting_share, view):
                watch = Stopwatch()
                store.apply({**changes, **view.changes()}, store.applied + len(changes), START_MS / 1000)
                spent = watch.spent()
                cpu_s, wall_s = cpu_s + spent.cpu_s, wall_s + spent.wall_s
                view.clear()
        self.close()
        self.open()
        return Spent(cpu_s, wall_s)

    def handle(self, records: Sequence[Record], now_ms: int = START_MS) -> Spent:
        """Handle records in rounds, one partition after the other, each followed by a commit."""
        rounds = [
            sorted(records[at : at + ROUND_RECORDS], key=lambda record: record.partition)
            for at in range(0, len(records), ROUND_RECORDS)
        ]
        watch = Stopwatch()
        for taken in rounds:
            for record in taken:
                self._logics[record.partition].handle(record, now_ms / 1000)
            self._commit()
        return watch.spent()

    def give_out(self, wanted: int, now_ms: int = START_MS) -> tuple[Spent, list[Record]]:
        """Let about as many tasks of each partition go as are wanted. Return what it cost, and what fetch answers."""
        outputs: list[Output] = []
        watch = Stopwatch()
        for logic in self._logics:
            begun = len(outputs)
            while len(outputs) - begun < wanted:
                due = logic.due()
                if due is None or due > now_ms / 1000:
                    break
                outputs += [o for o in logic.tick(now_ms / 1000) if o.topic == topics.LANE_NORMAL.name]
        self._commit()
        spent = watch.spent()
        return spent, [self._outcome(self._decode_lane(output.value)) for output in outputs]

    def _commit(self) -> None:
        """Pack the changes for the changelog and write them, as the runner does."""
        for store, view in zip(self._stores, self._views, strict=True):
            changes = view.changes()
            if changes:
                for (table, key), row in changes.items():
                    changelog_key(table, key)
                    if row is not None:
                        self._rows.wrap(row)
                store.apply(changes, store.applied + len(changes), START_MS / 1000)
                view.clear()

    def _outcome(self, lane: dict[str, Any]) -> Record:
        value = self._encode_outcome(
            {
                "crawl": lane["crawl"], "url": lane["url"], "url_key": lane["url_key"], "delivery": lane["delivery"],
                "outcome": "FETCHED", "status": 200, "reason": "", "location": None, "address": None,
                "retry_after_ms": None, "not_before_ms": 0, "crawl_delay_ms": None, "requests": 1,
                "started_at_ms": START_MS, "ended_at_ms": START_MS, "bytes_wire": 1, "bytes_decoded": 1, "etag": None,
                "last_modified": None, "worker": "w", "rate_limit_reset_ms": None, "rate_limit_remaining": None,
            }
        )  # fmt: skip
        domain = lane["url"].split("/", 3)[2].removeprefix("www.")
        return Record(topics.FETCHES.name, value, partition_for(domain.encode(), PARTITIONS))


def _rows(
    web: Web, partition: int, stored: int, waiting_share: int, view: StagedView
) -> Iterator[dict[tuple[str, bytes], bytes | None]]:
    """Yield the rows of so many pages of each site of a partition; its counters and sequence are staged in the view."""
    done = pack_seen(SeenRow(UrlState.DONE, 1, 1, outcome="FETCHED", status=200, day=DAY))
    crawls, sequence = CrawlBook(view, PARTITIONS), SequenceNumbers(view)
    changes: dict[tuple[str, bytes], bytes | None] = {}
    prefix = url_row_key(CRAWL, b"")
    state = crawls.change(CRAWL)
    for page in range(stored):
        for site in web.of_partition[partition]:
            url = web.url(site, page)
            key = url_key(url)
            state.seen += 1
            if page % waiting_share:
                state.done += 1
                changes[SEEN, prefix + key] = done
            else:
                state.waiting += 1
                domain = web.domain(site)
                place = Place(PlaceKind.WAITING, Lane.NORMAL, START_MS - 1_000, sequence.next())
                task = Task(CRAWL, url, key, domain, 3, 1, "", START_MS, START_MS)
                changes[SEEN, prefix + key] = pack_seen(SeenRow(UrlState.PENDING, 1, place=place))
                changes[WAITING, waiting_prefix(domain) + place_key(place)] = pack_task(task)
            if len(changes) >= LOAD_ROWS:
                yield changes
                changes = {}
    crawls.write()
    yield changes


def _no_dead_letter(*_: Any, **__: Any) -> Output:
    raise AssertionError("nothing dies here")
