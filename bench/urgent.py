"""Urgent tasks behind a backlog: `python -m bench.urgent [--tasks N] [--domains N] [--seconds S] [--json]`.

A local broker, a frontier and a fetch worker with the usual configuration, and a site on loopback that answers for all
domains. So many bulk tasks lie in the topic when the workers start. Then urgent tasks are submitted at a steady rate,
every other one of a domain that has none yet, the others of domains of the backlog, which are asked as often as they
may be. It is measured twice: while the backlog is being read, and when all of it waits in the frontier's state.

An urgent task is in its lane when a read_committed reader of the lane has it. It is fetched first when no other request
to its domain begins between then and its own; one that begins in the moment in which fetch itself reads the lane is not
counted. How late another one began at most is told.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.background import Background
from bench.calibration import calibrate
from bench.latency import Latencies, Site
from bench.machine import machine, sentence
from bench.pipeline import wait_until_ready
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.local.simulated_web import crawler_options
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.local.topic_reader import read_all
from pipeline.ops import topics
from pipeline.ops.submission import Submission
from pipeline.topics import FETCHES, LANE_URGENT, TASKS, group_id
from pipeline.web.partition import partition_for

TASKS_LOADED: Final = 1_000_000
DOMAINS: Final = 2_000
SECONDS: Final = 60.0
RATE_PER_S: Final = 10.0
CRAWL: Final = "default"
GOAL_P99_S: Final = 0.500
READING_S: Final = 0.1
"""For so long after a record became visible fetch may not have read it yet."""
SETTLE_S: Final = 5.0
"""A worker's first rounds are not measured."""
READ_LIMIT_S: Final = 3_600.0
FETCHED_LIMIT_S: Final = 30.0
LOOK_S: Final = 1.0
NEW, OF_BACKLOG = "of new domains", "of domains of the backlog"


class Sent(NamedTuple):
    """An urgent task.

    Attributes:
        url: of the task.
        kind: what its domain is.
        at_s: when it was submitted, seconds since the epoch.
    """

    url: str
    kind: str
    at_s: float


