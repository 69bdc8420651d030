"""What delivery itself costs: `make bench-delivery`.

Worker processes with stages that do next to nothing, on a local broker: records a second and CPU a record of both
runners, with one Faust event a batch as they have it and with one a record, beside a plain Faust agent that sends on
what it gets (at least once). Each reads the same input from its beginning, alone. Then the transaction itself, by the
number of partitions it touches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so
from rich.console import Console
from rich.table import Table

from bench import commit_cost
from bench.bare_stages import Work
from bench.bare_worker import Job, Runner, Sample, to_json
from bench.calibration import calibrate
from bench.commit_cost import TOUCHED, CommitCost
from bench.machine import machine, sentence
from pipeline.local.kafka import LocalBroker

PARTITIONS = 6
SMALL_BYTES = 100
LARGE_BYTES = 20_000
SECONDS = 6.0
RECORDS = {SMALL_BYTES: 800_000, LARGE_BYTES: 60_000}
NEW_KEYS_OF_TEN = 9
TRANSACTIONS = 100
GOAL_PER_S = 50_000
REACH_S = 10.0
LIMIT_S = 60.0


class Kind(NamedTuple):
    """A row of the table."""

    runner: Runner
    work: Work
    value_bytes: int
    record_events: bool = False

    @property
    def name(self) -> str:
        """For people."""
        runner = "plain Faust" if self.runner == "faust" else self.runner
        work = {"none": "no output", "pass": "one output", "dedup": "dedup, 90 % new"}[self.work]
        return f"{runner}, {work}{', an event a record' if self.record_events else ''}"


KINDS = (
    Kind("faust", "pass", SMALL_BYTES),
    Kind("parallel", "pass", SMALL_BYTES, record_events=True),
    Kind("ordered", "pass", SMALL_BYTES, record_events=True),
    Kind("parallel", "none", SMALL_BYTES),
    Kind("parallel", "pass", SMALL_BYTES),
    Kind("ordered", "none", SMALL_BYTES),
    Kind("ordered", "pass", SMALL_BYTES),
    Kind("ordered", "dedup", SMALL_BYTES),
    Kind("faust", "pass", LARGE_BYTES),
    Kind("parallel", "pass", LARGE_BYTES),
    Kind("ordered", "pass", LARGE_BYTES),
    Kind("ordered", "dedup", LARGE_BYTES),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One worker.

    Attributes:
        name: what it did.
        value_bytes: of each record.
        records: committed (of a plain agent: handled) while it was measured.
        rate_per_s: of them.
        cpu_us: of the worker, all threads, a record.
        broker_us: of the broker, a record.
        commits: transactions in that time.
        broker_cores: CPU seconds of the broker a second.
    """

    name: str
    value_bytes: int
    records: int
    rate_per_s: float
    cpu_us: float
    broker_us: float
    commits: int
    broker_cores: float


class Bench:
    """Workers on one broker.

    Args:
        bootstrap: host:port.
        broker_pid: its CPU time is counted.
        directory: for data and logs.
    """

    def __init__(self, bootstrap: str, broker_pid: int, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._broker_pid = broker_pid
        self._directory = directory
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._inputs: dict[int, tuple[str, int]] = {}

    def fill(self, value_bytes: int, records: int) -> None:
        """Write the input of all workers with values of that size: of ten records in a row one key comes twice."""
        topic = f"bench-in-{value_bytes}-{len(self._inputs)}"
        self._create(topic)
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 20, "log_level": 3})
        value = os.urandom(value_bytes)
        for number in range(records):
            partition, row = number % PARTITIONS, number // PARTITIONS
            key = b"%d-%d" % (partition, row - 1 if row % 10 >= NEW_KEYS_OF_TEN else row)
            while True:
                try:
                    producer.produce(topic, value, key, partition)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break
        producer.flush(LIMIT_S)
        self._inputs[value_bytes] = topic, records

    def run(self, kind: Kind, seconds: float) -> Measured:
        """Let one worker of a kind read its input from the beginning, for so long or to the end."""
        topic, records = self._inputs[kind.value_bytes]
        group = f"bench-{'-'.join(map(str, kind))}".lower()
        job = Job(
            kind.runner, kind.work, kind.record_events, group, topic, records, kind.value_bytes, seconds,
            self._broker_pid, str(self._directory / f"{group}.json"),
        )  # fmt: skip
        topics = [job.out, *([job.changelog] if job.changelog else [])]
        for name in topics:
            self._create(name, **({"cleanup.policy": "compact"} if name == job.changelog else {}))
        try:
            self._work(job)
        finally:
            for gone in self._admin.delete_topics(topics).values():
                gone.result(REACH_S)
        first, last = (Sample(*row) for row in json.loads(Path(job.result).read_text(encoding="utf-8")))
        return _measured(kind, first, last)

    def _create(self, topic: str, **config: str) -> None:
        made = NewTopic(topic, PARTITIONS, 1, config={"file.delete.delay.ms": "100", **config})
        self._admin.create_topics([made])[topic].result(REACH_S)

    def _work(self, job: Job) -> None:
        (self._directory / job.group).mkdir()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | {
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self._bootstrap,
            "HEADRACE_TOPICS__PARTITIONS": str(PARTITIONS),
            "HEADRACE_WORKER__DATA_DIR": str(self._directory / job.group),
            "HEADRACE_WORKER__LOG_LEVEL": "error",
        }
        done = subprocess.run(
            [sys.executable, "-m", "bench.bare_worker"],
            input=to_json(job), env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=LIMIT_S + job.seconds, check=False,
        )  # fmt: skip
        if not Path(job.result).exists():
            raise SystemExit(f"the worker of {job.group} ended with status {done.returncode}:\n{done.stderr[-4_000:]}")


