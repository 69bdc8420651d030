"""Crawls that are begun one after another while things go wrong, and single tasks beside them."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection
from dataclasses import replace

from pipeline.config import Settings, client_options
from pipeline.contracts.codec import Codecs
from pipeline.delivery.global_table import GlobalTable
from pipeline.errors import BrokerError
from pipeline.frontier.ending import CrawlEnd
from pipeline.local.expectation import Expectation
from pipeline.local.simulated_web import SimulatedWeb
from pipeline.ops.lag import LagReader
from pipeline.ops.submission import Submission
from pipeline.topics import DOCUMENTS, PROGRESS, TASKS, TASKS_URGENT, group_id

log = logging.getLogger(__name__)

LOOK_S = 1.6
"""Two looks in a row tell the end of a crawl: every count must have had time to be reported in between."""
AT_A_TIME = 2
MANY_PAGES = 1_000_000
SINGLE = "single"
SINGLES_EVERY_S = 4.0
SINGLES = 3
MASS_EVERY_S = 15.0
MASS = 120
WRITE_LIMIT_S = 120.0
END_S = 20.0


class PipelineFeed:
    """Writes definitions and tasks in a thread of its own, and follows the crawls to their ends.

    Whole crawls of the web follow each other, some with a budget that they don't reach; single urgent tasks and masses
    of unimportant ones come in between, in crawls that follow no links.

    Args:
        settings: with a broker, which may go away for a while.
        codecs: of the contracts.
        web: that is crawled.
        seed: of what is fed, and when.
    """

    def __init__(self, settings: Settings, codecs: Codecs, web: SimulatedWeb, seed: int) -> None:
        self.expected: dict[str, Expectation] = {}
        """Crawl → what it must bring."""
        self._partitions = settings.topics.partitions
        self._web = web
        self._start_urls = web.start_urls
        self._whole = web.expectation(web.depth)
        self._random = random.Random(seed)
        options = client_options(settings.broker)
        self._submission = Submission(options, codecs)
        self._lag = LagReader(options)
        self._progress = GlobalTable(options, PROGRESS.name, self._partitions, codecs.decoder(PROGRESS.subject))
        self._submitted: dict[str, int] = {}
        self._ends: dict[str, CrawlEnd] = {}
        self._ended: set[str] = set()
        self._enough = threading.Event()
        self._closed = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feed")

    def start(self) -> None:
        """Begin."""
        self._progress.start()
        self._thread.start()

    def enough(self) -> None:
        """Begin nothing more."""
        self._enough.set()

    def left(self) -> list[str]:
        """Return the crawls that have not ended yet; raises what ended the thread, if anything did."""
        if self._failure is not None:
            raise self._failure
        return sorted(self._ends.keys() - self._ended) if self._enough.is_set() else ["more to come"]

    def where(self) -> list[str]:
        """Say where the crawls that have not ended stand, for people who look for the cause."""
        names = ("waiting", "parked", "out", "pages_fetched", "pages_parsed", "redirects_sent", "redirects_received",
                 "links_sent", "links_received")  # fmt: skip
        rows = [row for row in self._progress.rows().values() if row["crawl"] not in self._ended]
        return [f"{row['crawl']}/{row['partition']}: { {name: row[name] for name in names} }" for row in rows]

    def expected_without(self, crawl: str, dead: Collection[str]) -> Expectation:
        """Return what a crawl must bring at least, where some of its URLs became dead letters."""
        expectation = self.expected[crawl]
        documents = {url: title for url, title in expectation.documents.items() if url not in dead}
        if dead and crawl.startswith("whole"):
            documents = self._web.expected_documents(self._web.depth, without=dead)
        return replace(expectation, documents=documents)

    def documents_left(self) -> int:
        """How many documents the store has not committed yet."""
        return self._left("store", [DOCUMENTS.name])

    def close(self) -> None:
        """End the thread and all clients."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        self._progress.stop()
        self._lag.close()

    # ---- in the thread

    def _run(self) -> None:
        try:
            self._feed()
        except BaseException as exc:  # noqa: BLE001  # raised again in `left`
            self._failure = exc

    def _feed(self) -> None:
        single_s = mass_s = 0.0
        while not self._closed.wait(LOOK_S):
            self._look()
            if self._enough.is_set():
                continue
            now_s = time.monotonic()
            if len([crawl for crawl in self._ends.keys() - self._ended if crawl.startswith("whole")]) < AT_A_TIME:
                self._begin_whole(sum(crawl.startswith("whole") for crawl in self.expected))
            if now_s >= single_s:
                single_s = now_s + SINGLES_EVERY_S
                self._submit(SINGLE, SINGLES, priority=1)
            if now_s >= mass_s:
                mass_s = now_s + MASS_EVERY_S
                self._submit(f"mass-{len(self.expected)}", MASS, priority=5)

    def _begin_whole(self, number: int) -> None:
        crawl = f"whole-{number}"
        self.expected[crawl] = self._whole
        self._define(crawl, self._web.depth, max_pages=MANY_PAGES if number % 2 else None)
        self._write(crawl, self._start_urls, 3)

    def _submit(self, crawl: str, count: int, *, priority: int) -> None:
        """Submit pages, some of which the crawl may have already."""
        documents = self._whole.documents
        urls = self._random.sample(sorted(documents), min(count, len(documents)))
        if crawl not in self.expected:
            self._define(crawl, 0)
        known = self.expected.get(crawl)
        wanted = {**(known.documents if known else {}), **{url: documents[url] for url in urls}}
        self.expected[crawl] = replace(self._whole, documents=wanted)
        self._write(crawl, urls, priority)

    def _define(self, crawl: str, max_depth: int, *, max_pages: int | None = None) -> None:
        definition = {
            "crawl": crawl, "start_urls": self._start_urls, "scope": [], "max_depth": max_depth,
            "created_at_ms": int(time.time() * 1000), "max_pages": max_pages, "max_pages_per_domain": None,
            "delay_ms": None,
        }  # fmt: skip
        self._submission.define(definition)
        self._flush()
        self._ends[crawl] = CrawlEnd(self._partitions, max_pages)

    def _write(self, crawl: str, urls: list[str], priority: int) -> None:
        count = self._submission.submit(urls, crawl, priority, time.time(), source="feed")
        self._submitted[crawl] = self._submitted.get(crawl, 0) + count
        self._ended.discard(crawl)
        self._flush()
        log.info("%d tasks for %s", count, crawl)

    def _flush(self) -> None:
        """Wait until everything is on the broker, which may be away."""
        deadline = time.monotonic() + WRITE_LIMIT_S
        while True:
            try:
                self._submission.flush()
            except BrokerError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _look(self) -> None:
        if self._left("frontier", [TASKS.name, TASKS_URGENT.name]):
            return
        rows = list(self._progress.rows().values())
        for crawl, end in self._ends.items():
            ours = [row for row in rows if row["crawl"] == crawl]
            if crawl not in self._ended and end.observe(ours, self._submitted.get(crawl, 0)):
                self._ended.add(crawl)
                log.info("%s has ended", crawl)

    def _left(self, stage: str, topics: list[str]) -> int:
        try:
            return sum(lag.lag for lag in self._lag.read(group_id(stage), topics, self._partitions))
        except BrokerError:
            return 1
