"""The whole pipeline and Scrapy on the same simulated web, in one run: `make bench`.

All five stages (frontier, fetch, parse, store and the broker between them) crawl 44 KB pages with 60 links from their
start points to the end, politeness off, everything on this machine. CPU is counted from the moment all workers own
their partitions to the moment the last document is in a finished file; what it takes to start is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.calibration import calibrate
from bench.machine import machine
from bench.origin import HOSTS, Origin
from bench.scrapy_peer import PeerResult, run_scrapy
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.local.crawl_run import CrawlRun
from pipeline.local.simulated_web import crawler_options
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet, process_cpu_s
from pipeline.ops import topics
from pipeline.topics import STAGES

LOOK_S = 0.25
END_LOOK_S = 1.5
READY_LIMIT_S = 60.0
RUN_LIMIT_S = 600.0
PAGES = 60
"""Of each host: long enough a run that its ends do not count."""
CRAWL = "bench"
PACKAGES = ("faust-streaming", "aiokafka", "confluent-kafka", "httpx", "aiohttp", "selectolax", "fastavro", "Scrapy")
SERIES = re.compile(rb"^headrace_(records|commits|outputs)_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True)
class PipelineResult:
    """What the pipeline did.

    Attributes:
        documents: in finished files, each counted once per line.
        expected: that a right crawl publishes.
        wall_s: from the submission to the last finished file.
        busy_s: from the submission to the last page parsed.
        cpu_s: by stage, and of the broker, in that time.
        start_cpu_s: before it.
        records: input records finished, by stage.
        transactions: committed, by stage.
    """

    documents: int
    expected: int
    wall_s: float
    busy_s: float
    cpu_s: dict[str, float]
    start_cpu_s: dict[str, float]
    records: dict[str, float]
    transactions: dict[str, float]

    @property
    def cpu_s_per_1000_pages(self) -> float:
        """Of all stages, the broker left out."""
        return 1000 * sum(self.cpu_s[stage] for stage in STAGES) / self.documents


def run_pipeline(origin: Origin, directory: Path, workers: dict[str, int], parse_processes: int) -> PipelineResult:
    """Crawl the origin once."""
    with LocalStack(directory / "local", registry=False) as stack:
        environ = {
            **crawler_options(origin.port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": stack.addresses.bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": "0",
            "HEADRACE_PARSE__PROCESSES": str(parse_processes),
            "HEADRACE_STORE__DIRECTORY": str(directory / "documents"),
            "HEADRACE_WORKER__LOG_LEVEL": "info",
        }
        settings = with_addresses(load(environ=environ).settings, stack.addresses)
        topics.apply(client_options(settings.broker), settings)
        definition = {
            "crawl": CRAWL, "start_urls": list(origin.web.start_urls), "scope": [], "max_pages": None,
            "max_depth": None, "max_pages_per_domain": None, "delay_ms": None, "created_at_ms": 0,
        }  # fmt: skip
        run = CrawlRun(settings, load_codec(), definition)
        fleet = Fleet(directory, environ, workers)
        try:
            fleet.start()
            wait_until_ready(fleet)
            origin.reset()
            before = _cpu(fleet, stack)
            began_s = time.time()
            run.begin(origin.web.start_urls)
            _follow(run, fleet)
            after = _cpu(fleet, stack)
            counts = {stage: _counts(fleet, stage) for stage in fleet.by_stage}
        finally:
            fleet.stop()
            run.close()
    files = list((directory / "documents").glob("*.jsonl"))
    documents = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    if len({document["url"] for document in documents}) != len(documents):
        raise SystemExit("a document is there twice")
    return PipelineResult(
        documents=len(documents),
        expected=len(origin.web.expected_documents()),
        wall_s=max(file.stat().st_mtime for file in files) - began_s,
        busy_s=max(document["parsed_at_ms"] for document in documents) / 1000 - began_s,
        cpu_s={name: after[name] - before[name] for name in after},
        start_cpu_s=before,
        records={stage: count["records"] for stage, count in counts.items()},
        transactions={stage: count["commits"] for stage, count in counts.items()},
    )


def wait_until_ready(fleet: Fleet) -> None:
    """Wait until every worker owns partitions."""
    deadline = time.monotonic() + READY_LIMIT_S
    for worker in fleet.all:
        while not re.search(rb"^headrace_assigned_partitions\{[^}]*\} [1-9]", worker.read("/metrics"), re.MULTILINE):
            if time.monotonic() > deadline:
                raise SystemExit(f"{worker.label} is not ready: {worker.tail()}")
            time.sleep(LOOK_S)


def _follow(run: CrawlRun, fleet: Fleet) -> None:
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        fleet.look_after()
        if run.status().ended and run.documents_left() == 0:
            return
        time.sleep(END_LOOK_S)
    raise SystemExit(f"the crawl did not end in {RUN_LIMIT_S:.0f} s: {run.status()}")


def _cpu(fleet: Fleet, stack: LocalStack) -> dict[str, float]:
    fleet.look_after()
    stages = {stage: sum(worker.cpu_s() for worker in workers) for stage, workers in fleet.by_stage.items()}
    return {**stages, "broker": process_cpu_s(stack.broker.pid) if stack.broker.pid else 0.0}


def _counts(fleet: Fleet, stage: str) -> dict[str, float]:
    totals = {"records": 0.0, "commits": 0.0, "outputs": 0.0}
    for worker in fleet.by_stage[stage]:
        for name, value in SERIES.findall(worker.read("/metrics")):
            totals[name.decode()] += float(value)
    return totals


def table_of(result: PipelineResult, origin_cpu_s: float, peer: PeerResult | None) -> Table:
    """Lay the figures side by side, the ratio last."""
    pages = result.documents
    table = Table(title=f"{pages} documents of {result.expected}")
    for name in ("", "CPU-s / 1,000 pages", "records/s", "transactions/s"):
        table.add_column(name, justify="right" if name else "left")
    for name, cpu_s in result.cpu_s.items():
        records = f"{result.records[name] / result.wall_s:.0f}" if name in result.records else ""
        transactions = f"{result.transactions[name] / result.wall_s:.1f}" if name in result.transactions else ""
        table.add_row(name, f"{1000 * cpu_s / pages:.3f}", records, transactions)
    table.add_section()
    table.add_row("all stages", f"{result.cpu_s_per_1000_pages:.3f}")
    table.add_row("pages/s to the last finished file", f"{pages / result.wall_s:.0f}")
    table.add_row("pages/s to the last page parsed", f"{pages / result.busy_s:.0f}")
    table.add_row("origin server, apart", f"{1000 * origin_cpu_s / pages:.3f}")
    if peer is not None:
        table.add_section()
        table.add_row("Scrapy, tuned", f"{peer.cpu_s_per_1000_pages:.3f}")
        table.add_row("Scrapy, pages/s", f"{peer.pages_per_s:.0f}")
        table.add_row(
            "CPU ratio, Scrapy / all stages", f"{peer.cpu_s_per_1000_pages / result.cpu_s_per_1000_pages:.2f}"
        )
    return table


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--pages", type=int, default=PAGES, help="of each host")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", action="append", default=[], metavar="STAGE=N")
    parser.add_argument("--parse-processes", type=int, default=1)
    parser.add_argument("--peer-pages", type=int, default=2_000)
    parser.add_argument("--no-peer", action="store_true", help="without Scrapy")
    parser.add_argument("--directory", type=Path, help="keep logs and files here")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    workers = dict.fromkeys(STAGES, 1) | {stage: int(n) for stage, _, n in (w.partition("=") for w in options.workers)}
    console = Console(stderr=options.json)
    calibration = calibrate()
    directory = options.directory or Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with Origin(options.seed, options.hosts, options.pages) as origin:
            console.print(f"headrace: {options.hosts} hosts, {options.pages} pages each, workers {workers}")
            result = run_pipeline(origin, directory, workers, options.parse_processes)
            origin_cpu_s = origin.cpu_s()
            peer = None
            if not options.no_peer:
                console.print("scrapy: the same site")
                peer = run_scrapy(origin.web.start_urls, options.peer_pages, output=directory / "scrapy.jsonl")
    finally:
        if options.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    console.print(table_of(result, origin_cpu_s, peer))
    described = machine(PACKAGES)
    console.print(described, f"calibration: {calibration}")
    if options.json:
        row = {
            "machine": described, "calibration": asdict(calibration), "pipeline": asdict(result),
            "origin_cpu_s": origin_cpu_s, "scrapy": peer and asdict(peer),
        }  # fmt: skip
        json.dump(row, sys.stdout)
        print()


if __name__ == "__main__":
    main()
