"""The demo: workers crawl a simulated web over a real broker, some are killed, the documents are counted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from rich.console import Group
from rich.table import Table

from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.errors import ConfigurationError
from pipeline.local.checker import Report, check
from pipeline.local.crawl_run import CrawlRun, CrawlStatus
from pipeline.local.simulated_web import ServedWeb, crawler_options
from pipeline.local.site_judge import Interruption, killed
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet, WorkerProcess, process_cpu_s
from pipeline.ops import topics
from pipeline.topics import DOCUMENTS, STAGES

CRAWL = "demo"
MAX_DEPTH = 12
DELAY_S = 0.2
BACKOFF_S = 2.0
SESSION_S = 6.0
LOOK_S = 0.5
END_LOOK_S = 1.5
STORE_WAIT_S = 30.0
COUNTED_AT_ONCE = 1_000
VICTIMS = ("fetch", "frontier", "parse", "store")


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the demo does.

    Attributes:
        hosts: registrable domains of the simulated web.
        pages: articles of each.
        seed: of the simulated web.
        kills: workers killed with SIGKILL on the way, fetch and frontier first, then in turn.
        workers: stage → how many.
        directory: for everything the demo writes; removed by nobody.
        limit_s: a crawl that takes longer has failed.
    """

    hosts: int
    pages: int
    seed: int
    kills: int
    workers: Mapping[str, int]
    directory: Path
    limit_s: float


@dataclass(slots=True)
class DemoState:
    """What the progress display shows.

    Attributes:
        expected: documents that a right crawl publishes.
        status: of the crawl; None before it has begun.
        documents: committed so far, as a reader of the topic counts them.
        lag: stage → offsets left.
        workers: label, process id (None while there is none), how often it was started anew.
        rate: pages per second since the last look.
        elapsed_s: since the beginning.
        events: what has happened, the newest last.
    """

    expected: int = 0
    status: CrawlStatus | None = None
    documents: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    workers: list[tuple[str, int | None, int]] = field(default_factory=list)
    rate: float = 0.0
    elapsed_s: float = 0.0
    events: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """How the demo went.

    Attributes:
        report: the checker's.
        ended: whether the crawl came to its end in time.
        elapsed_s: from the submission to the end.
        cpu_s: CPU seconds by stage, and of broker, monitor and origin.
        pages: pages fetched.
        restarts: worker → how often it was started anew.
        kills: workers that were killed, in order.
        documents: directory of the finished files.
    """

    report: Report
    ended: bool
    elapsed_s: float
    cpu_s: Mapping[str, float]
    pages: int
    restarts: Mapping[str, int]
    kills: list[str]
    documents: Path

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.ended and self.report.ok