class Request(NamedTuple):
    """A request, as its outcome tells: the URL, and when it began and the outcome was written, s since the epoch."""

    url: str
    began_s: float
    written_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found of some urgent tasks.

    Attributes:
        tasks: how many.
        lane: from submission until it is visible in its lane; seconds, as all.
        request: from submission until its request begins.
        first: share of them that were fetched first.
        overtaken: most requests that went before one of them.
        other_s: how long after a task was visible in its lane another request of its domain began before its own, at
            most; 0 where none did.
    """

    tasks: int
    lane: Latencies
    request: Latencies
    first: float
    overtaken: int
    other_s: float


@dataclass(frozen=True, slots=True)
class Phase:
    """One of the two measurements.

    Attributes:
        name: of the phase.
        figures: by what the tasks' domains are.
        fetched_per_s: bulk requests.
        read_per_s: bulk tasks that the frontier read from its topic.
        waiting: bulk tasks that lay in the topic at the end.
    """

    name: str
    figures: Mapping[str, Figures]
    fetched_per_s: float
    read_per_s: float
    waiting: int

    @property
    def good(self) -> bool:
        """Whether the goals were reached, and bulk moved."""
        figures = self.figures.values()
        reached = all(found.lane.p99 <= GOAL_P99_S and not found.overtaken for found in figures)
        return reached and self.fetched_per_s > 0


class Lane(Background):
    """Notes when urgent records become visible, in a thread of its own. Used as a context manager.

    Args:
        settings: with a broker.
        codecs: contracts.
    """

    def __init__(self, settings: Settings, codecs: Codecs) -> None:
        super().__init__("lane")
        options = {"group.id": "bench-urgent", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**client_options(settings.broker), **options})
        self._consumer.assign([TopicPartition(LANE_URGENT.name, n, 0) for n in range(settings.topics.partitions)])
        self._decode = codecs.decoder(LANE_URGENT.subject)
        self._more = threading.Condition()
        self.seen: dict[str, float] = {}
        """URL → when its first record was seen, seconds since the epoch."""

    def wait_for(self, urls: Sequence[str]) -> None:
        """Wait until all of them have been seen.

        Raises:
            SystemExit: it takes too long.
        """
        with self._more:
            if not self._more.wait_for(lambda: all(url in self.seen for url in urls), FETCHED_LIMIT_S):
                raise SystemExit(f"not in its lane: {[url for url in urls if url not in self.seen][:3]}")

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            at_s = time.time()
            if message is not None and message.error() is None:
                url = self._decode(message.value())["url"]
                with self._more:
                    self.seen.setdefault(url, at_s)
                    self._more.notify_all()

    def _close(self) -> None:
        self._consumer.close()


class Backlog:
    """The bulk tasks: where they are, and how many of them were read.

    Args:
        settings: with a broker.
        codecs: contracts.
        domains: how many.
        port: where all of them answer.
    """

    def __init__(self, settings: Settings, codecs: Codecs, domains: int, port: int) -> None:
        self._options = client_options(settings.broker)
        self._partitions = settings.topics.partitions
        self._encode = codecs.encoder(TASKS.subject)
        self._names = [f"site{number:05d}.test" for number in range(domains)]
        self._port = port
        self._consumer = Consumer({**self._options, "group.id": group_id("frontier"), "enable.auto.commit": False})
        self.tasks = 0

    def url(self, number: int, path: str) -> str:
        """Return a URL of one of the domains; numbers begin anew after the last."""
        return f"http://{self._names[number % len(self._names)]}:{self._port}/{path}"

    def load(self, tasks: int) -> None:
        """Write so many tasks; domains take turns."""
        producer = Producer(
            {**self._options, "enable.idempotence": True, "linger.ms": 20, "compression.type": "zstd", "log_level": 3}
        )
        partitions = [partition_for(name.encode(), self._partitions) for name in self._names]
        task = {
            "crawl": CRAWL,
            "priority": 5,
            "depth": 0,
            "source": "bench",
            "submitted_at_ms": int(time.time() * 1000),
        }
        for number in range(tasks):
            at = number % len(self._names)
            value = self._encode({**task, "url": self.url(number, f"bulk/{number}")})
            while True:
                try:
                    producer.produce(TASKS.name, value, self._names[at].encode(), partitions[at])
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(FETCHED_LIMIT_S):
            raise SystemExit("the broker did not take the backlog")
        self.tasks += tasks

    def left(self) -> int:
        """Return how many tasks lie in the topic, by the offsets that the frontier has committed."""
        partitions = [TopicPartition(TASKS.name, number) for number in range(self._partitions)]
        return self.tasks - sum(max(0, found.offset) for found in self._consumer.committed(partitions))

    def wait_until_read(self) -> None:
        """Wait until the frontier has read all.

        Raises:
            SystemExit: it takes too long.
        """
        deadline = time.monotonic() + READ_LIMIT_S
        while self.left():
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.left()} tasks were not read in {READ_LIMIT_S:.0f} s")
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


class Bench:
    """The measurements, on workers that run.

    Args:
        settings: with a broker.
        codecs: contracts.
        backlog: that was loaded.
        lane: the urgent one.
        seconds: how long urgent tasks are submitted in each.
        say: progress, for people.
    """

    def __init__(
        self, settings: Settings, codecs: Codecs, backlog: Backlog, lane: Lane, *, seconds: float, say: Console
    ) -> None:
        self._bootstrap = settings.broker.bootstrap or ""
        self._codecs = codecs
        self._backlog = backlog
        self._lane = lane
        self._seconds = seconds
        self._say = say
        self._submission = Submission(client_options(settings.broker), codecs)
        self._numbers = itertools.count()

    def measure(self, name: str) -> Phase:
        """Submit urgent tasks for a while, and wait until they are fetched."""
        self._say.print(f"{name}: urgent tasks for {self._seconds:.0f} s")
        left, begun_s = self._backlog.left(), time.time()
        sent = self._submit()
        ended_s, left_then = time.time(), self._backlog.left()
        urls = [task.url for task in sent]
        self._lane.wait_for(urls)
        requests = self._requests(set(urls))
        bulk = sum(begun_s <= one.written_s < ended_s and "/bulk/" in one.url for one in requests)
        figures = {}
        for kind in (NEW, OF_BACKLOG):
            found = [task for task in sent if task.kind == kind]
            figures[kind] = _figures(found, self._lane.seen, requests)
        elapsed_s = ended_s - begun_s
        return Phase(name, figures, bulk / elapsed_s, (left - left_then) / elapsed_s, left_then)

    def _submit(self) -> list[Sent]:
        """Submit one task after the other at the wanted rate."""
        sent: list[Sent] = []
        begun_s = time.monotonic()
        for turn in range(int(self._seconds * RATE_PER_S)):
            time.sleep(max(0.0, begun_s + turn / RATE_PER_S - time.monotonic()))
            number = next(self._numbers)
            of_backlog = self._backlog.url(number * 7, f"urgent/{number}")  # 7: neighbours are of other partitions
            kind, url = (NEW, f"http://new{number}.test:{_port(of_backlog)}/") if turn % 2 else (OF_BACKLOG, of_backlog)
            at_s = time.time()
            self._submission.submit([url], CRAWL, 1, at_s)
            self._submission.flush()
            sent.append(Sent(url, kind, at_s))
        return sent

    def _requests(self, awaited: set[str]) -> list[Request]:
        """Return all requests so far, once those that are awaited are among them."""
        decode = self._codecs.decoder(FETCHES.subject)
        deadline = time.monotonic() + FETCHED_LIMIT_S
        while True:
            rows = ((decode(row.value), row.timestamp / 1000) for row in read_all(self._bootstrap, FETCHES.name))
            requests = [Request(row["url"], row["started_at_ms"] / 1000, at_s) for row, at_s in rows if row["requests"]]
            missing = awaited - {request.url for request in requests}
            if not missing:
                return requests
            if time.monotonic() > deadline:
                raise SystemExit(f"not fetched: {sorted(missing)[:3]}, {len(missing)} in all")
            time.sleep(LOOK_S)


def _port(url: str) -> str:
    return url.split("/", 3)[2].partition(":")[2]


def _figures(sent: Sequence[Sent], seen: Mapping[str, float], requests: Sequence[Request]) -> Figures:
    """Set what was sent against what was seen in the lane and at the sites."""
    began = {request.url: request.began_s for request in requests}
    by_site: dict[str, list[float]] = defaultdict(list)
    for request in requests:
        by_site[request.url.split("/", 3)[2]].append(request.began_s)
    for times in by_site.values():
        times.sort()
    overtaken, other_s = [], 0.0
    for task in sent:
        times = by_site[task.url.split("/", 3)[2]]
        place = bisect.bisect_left(times, began[task.url])
        overtaken.append(max(0, place - bisect.bisect_right(times, seen[task.url] + READING_S)))
        if place:
            other_s = max(other_s, times[place - 1] - seen[task.url])
    return Figures(
        len(sent),
        Latencies.of([seen[task.url] - task.at_s for task in sent]),
        Latencies.of([began[task.url] - task.at_s for task in sent]),
        overtaken.count(0) / len(sent),
        max(overtaken),
        other_s,
    )


def measure(tasks: int, domains: int, seconds: float, directory: Path, say: Console) -> list[Phase]:
    """Measure both phases on a broker of our own."""
    with Site() as site, LocalStack(directory / "local", registry=False) as stack:
        environ = {
            **crawler_options(site.port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": stack.addresses.bootstrap,
        }
        settings = with_addresses(load(environ=environ).settings, stack.addresses)
        topics.apply(client_options(settings.broker), settings)
        codecs = load_codec()
        backlog = Backlog(settings, codecs, domains, site.port)
        fleet = Fleet(directory, environ, {"frontier": 1, "fetch": 1})
        try:
            say.print(f"{tasks:,} tasks of {domains:,} domains are written")
            backlog.load(tasks)
            with Lane(settings, codecs) as lane:
                bench = Bench(settings, codecs, backlog, lane, seconds=seconds, say=say)
                fleet.start()
                wait_until_ready(fleet)
                time.sleep(SETTLE_S)
                phases = [bench.measure("while the backlog is read")]
                say.print(f"{backlog.left():,} tasks are left to read")
                backlog.wait_until_read()
                phases.append(bench.measure("while the backlog waits"))
        finally:
            fleet.stop()
            backlog.close()
        return phases


def table_of(phases: Sequence[Phase], tasks: int, domains: int) -> Table:
    """Return the table for people."""
    table = Table(
        title=f"urgent tasks behind {tasks:,} bulk tasks of {domains:,} domains",
        caption=f"goals: lane p99 ≤ {GOAL_P99_S * 1000:.0f} ms, all fetched first",
    )
    for column in (
        "",
        "tasks",
        "lane p50, ms",
        "p99",
        "max",
        "request p50, ms",
        "p99",
        "fetched first",
        "another began, ms",
    ):
        table.add_column(column, justify="right" if column else "left")
    for phase in phases:
        table.add_section()
        table.add_row(
            f"{phase.name}: {phase.fetched_per_s:.0f} bulk pages/s fetched, {phase.read_per_s:,.0f} tasks/s read, "
            f"{phase.waiting:,} unread"
        )
        for kind, found in phase.figures.items():
            lane, request = found.lane, found.request
            moments = (lane.p50, lane.p99, lane.most, request.p50, request.p99)
            shown = [f"{value * 1000:.0f}" for value in moments]
            table.add_row(f"  {kind}", f"{found.tasks}", *shown, f"{found.first:.1%}", f"{found.other_s * 1000:.0f}")
    return table


def main() -> None:
    """Print the table; the status says whether the goals were reached."""
    parser = argparse.ArgumentParser(prog="python -m bench.urgent", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS_LOADED, help="bulk tasks")
    parser.add_argument("--domains", type=int, default=DOMAINS, help="of the bulk tasks")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long urgent tasks are submitted, twice")
    parser.add_argument("--directory", type=Path, help="keep logs and files here")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    calibration = calibrate()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        directory = options.directory or Path(temporary)
        phases = measure(options.tasks, options.domains, options.seconds, directory, Console(stderr=True))
    if options.json:
        row = {
            "machine": machine(), "calibration": asdict(calibration), "tasks": options.tasks,
            "domains": options.domains, "phases": [asdict(phase) for phase in phases],
        }  # fmt: skip
        print(json.dumps(row, ensure_ascii=False))
    else:
        console = Console(width=150)
        console.print(table_of(phases, options.tasks, options.domains))
        console.print(sentence(machine()), f"calibration: {calibration}")
    sys.exit(not all(phase.good for phase in phases))


if __name__ == "__main__":
    main()