def _measured(kind: Kind, first: Sample, last: Sample) -> Measured:
    records, seconds = last.records - first.records, last.at_s - first.at_s
    if not records:
        raise SystemExit(f"{kind.name}: it was over at its first commit; give it more records")
    broker_s = last.broker_s - first.broker_s
    return Measured(
        kind.name, kind.value_bytes, records, records / seconds, 1e6 * (last.cpu_s - first.cpu_s) / records,
        1e6 * broker_s / records, last.commits - first.commits, broker_s / seconds,
    )  # fmt: skip


def table_of(rows: Sequence[Measured]) -> Table:
    """Return the table for people; the ratio to the plain agent with the same values stands last."""
    table = Table(title="one worker process")
    columns = (
        "", "value", "records/s", "CPU-µs/record", "broker", "records/txn", "broker ms/txn", "broker cores",
        "times plain Faust",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    plain = {row.value_bytes: row.rate_per_s for row in rows if row.name == KINDS[0].name}
    for row in rows:
        per_commit = (
            (row.records / row.commits, row.broker_us * row.records / row.commits / 1000) if row.commits else ()
        )
        table.add_row(
            row.name,
            f"{row.value_bytes:,} B",
            f"{row.rate_per_s:,.0f}",
            f"{row.cpu_us:.1f}",
            f"{row.broker_us:.1f}",
            *(f"{value:,.0f}" for value in per_commit or ()),
            *([] if per_commit else ["", ""]),
            f"{row.broker_cores:.2f}",
            f"{row.rate_per_s / plain[row.value_bytes]:.1f}" if row.value_bytes in plain else "",
        )
    return table


def commit_table_of(rows: Sequence[CommitCost]) -> Table:
    """Return the table of transactions for people, in ms."""
    table = Table(
        title=f"one transaction: {commit_cost.RECORDS} records of 1 KB, {commit_cost.INPUT_PARTITIONS} offsets"
    )
    columns = (
        "output partitions", "p50 ms", "p99", "broker CPU-ms", "back to back p50 ms", "p99", "transactions/s",
        "broker cores",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row.touched),
            *(f"{value * 1000:.1f}" for value in (row.spaced.p50, row.spaced.p99, row.broker_cpu_s)),
            *(f"{value * 1000:.1f}" for value in (row.back_to_back.p50, row.back_to_back.p99)),
            f"{row.per_s:.0f}",
            f"{row.broker_cores:.2f}",
        )
    return table


def _run(bench: Bench, kinds: Sequence[Kind], seconds: float, scale: float) -> Iterator[Measured]:
    for value_bytes in sorted({kind.value_bytes for kind in kinds}):
        bench.fill(value_bytes, max(100, int(RECORDS[value_bytes] * scale)))
    for kind in kinds:
        yield bench.run(kind, seconds)


def main() -> None:
    """Print the tables; the status says whether both runners reached the goal with small values."""
    parser = argparse.ArgumentParser(prog="python -m bench.delivery", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each worker")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS, help="of each kind; 0 leaves them out")
    parser.add_argument("--runner", action="append", choices=["parallel", "ordered", "faust"], help="only this one")
    parser.add_argument(
        "--value", type=int, action="append", choices=list(RECORDS), help="only values of so many bytes"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    kinds = [
        kind
        for kind in KINDS
        if kind.runner in (options.runner or [kind.runner])
        and kind.value_bytes in (options.value or [kind.value_bytes])
    ]
    calibration, described = calibrate(), machine()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory,
        LocalBroker(Path(directory) / "kafka") as broker,
    ):
        assert broker.pid is not None
        bench = Bench(broker.bootstrap, broker.pid, Path(directory))
        rows = list(_run(bench, kinds, options.seconds, options.seconds / SECONDS))
        costs: list[CommitCost] = []
        if options.transactions:
            costs = asyncio.run(commit_cost.measure(broker.bootstrap, broker.pid, options.transactions, TOUCHED))
    given = f"{PARTITIONS} partitions, random values, input there before; {options.seconds:g} s a worker"
    if options.json:
        found = {
            "machine": described, "calibration": asdict(calibration), "input": given,
            "workers": [asdict(row) for row in rows], "transactions": [asdict(cost) for cost in costs],
        }  # fmt: skip
        print(json.dumps(found, ensure_ascii=False))
    else:
        console = Console()
        console.print(table_of(rows))
        if costs:
            console.print(commit_table_of(costs))
        console.print(f"{given}\n{sentence(described)}, calibration {calibration.best_s * 1000:.1f} ms")
    sys.exit(not good(rows))


def good(rows: Sequence[Measured]) -> bool:
    """Whether each runner of ours that was measured with small values reaches the goal."""
    wanted = [kind for kind in KINDS if kind.work == "pass" and kind.value_bytes == SMALL_BYTES]
    names = {kind.name for kind in wanted if kind.runner != "faust" and not kind.record_events}
    judged = [row.rate_per_s for row in rows if row.name in names and row.value_bytes == SMALL_BYTES]
    return all(rate_per_s >= GOAL_PER_S for rate_per_s in judged)


if __name__ == "__main__":
    main()