class DocumentCounter:
    """Counts the committed documents as any reader of the topic would see them.

    Args:
        options: librdkafka options of the broker.
        partitions: of the topic.
    """

    def __init__(self, options: Mapping[str, str], partitions: int) -> None:
        self._consumer = Consumer(
            {**options, "group.id": "demo", "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(DOCUMENTS.name, number, 0) for number in range(partitions)])
        self._count = 0

    def count(self) -> int:
        """Return how many there are by now."""
        while messages := self._consumer.consume(COUNTED_AT_ONCE, 0):
            self._count += sum(1 for message in messages if message.error() is None)
        return self._count

    def close(self) -> None:
        """End the client."""
        self._consumer.close()


class Demo:
    """Runs one demo.

    Args:
        plan: what to do.
        show: called with the state about twice a second.
    """

    def __init__(self, plan: DemoPlan, show: Callable[[DemoState], None]) -> None:
        self._plan = plan
        self._show = show
        self._state = DemoState()
        self._kills: list[str] = []
        self._interruptions: list[Interruption] = []

    def run(self) -> DemoResult:
        """Start everything, crawl, count, stop everything.

        Raises:
            ConfigurationError: something can't be started.
            BrokerError: the broker ended.
        """
        plan = self._plan
        directory = plan.directory
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigurationError(f"{directory} is not empty: what an earlier run left there would be counted")
        self._say("starting a broker and a simulated web")
        with (
            ServedWeb(plan.seed, plan.hosts, plan.pages, directory / "requests.jsonl") as served,
            LocalStack(directory / "local", registry=False) as stack,
        ):
            expectation = served.web.expectation(MAX_DEPTH)
            self._state.expected = len(expectation.documents)
            environ = self._environ(served.port, stack.addresses.bootstrap)
            settings = with_addresses(
                load(environ={**os.environ, **environ}).settings, stack.addresses
            )  # as workers do
            topics.apply(client_options(settings.broker), settings)
            codecs = load_codec()
            definition = {
                "crawl": CRAWL, "start_urls": list(served.web.start_urls), "scope": [], "max_depth": MAX_DEPTH,
                "created_at_ms": int(time.time() * 1000), "max_pages": None, "max_pages_per_domain": None,
                "delay_ms": None,
            }  # fmt: skip
            self._say(f"broker {stack.addresses.bootstrap}, files and logs in {directory}")
            run = CrawlRun(settings, codecs, definition)
            documents = DocumentCounter(client_options(settings.broker), settings.topics.partitions)
            fleet = Fleet(directory, environ, plan.workers)
            monitor = WorkerProcess(
                "monitor",
                ["-m", "pipeline.cli", "monitor"],
                {**environ, "HEADRACE_WORKER__METRICS_PORT": "0", "HEADRACE_WORKER__DATA_DIR": str(directory)},
                directory / "logs" / "monitor.log",
            )
            try:
                self._say(f"starting {sum(plan.workers.values())} workers and a monitor")
                fleet.start()
                monitor.start()
                run.begin(served.web.start_urls)
                began_s = time.monotonic()
                ended = self._follow(run, fleet, monitor, stack, documents)
                elapsed_s = time.monotonic() - began_s
                pages = self._state.status.pages if self._state.status else 0
                broker_cpu_s = process_cpu_s(stack.broker.pid) if stack.broker.pid else 0.0
                self._say("stopping the workers, counting the documents")
                for label in fleet.stop():
                    self._say(f"{label} had to be killed at the end")
            finally:
                fleet.stop()
                monitor.terminate()
                monitor.wait(5)
                run.close()
                documents.close()
            restarts = {worker.label: worker.restarts for worker in fleet.all if worker.restarts}
            # Workers that were killed from outside too: when is not known, so the times excuse nothing.
            known = sum(restarts.values()) == len(self._kills)
            report = check(
                stack.addresses.bootstrap,
                expectation,
                served.log,
                DELAY_S,
                crawl=CRAWL,
                interruptions=self._interruptions if known else None,
            )
            cpu_s = {
                **{stage: sum(w.cpu_s() for w in workers) for stage, workers in fleet.by_stage.items()},
                "broker": broker_cpu_s,
                "monitor": monitor.cpu_s(),
                "origin": served.cpu_s(),
            }
        return DemoResult(report, ended, elapsed_s, cpu_s, pages, restarts, self._kills, settings.store.directory)

    def _environ(self, port: int, bootstrap: str) -> dict[str, str]:
        return {
            **crawler_options(port),
            "HEADRACE_CONFIG": os.devnull,  # a configuration for a cluster is not meant for this
            "HEADRACE_BROKER__BOOTSTRAP": bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": str(DELAY_S),
            "HEADRACE_POLITENESS__BACKOFF_S": str(BACKOFF_S),
            "HEADRACE_DELIVERY__SESSION_TIMEOUT_S": str(SESSION_S),
            "HEADRACE_STORE__DIRECTORY": str(self._plan.directory / "documents"),
            "HEADRACE_STORE__SEGMENT_S": "1",
        }

    def _follow(
        self, run: CrawlRun, fleet: Fleet, monitor: WorkerProcess, stack: LocalStack, documents: DocumentCounter
    ) -> bool:
        began_s = looked_s = time.monotonic()
        pages = 0
        while (now_s := time.monotonic()) - began_s < self._plan.limit_s:
            fleet.look_after()
            monitor.look_after()
            stack.check()
            self._state.documents = documents.count()
            self._state.workers = [(worker.label, worker.pid, worker.restarts) for worker in fleet.all]
            self._state.elapsed_s = now_s - began_s
            if now_s - looked_s >= END_LOOK_S:
                status = self._state.status = run.status()
                self._state.rate = (status.pages - pages) / (now_s - looked_s)
                self._state.lag = _lag_of(monitor)
                pages, looked_s = status.pages, now_s
                self._kill_when_due(fleet, status)
                if status.ended and len(self._kills) >= self._plan.kills:
                    return self._wait_for_store(run, fleet)
            self._show(self._state)
            time.sleep(LOOK_S)
        return False

    def _wait_for_store(self, run: CrawlRun, fleet: Fleet) -> bool:
        deadline = time.monotonic() + STORE_WAIT_S
        while run.documents_left() and time.monotonic() < deadline:
            fleet.look_after()
            time.sleep(LOOK_S)
        return run.documents_left() == 0

    def _kill_when_due(self, fleet: Fleet, status: CrawlStatus) -> None:
        """Spread the kills evenly over the documents; what is left when the crawl ends is done then."""
        done = len(self._kills)
        due = status.pages >= self._state.expected * (done + 1) / (self._plan.kills + 1)
        if done >= self._plan.kills or not (due or status.ended):
            return
        stages = [stage for stage in VICTIMS if fleet.by_stage.get(stage)]
        workers = fleet.by_stage[stages[done % len(stages)]]
        victim = workers[done // len(stages) % len(workers)]
        if victim.pid is None:
            return
        self._say(f"kill -9 {victim.label} (pid {victim.pid})")
        victim.kill()
        self._kills.append(victim.label)
        self._interruptions.append(killed(time.time_ns()))

    def _say(self, event: str) -> None:
        self._state.events.append(event)
        self._show(self._state)


def _lag_of(monitor: WorkerProcess) -> dict[str, int]:
    """Ask the monitor process; empty while it does not answer."""
    status: dict[str, Any] = json.loads(monitor.read("/status") or b'{"lag": {}}')
    return {stage: sum(by_topic.values()) for stage, by_topic in status["lag"].items()}


def progress_view(state: DemoState) -> Group:
    """Return what a terminal shows of a running demo."""
    status = state.status
    crawl = Table(title=f"headrace demo, {state.elapsed_s:.0f} s")
    for name in ("documents", "of", "pages", "pages/s", "waiting", "in flight"):
        crawl.add_column(name, justify="right")
    numbers = (status.pages, round(state.rate), status.waiting, status.out) if status else ("-",) * 4
    crawl.add_row(str(state.documents), str(state.expected or "-"), *map(str, numbers))
    workers = Table()
    for name in ("worker", "process", "started anew", "lag of its stage"):
        workers.add_column(name, justify="left" if name == "worker" else "right")
    for label, pid, restarts in state.workers:
        lag = state.lag.get(label.rpartition("-")[0], "-")
        workers.add_row(label, str(pid or "-"), str(restarts or ""), str(lag))
    return Group(*state.events[-8:], crawl, workers)


def result_table(result: DemoResult) -> Table:
    """Return the figures beside the checker's report."""
    table = Table(title="What it cost")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_row("pages fetched", str(result.pages))
    table.add_row("seconds", f"{result.elapsed_s:.1f}")
    table.add_row("pages/s", f"{result.pages / result.elapsed_s:.1f}")
    for name, cpu_s in result.cpu_s.items():
        table.add_row(f"CPU-s / 1,000 pages, {name}", f"{1000 * cpu_s / max(1, result.pages):.2f}")
    table.add_row("killed", ", ".join(result.kills) or "-")
    restarts = ", ".join(f"{label} ({count})" for label, count in result.restarts.items())
    table.add_row("started anew", restarts or "-")
    return table


def worker_counts(pairs: tuple[str, ...], default: int = 1) -> dict[str, int]:
    """Return stage → workers from `STAGE=N` words; unnamed stages get the default.

    Raises:
        ValueError: a word is not of that form.
    """
    counts = dict.fromkeys(STAGES, default)
    for stage, _, number in (pair.partition("=") for pair in pairs):
        if stage not in counts or not number.isdigit() or int(number) < 1:
            raise ValueError(f"{stage}={number}: STAGE=N with a stage of {', '.join(STAGES)} and N of at least 1")
        counts[stage] = int(number)
    return counts
