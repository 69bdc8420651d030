"""How fast the frontier takes records: one partition on a real store, one thread.

`python -m bench.frontier [--json]` prints microseconds per step. The store is committed after each batch of records, as
the runner does, but nothing is sent to a broker.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import topics
from pipeline.config import Frontier, Politeness
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.delivery.api import Output, SourceRecord
from pipeline.frontier.records import TABLES
from pipeline.frontier.stage import FrontierStage
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView
from pipeline.web.domains import PSL_VERSION

START_S = 1_700_000_000.0
DOMAINS = 500
BATCH_RECORDS = 500
URLS_PER_RECORD = 10
PAGES = 20_000


class Record(NamedTuple):
    """A source record."""

    topic: str
    value: bytes | None
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Partition:
    """One frontier partition on a store, without a broker."""

    def __init__(self, directory: Path, codecs: Codecs) -> None:
        self._codecs = codecs
        stage = FrontierStage(
            frontier=Frontier(),
            politeness=Politeness(delay_s=0),
            codecs=codecs,
            partitions=1,
            crawls=lambda _: None,
            task_dead_letter=_no_dead_letter,
        )
        self._store = PartitionStore(directory, TABLES)
        self._view = StagedView(self._store, TABLES)
        self._stage = stage
        self._logic = stage.open(0, self._view, START_S)
        self._applied = 0

    def timed(self, records: Iterable[Record], *, tick: bool = False) -> tuple[float, list[Output]]:
        """Handle records in batches, each followed by a commit. Return seconds and outputs."""
        outputs: list[Output] = []
        spent = 0.0
        batch: list[Record] = []

        def flush() -> None:
            nonlocal spent
            begin = time.perf_counter()
            for record in batch:
                source: SourceRecord = record
                outputs.extend(self._logic.handle(source, START_S))
            while tick and (due := self._logic.due()) is not None and due <= START_S:
                outputs.extend(self._logic.tick(START_S))
            changes = self._view.changes()
            self._applied += len(changes)
            self._store.apply(changes, self._applied, START_S)
            self._view.clear()
            spent += time.perf_counter() - begin
            batch.clear()

        for record in records:
            batch.append(record)
            if len(batch) == BATCH_RECORDS:
                flush()
        flush()
        return spent, outputs

    def reopen(self) -> float:
        """Build memory anew from the store. Return seconds."""
        begin = time.perf_counter()
        self._logic = self._stage.open(0, self._view, START_S)
        return time.perf_counter() - begin


def _no_dead_letter(*_: Any, **__: Any) -> Output:
    raise AssertionError("nothing dies here")


def _links(codecs: Codecs, urls: list[str], size: int) -> list[Record]:
    encode = codecs.encoder(topics.LINKS.subject)
    batches = [urls[at : at + size] for at in range(0, len(urls), size)]
    return [
        Record(
            topics.LINKS.name,
            encode(
                {
                    "crawl": "default", "page": "https://www.site-1.example/a/page", "depth": 2, "found_at_ms": 1,
                    "psl_version": PSL_VERSION, "urls": batch,
                }
            ),
        )
        for batch in batches
    ]  # fmt: skip


def _outcomes(codecs: Codecs, lanes: list[dict[str, Any]]) -> list[Record]:
    encode = codecs.encoder(topics.FETCHES.subject)
    return [
        Record(
            topics.FETCHES.name,
            encode(
                {
                    "crawl": lane["crawl"], "url": lane["url"], "url_key": lane["url_key"],
                    "delivery": lane["delivery"], "outcome": "FETCHED", "status": 200, "reason": "", "location": None,
                    "address": None, "retry_after_ms": None, "not_before_ms": 0, "crawl_delay_ms": None,
                    "requests": 1, "started_at_ms": int(START_S * 1000), "ended_at_ms": int(START_S * 1000),
                    "bytes_wire": 1, "bytes_decoded": 1, "etag": None, "last_modified": None, "worker": "w",
                }
            ),
        )
        for lane in lanes
    ]  # fmt: skip


def measure() -> dict[str, float]:
    """Return microseconds by step."""
    codecs = load_codec()
    urls = [
        f"https://www.site-{number % DOMAINS}.example/section/{number // 97}/story-{number}.html"
        for number in range(PAGES)
    ]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory) / "0", codecs)
        records = _links(codecs, urls, URLS_PER_RECORD)
        spent, _ = partition.timed(records)
        figures["new URL claimed, µs"] = spent / PAGES * 1e6
        spent, _ = partition.timed(records)
        figures["link record of 10 known URLs, µs"] = spent / len(records) * 1e6
        figures["known URLs a second"] = PAGES / spent
        spent, outputs = partition.timed([], tick=True)
        decode = codecs.decoder(topics.LANE_NORMAL.subject)
        lanes = [decode(output.value) for output in outputs if output.topic == topics.LANE_NORMAL.name]
        assert len(lanes) == PAGES
        figures["task given out, µs"] = spent / PAGES * 1e6
        spent, _ = partition.timed(_outcomes(codecs, lanes))
        figures["outcome, µs"] = spent / PAGES * 1e6
        figures["partition opened, µs a URL"] = partition.reopen() / PAGES * 1e6
        spent, _ = partition.timed(records)
        figures["link record of 10 stored URLs, µs"] = spent / len(records) * 1e6
    return figures


def main(report: Callable[[str], None] = print) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    figures = measure()
    if parser.parse_args().json:
        report(json.dumps(figures))
        return
    for name, value in figures.items():
        report(f"{name:<40}{value:>12,.1f}")


if __name__ == "__main__":
    main()
