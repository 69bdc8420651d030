"""What goes into a stage and comes out of it while a fault is observed: an even flow, and a reader with a clock."""

from __future__ import annotations

import itertools
import threading
import time
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from pipeline.web.partition import partition_for
from tests.chaos.feeder import Writer

RATE_PER_S = 25.0
"""Records for each partition."""
TICK_S = 0.01
CALL_S = 10.0
FLUSH_S = 60.0


class Sent(NamedTuple):
    """A record of the flow: where it went and when, monotonic seconds."""

    partition: int
    at_s: float


class Seen(NamedTuple):
    """An output as the reader got it; `at_s` is monotonic."""

    at_s: float
    partition: int
    offset: int
    source: bytes


def source_of(output: bytes) -> bytes:
    """Return the value of the record that an output was made of."""
    kind, _, rest = output.partition(b":")
    if kind == b"first":
        return rest.partition(b":")[2]
    return rest if kind in {b"timer", b"beside"} else output


class Flow(Writer):
    """Feeds a stage at an even pace, the same to each partition; keys are new, and their outputs keep the partition.

    Args:
        bootstrap: address of the broker, which may go away for a while.
        topic: where to.
        partitions: how many it has.
        tag: in every value.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, tag: str) -> None:
        super().__init__(bootstrap, FLUSH_S)
        self._topic = topic
        self._partitions = partitions
        self._tag = tag
        self.sent: dict[bytes, Sent] = {}
        self._numbers = itertools.count()

    def send(self, partition: int, verb: str = "v", name: str = "") -> bytes:
        """Write one record with a key of its own; returns its value: verb, name, and what tells it apart."""
        mark = f"{self._tag}-{next(self._numbers)}"
        keys = (f"{mark}-{number}".encode() for number in itertools.count())
        key = next(key for key in keys if partition_for(key, self._partitions) == partition)
        value = ":".join(part for part in (verb, name, mark) if part).encode()
        self.sent[value] = Sent(partition, time.monotonic())
        self._producer.produce(self._topic, value, key, on_delivery=self._report)
        return value

    def _run(self) -> None:
        began_s, done = time.monotonic(), 0
        while not self._stop.wait(TICK_S):
            for done in range(done, int((time.monotonic() - began_s) * RATE_PER_S * self._partitions)):  # noqa: B020
                self.send(done % self._partitions)
            self._producer.poll(0)


class Watch:
    """Reads a topic from its end on, read_committed, and notes when each record came."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.seen: list[Seen] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        places = [TopicPartition(topic, number) for number in range(partitions)]
        for place in places:  # explicit: what is written before the first fetch must be read, too
            place.offset = self._consumer.get_watermark_offsets(place, CALL_S)[1]
        self._consumer.assign(places)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, TICK_S):
                if message.error() is None:  # else the broker is away, which is what we are here for
                    row = (message.partition(), message.offset(), source_of(message.value()))
                    self.seen.append(Seen(time.monotonic(), *row))
