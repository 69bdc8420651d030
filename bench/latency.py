"""How long one task takes on an idle pipeline: `python -m bench.latency [--tasks N] [--pause S] [--json]`.

A local broker, one worker of each stage with the usual configuration, and a site on loopback whose pages have no links.
Tasks are submitted one at a time; measured is the time from the call that submits one to the moment at which a
read_committed reader of the documents has it. Each domain was asked once before, so robots.txt is known and no pause
after an assignment is left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.calibration import Calibration, calibrate
from bench.pipeline import wait_until_ready
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.local.simulated_web import crawler_options
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.local.topic_reader import read_all
from pipeline.ops import topics
from pipeline.ops.submission import Submission
from pipeline.topics import DOCUMENTS, FETCHES, LANE_NORMAL, PAGES, STAGES, Topic

TASKS = 200
PAUSE_S = 1.5
DOMAINS = 20
PRIORITY = 3
CRAWL = "default"
VISIBLE_LIMIT_S = 30.0
GOAL_P50_S = 0.150
GOAL_P99_S = 0.500
LEGS = (
    "submitted → lane record written",
    "→ request begins",
    "→ response ends",
    "→ page written",
    "→ parsed",
    "→ document written",
    "→ document visible",
)


class Latencies(NamedTuple):
    """Nearest-rank percentiles, seconds."""

    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Sum up some values."""
        ordered = sorted(values)
        return cls(*(ordered[max(0, -(-len(ordered) * share // 100) - 1)] for share in (50, 90, 99, 100)))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found.

    Attributes:
        tasks: how many.
        total: from submission to visibility.
        legs: where the time goes: each leg from the end of the one before.
    """

    tasks: int
    total: Latencies
    legs: Mapping[str, Latencies]

    @property
    def good(self) -> bool:
        """Whether the goals were reached."""
        return self.total.p50 <= GOAL_P50_S and self.total.p99 <= GOAL_P99_S


class Site:
    """Answers every page at once, and has no robots.txt; a thread of its own. Used as a context manager.

    Attributes:
        port: on the loopback address.
    """

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(started),), name="site")
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                body = b"<title>" + path + b"</title><p>The text of " + path + b"</p>"
                status = b"404 Not Found" if path == b"/robots.txt" else b"200 OK"
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b"
                    % (status, len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has gone
            writer.close()


class Visible:
    """Reads the documents as any reader would: committed records only, from now on.

    Args:
        settings: with a broker.
        codecs: contracts.
    """

    def __init__(self, settings: Settings, codecs: Codecs) -> None:
        options = {"group.id": "bench-latency", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**client_options(settings.broker), **options})
        self._consumer.assign([TopicPartition(DOCUMENTS.name, n, 0) for n in range(settings.topics.partitions)])
        self._decode = codecs.decoder(DOCUMENTS.subject)

    def wait(self, *urls: str) -> dict[str, float]:
        """Wait for the documents of some URLs; returns when each came, seconds since the epoch."""
        came: dict[str, float] = {}
        deadline = time.monotonic() + VISIBLE_LIMIT_S
        while len(came) < len(urls):
            if time.monotonic() > deadline:
                raise SystemExit(f"not visible after {VISIBLE_LIMIT_S:.0f} s: {set(urls) - came.keys()}")
            message = self._consumer.poll(0.1)
            at_s = time.time()
            if message is not None and message.error() is None:
                url = self._decode(message.value())["url"]
                if url in urls:
                    came[url] = at_s
        return came

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()


def measure(tasks: int, pause_s: float, directory: Path) -> Measured:
    """Submit tasks one at a time to a pipeline of our own."""
    with Site() as site, LocalStack(directory / "local", registry=False) as stack:
        environ = {
            **crawler_options(site.port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": stack.addresses.bootstrap,
            "HEADRACE_STORE__DIRECTORY": str(directory / "documents"),
        }
        settings = with_addresses(load(environ=environ).settings, stack.addresses)
        topics.apply(client_options(settings.broker), settings)
        codecs = load_codec()
        fleet = Fleet(directory, environ, dict.fromkeys(STAGES, 1))
        visible = Visible(settings, codecs)
        submission = Submission(client_options(settings.broker), codecs)

        def submit(*urls: str) -> float:
            at_s = time.time()
            submission.submit(urls, CRAWL, PRIORITY, at_s)
            submission.flush()
            return at_s

        try:
            fleet.start()
            wait_until_ready(fleet)
            domains = [f"http://site{number:02d}.test:{site.port}" for number in range(DOMAINS)]
            fronts = [f"{domain}/" for domain in domains]
            submit(*fronts)
            visible.wait(*fronts)
            time.sleep(pause_s)  # the pipeline is idle again
            times: dict[str, tuple[float, float]] = {}
            for number in range(tasks):
                url = f"{domains[number % DOMAINS]}/{number}"
                began_s = time.monotonic()
                submitted_s = submit(url)
                times[url] = submitted_s, visible.wait(url)[url]
                time.sleep(max(0.0, began_s + pause_s - time.monotonic()))
        finally:
            visible.close()
            fleet.stop()
        return _sum_up(times, stack.addresses.bootstrap, codecs)


def _sum_up(times: Mapping[str, tuple[float, float]], bootstrap: str, codecs: Codecs) -> Measured:
    """Take the legs from the records' own times, which are in milliseconds."""

    def by_url(topic: Topic) -> dict[str, tuple[dict[str, Any], float]]:
        decoded = (
            (codecs.decode(topic.subject, row.value), row.timestamp / 1000) for row in read_all(bootstrap, topic.name)
        )
        return {record["url"]: (record, at_s) for record, at_s in decoded}

    lanes, outcomes, pages, documents = map(by_url, (LANE_NORMAL, FETCHES, PAGES, DOCUMENTS))
    legs: dict[str, list[float]] = {name: [] for name in LEGS}
    for url, (submitted_s, visible_s) in times.items():
        moments = (
            submitted_s,
            lanes[url][1],
            outcomes[url][0]["started_at_ms"] / 1000,
            outcomes[url][0]["ended_at_ms"] / 1000,
            pages[url][1],
            documents[url][0]["parsed_at_ms"] / 1000,
            documents[url][1],
            visible_s,
        )
        for name, before_s, after_s in zip(LEGS, moments, moments[1:], strict=False):
            legs[name].append(after_s - before_s)
    totals = [visible_s - submitted_s for submitted_s, visible_s in times.values()]
    return Measured(len(times), Latencies.of(totals), {name: Latencies.of(values) for name, values in legs.items()})


def table_of(measured: Measured, calibration: Calibration) -> Table:
    """Return the table for people, in milliseconds."""
    table = Table(
        title=f"{measured.tasks} single tasks on an idle pipeline, ms",
        caption=f"goals: p50 ≤ {GOAL_P50_S * 1000:.0f}, p99 ≤ {GOAL_P99_S * 1000:.0f}; "
        f"calibration: {calibration.best_s * 1000:.1f} ms",
    )
    for name in ("", "p50", "p90", "p99", "max"):
        table.add_column(name, justify="right" if name else "left")
    for name, latencies in measured.legs.items():
        table.add_row(name, *(f"{value * 1000:.0f}" for value in latencies))
    table.add_section()
    table.add_row("submitted → document visible", *(f"{value * 1000:.0f}" for value in measured.total))
    return table


def main() -> None:
    """Print the table; the status says whether the goals were reached."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--pause", type=float, default=PAUSE_S, help="seconds from one submission to the next")
    parser.add_argument("--directory", type=Path, help="keep logs and files here")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    calibration = calibrate()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        measured = measure(options.tasks, options.pause, options.directory or Path(temporary))
    if options.json:
        row = {
            "calibration": asdict(calibration),
            "tasks": measured.tasks,
            "total_s": measured.total._asdict(),
            "legs_s": {name: latencies._asdict() for name, latencies in measured.legs.items()},
        }
        print(json.dumps(row, ensure_ascii=False))
    else:
        Console().print(table_of(measured, calibration))
    sys.exit(not measured.good)


if __name__ == "__main__":
    main()
