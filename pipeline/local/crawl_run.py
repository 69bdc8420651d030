"""One crawl on a running cluster: defined, submitted, followed to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline.config import Settings, client_options
from pipeline.contracts.codec import Codecs
from pipeline.delivery.global_table import GlobalTable
from pipeline.errors import BrokerError
from pipeline.frontier.ending import CrawlEnd
from pipeline.frontier.policy import CrawlPolicy
from pipeline.ops.lag import LagReader
from pipeline.ops.submission import Submission
from pipeline.topics import DOCUMENTS, PROGRESS, TASKS, TASKS_URGENT, group_id

PRIORITY = 3


class CrawlStatus(NamedTuple):
    """Where a crawl stands, summed over the partitions.

    Attributes:
        seen: URLs known.
        done: URLs ended.
        waiting: tasks that wait.
        parked: of these, held by a budget.
        out: tasks that fetch has.
        pages: pages fetched, by later polls of recurring work too.
        failed: URLs ended without a page.
        refused: URLs refused, by reason.
        ended: nothing is left, and every record sent has arrived.
    """

    seen: int
    done: int
    waiting: int
    parked: int
    out: int
    pages: int
    failed: int
    refused: Mapping[str, int]
    ended: bool


class CrawlRun:
    """Follows one crawl.

    Args:
        settings: with a broker.
        codecs: contracts.
        definition: `crawl.crawls.v1-value` record.
    """

    def __init__(self, settings: Settings, codecs: Codecs, definition: Mapping[str, Any]) -> None:
        self._definition = definition
        self._partitions = settings.topics.partitions
        options = self._options = client_options(settings.broker)
        self._codecs = codecs
        self._lag = LagReader(options)
        self._progress = GlobalTable(options, PROGRESS.name, self._partitions, codecs.decoder(PROGRESS.subject))
        policy = CrawlPolicy(definition, settings.frontier)
        self._end = CrawlEnd(self._partitions, policy.max_pages, policy.max_bytes)

    def begin(self, urls: Sequence[str]) -> None:
        """Write the definition and a task for each start point; both are harmless when repeated."""
        self._progress.start()
        submission = Submission(self._options, self._codecs)
        submission.define(self._definition)
        submission.flush()
        submission.submit(urls, self._definition["crawl"], PRIORITY, time.time(), source="crawl")
        submission.flush()

    def status(self) -> CrawlStatus:
        """Look once. `ended` needs two looks in a row that agree, at least 1.5 s apart."""
        crawl = self._definition["crawl"]
        rows = [row for row in self._progress.rows().values() if row["crawl"] == crawl]

        def total(name: str) -> int:
            return sum(row[name] for row in rows)

        refused: dict[str, int] = {}
        for row in rows:
            for reason, count in row["refused"].items():
                refused[reason] = refused.get(reason, 0) + count
        ended = bool(rows) and self._tasks_are_read() and self._end.observe(rows, total("tasks_received"))
        return CrawlStatus(
            total("seen"), total("done"), total("waiting"), total("parked"), total("out"),
            total("pages_fetched") + total("pages_polled"), total("failed"), refused, ended,
        )  # fmt: skip

    def documents_left(self) -> int:
        """How many documents the store has not committed yet."""
        return self._left("store", [DOCUMENTS.name])

    def close(self) -> None:
        """End all clients."""
        self._progress.stop()
        self._lag.close()

    def _tasks_are_read(self) -> bool:
        # The frontier counts tasks over all runs of a crawl, so what was submitted now says nothing; the lag does.
        return self._left("frontier", [TASKS.name, TASKS_URGENT.name]) == 0

    def _left(self, stage: str, topics: Sequence[str]) -> int:
        try:
            return sum(lag.lag for lag in self._lag.read(group_id(stage), topics, self._partitions))
        except BrokerError:
            return 1
