"""When the records of a topic reach a read_committed reader: how long a partition stands still is seen from outside."""

from __future__ import annotations

import bisect
import itertools
import time
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.background import Background

POLL_S = 0.1


class Arrival(NamedTuple):
    """One record; seconds since the epoch.

    Attributes:
        at_s: when the reader had it.
        written_s: when its producer made it, to the millisecond.
    """

    at_s: float
    written_s: float


class Arrivals(Background):
    """Reads a topic from its end, in a thread of its own. Used as a context manager.

    Args:
        bootstrap: host:port.
        topic: read.
        partitions: of it.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("arrivals")
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-arrivals",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(partitions)])
        self._seen: list[list[Arrival]] = [[] for _ in range(partitions)]

    def _close(self) -> None:
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_S)
            at_s = time.time()
            if message is not None and message.error() is None:
                self._seen[message.partition() or 0].append(Arrival(at_s, message.timestamp()[1] / 1000))

    def first_written_after(self, partition: int, moment_s: float) -> Arrival | None:
        """Return the first record that was not written before a moment had passed; None while there is none."""
        rows = self._seen[partition]
        index = bisect.bisect_right(rows, moment_s, key=lambda row: row.written_s)
        return rows[index] if index < len(rows) else None

    def last_written_s(self, partition: int) -> float:
        """When the newest record that has arrived was written; 0 while there is none."""
        rows = self._seen[partition]
        return rows[-1].written_s if rows else 0.0

    def longest_gap_s(self, partition: int, from_s: float, to_s: float) -> float:
        """Return the longest time between two arrivals of which a part lies between two moments."""
        pairs = itertools.pairwise([row.at_s for row in self._seen[partition]])
        return max((after - before for before, after in pairs if after > from_s and before < to_s), default=0.0)
