"""What sending a message takes, by client: `make bench-clients`.

Messages of 1 KB to one topic of a local broker, all with acks=all, each client in a process of its own. As fast as it
goes means: a bounded number of messages in flight, the next one as soon as one is acknowledged, for without a bound
latency is the length of a queue. At a fixed rate a message's latency counts from the moment it was due: a client that
stands still while it commits does not hide what waited. Transactions carry offsets as the pipeline's do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so
from rich.console import Console
from rich.table import Table

from bench.calibration import calibrate
from bench.latency import Latencies
from bench.machine import machine, sentence
from bench.senders import BASELINE, CLIENTS, MESSAGE_BYTES, PARTITIONS, Load, Sent
from pipeline.local.kafka import LocalBroker

SECONDS = 5.0
IN_FLIGHT = 600
GOAL_PER_S = 41_900
GOAL_P99_S = 0.018
REACH_S = 10.0
LIMIT_S = 60.0
WARM_UP = "confluent-kafka, transactional, 50 ms"
"""Sent before anything counts: the broker's code is compiled while it runs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One client.

    Attributes:
        name: of `bench.senders.CLIENTS`.
        fastest: with the bound on messages in flight as the only limit.
        fixed: at a rate below it.
    """

    name: str
    fastest: Sent
    fixed: Sent

    @property
    def good(self) -> bool:
        """Whether it reaches the goal: rate and latency in one run."""
        return any(
            run.rate_per_s >= GOAL_PER_S * 0.99 and run.acknowledged.p99 <= GOAL_P99_S
            for run in (self.fastest, self.fixed)
        )


def measure(name: str, bootstrap: str, broker_pid: int, load: Load) -> Measured:
    """Measure one client on a topic of its own, which is removed again.

    Args:
        name: of `bench.senders.CLIENTS`.
        bootstrap: host:port of a local broker.
        broker_pid: of its process.
        load: seconds and bound of each of the two runs.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = f"bench-clients-{list(CLIENTS).index(name)}"
    # A gigabyte a run is not to wait a minute for its removal.
    made = NewTopic(topic, PARTITIONS, 1, config={"file.delete.delay.ms": "100"})
    admin.create_topics([made])[topic].result(REACH_S)
    told = {
        "bootstrap": bootstrap, "topic": topic, "broker_pid": broker_pid, "load": load, "goal_per_s": GOAL_PER_S,
    }  # fmt: skip
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.senders", name],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            timeout=LIMIT_S + 3 * load.seconds,
            check=False,
        )
    finally:
        admin.delete_topics([topic])[topic].result(REACH_S)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    fastest, fixed = map(_sent, json.loads(done.stdout))
    return Measured(name, fastest, fixed)


def _sent(row: dict[str, Any]) -> Sent:
    acknowledged, committed = row.pop("acknowledged"), row.pop("committed")
    return Sent(acknowledged=Latencies(*acknowledged), committed=committed and Latencies(*committed), **row)


def table_of(rows: Sequence[Measured], title: str, *, fixed: bool) -> Table:
    """Return the table for people: latencies in ms, CPU for 1,000 messages, the ratio of the rates last."""
    table = Table(title=title)
    ratio = [] if fixed else [f"times {BASELINE}"]
    columns = (
        "", "msg/s", "acknowledged p50 ms", "p99", "committed p50 ms", "p99", "client CPU-ms / 1,000", "broker", *ratio,
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    slowest = next((row.fastest.rate_per_s for row in rows if row.name == BASELINE), None)
    for row in rows:
        run = row.fixed if fixed else row.fastest
        latencies = [
            f"{value * 1000:.1f}" if value is not None else ""
            for kind in (run.acknowledged, run.committed)
            for value in (kind.p50 if kind else None, kind.p99 if kind else None)
        ]
        table.add_row(
            row.name,
            f"{run.rate_per_s:,.0f}",
            *latencies,
            f"{run.client_cpu_s * 1000:.1f}",
            f"{run.broker_cpu_s * 1000:.1f}",
            *([] if fixed else [f"{run.rate_per_s / slowest:.1f}" if slowest else ""]),
        )
    return table


def main() -> None:
    """Print the tables; the status says whether a transactional client reached the goal."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each of a client's two runs")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help="messages sent and not acknowledged")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    load = Load(options.seconds, options.in_flight)
    calibration, described = calibrate(), machine()
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory,
        LocalBroker(Path(directory) / "kafka") as broker,
    ):
        assert broker.pid is not None
        measure(WARM_UP, broker.bootstrap, broker.pid, load)
        rows = [measure(name, broker.bootstrap, broker.pid, load) for name in options.client or CLIENTS]
    given = f"{MESSAGE_BYTES} random bytes, {PARTITIONS} partitions, acks=all, {options.seconds:g} s a run"
    if options.json:
        found = {
            "machine": described, "calibration": asdict(calibration), "input": given, "in_flight": options.in_flight,
            "clients": [asdict(row) for row in rows],
        }  # fmt: skip
        print(json.dumps(found, ensure_ascii=False))
    else:
        console = Console()
        console.print(table_of(rows, f"as fast as {options.in_flight} messages in flight let it go", fixed=False))
        console.print(table_of(rows, f"at {GOAL_PER_S:,} msg/s, or half of its best", fixed=True))
        console.print(f"{given}\n{sentence(described)}, calibration {calibration.best_s * 1000:.1f} ms")
    transactional = [row for row in rows if row.fastest.committed]
    sys.exit(bool(transactional) and not any(row.good for row in transactional))


if __name__ == "__main__":
    main()
