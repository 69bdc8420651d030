"""How fast a lost store is rebuilt from its changelog: `python -m bench.restore [--records N] [--json]`.

A broker of its own gets one changelog partition of distinct keys, written in transactions as workers write it. Then a
store is restored three times: from nothing, with nothing to do, and with a hundred changes missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so
from rich.console import Console
from rich.table import Table

from bench.calibration import Calibration, calibrate
from pipeline.local.kafka import LocalBroker
from pipeline.state.changelog import Changelog, PlainRows
from pipeline.state.store import PartitionStore
from pipeline.state.view import changelog_key

RECORDS = 1_000_000
TRANSACTION_RECORDS = 5_000
KEY_BYTES = 16
VALUE_BYTES = 24
DELTA_RECORDS = 100
CALL_TIMEOUT_S = 30.0
GOAL_PER_S = 100_000
TABLE = "s"
TOPIC = "bench.changelog"


@dataclass(frozen=True, slots=True)
class Measured:
    """One restore.

    Attributes:
        name: what was missing.
        records: read from the changelog.
        seconds: of wall time.
        cpu_s: of this process, all threads.
    """

    name: str
    records: int
    seconds: float
    cpu_s: float

    @property
    def rate_per_s(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.records else 0.0


def fill(bootstrap: str, first: int, count: int) -> None:
    """Write changes of distinct keys in transactions."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "bench-restore", "retry.backoff.ms": 10})
    producer.init_transactions(CALL_TIMEOUT_S)
    for start in range(first, first + count, TRANSACTION_RECORDS):
        producer.begin_transaction()
        for number in range(start, min(start + TRANSACTION_RECORDS, first + count)):
            key = changelog_key(TABLE, number.to_bytes(KEY_BYTES, "big"))
            producer.produce(TOPIC, number.to_bytes(VALUE_BYTES, "big"), key, 0)
        producer.commit_transaction(CALL_TIMEOUT_S)


def measure(records: int, directory: Path) -> Iterator[Measured]:
    """Restore a store of so many records in three situations."""
    with LocalBroker(directory / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([topic])[TOPIC].result(CALL_TIMEOUT_S)
        fill(broker.bootstrap, 0, records)
        changelog = Changelog({"bootstrap.servers": broker.bootstrap}, TOPIC, PlainRows(), 86_400.0)
        store = PartitionStore(directory / "store", (TABLE,))
        yield _restore("everything", changelog, store)
        yield _restore("nothing", changelog, store)
        fill(broker.bootstrap, records, DELTA_RECORDS)
        yield _restore(f"{DELTA_RECORDS} changes", changelog, store)
        store.close()


def _restore(name: str, changelog: Changelog, store: PartitionStore) -> Measured:
    cpu_s, began_s = time.process_time(), time.perf_counter()
    restored = changelog.restore(store, 0, time.time(), lambda: True)
    seconds = time.perf_counter() - began_s
    return Measured(name, restored.records if restored else 0, seconds, time.process_time() - cpu_s)


def table_of(rows: list[Measured], calibration: Calibration) -> Table:
    """Return the table for people."""
    table = Table(
        title=f"restore of one partition, {KEY_BYTES + VALUE_BYTES} bytes a row",
        caption=f"calibration: {calibration.best_s * 1000:.1f} ms",
    )
    for column in ("missing", "records", "seconds", "records/s", "CPU µs/record"):
        table.add_column(column, justify="left" if column == "missing" else "right")
    for row in rows:
        per_record = f"{row.cpu_s / row.records * 1e6:.2f}" if row.records else ""
        rate = f"{row.rate_per_s:,.0f}" if row.records else ""
        table.add_row(row.name, f"{row.records:,}", f"{row.seconds:.3f}", rate, per_record)
    return table


def main() -> None:
    """Print the table; the status says whether the goal of 100,000 records/s was reached."""
    parser = argparse.ArgumentParser(prog="python -m bench.restore", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    calibration = calibrate()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        rows = list(measure(options.records, Path(directory)))
    if options.json:
        figures = [asdict(row) | {"rate_per_s": row.rate_per_s} for row in rows]
        print(json.dumps({"calibration": asdict(calibration), "restores": figures}))
    else:
        Console().print(table_of(rows, calibration))
    sys.exit(rows[0].rate_per_s < GOAL_PER_S)


if __name__ == "__main__":
    main()
