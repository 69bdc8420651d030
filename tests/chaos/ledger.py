"""What stands in topics: written for workers to read, and read as anybody downstream reads it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.chaos.process import LIMIT_S, until

CALL_TIMEOUT_S = 10.0
CHUNK_RECORDS = 5_000


class Row(NamedTuple):
    """One record of a topic; `timestamp_ms` since the epoch, as its producer gave it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int = 0


class Reader:
    """Reads a topic from its beginning, and goes on where it stopped.

    Args:
        bootstrap: address of the broker.
        topic: its name.
        isolation: read_uncommitted sees what was aborted too.
    """

    def __init__(self, bootstrap: str, topic: str, isolation: str = "read_committed") -> None:
        self.topic = topic
        self.rows: list[Row] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "ledger",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._partitions = list(self._consumer.list_topics(topic, CALL_TIMEOUT_S).topics[topic].partitions)
        self._open: set[int] = set()
        self._begin()

    def _begin(self) -> None:
        self.rows.clear()
        self._open.update(self._partitions)
        self._consumer.assign([TopicPartition(self.topic, number, 0) for number in self._partitions])

    def read(self, timeout_s: float = 0.05) -> list[Row]:
        """Take what is there now; returns all rows so far."""
        for message in self._consumer.consume(CHUNK_RECORDS, timeout_s):
            error = message.error()
            if error is None:
                self._open.add(message.partition())
                headers = dict(message.headers() or ())
                place = (message.partition(), message.offset())
                self.rows.append(Row(*place, message.key(), message.value(), headers, message.timestamp()[1]))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._open.discard(message.partition())
            elif not error.retriable():
                raise KafkaException(error)
        return self.rows

    def read_to_end(self, limit_s: float = LIMIT_S) -> list[Row]:
        """Return all rows from the beginning to the end as a reader sees it: the last stable offsets."""
        self._begin()

        def done() -> bool:
            self.read()
            return not self._open

        until(done, f"the end of {self.topic}", limit_s)
        return self.rows

    def until(self, condition: Callable[[list[Row]], object], what: str, limit_s: float = LIMIT_S) -> list[Row]:
        """Read until the rows fulfil a condition; returns them."""
        until(lambda: condition(self.read()), f"{what} in {self.topic}, which has {self._summary()}", limit_s)
        return self.rows

    def until_count(self, count: int, limit_s: float = LIMIT_S) -> list[Row]:
        """Read until there are so many rows."""
        deadline = time.monotonic() + limit_s
        while len(self.read()) < count:
            assert time.monotonic() < deadline, (
                f"{self.topic} has {len(self.rows)} of {count} records: {self._summary()}"
            )
        return self.rows

    @property
    def values(self) -> Counter[bytes]:
        """How often each value was seen."""
        return Counter(row.value or b"" for row in self.rows)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _summary(self) -> str:
        return f"{len(self.rows)} rows, the last ones {[(row.value or b'')[:40] for row in self.rows[-5:]]}"


def produce(bootstrap: str, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]], partition: int = -1) -> int:
    """Write keys and values; to one partition, or by key. Returns how many."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5})
    count = 0
    for key, value in rows:
        producer.produce(topic, value, key, partition)
        count += 1
        producer.poll(0)
    assert 0 == producer.flush(CALL_TIMEOUT_S)
    return count


@contextlib.contextmanager
def transaction(bootstrap: str, transactional_id: str, timeout_s: float = 60.0) -> Iterator[Producer]:
    """A transaction of somebody else; aborted at the end unless the block has ended it."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout_s * 1000),
            "partitioner": "murmur2_random",
            "log_level": 2,
        }
    )
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    try:
        yield producer
    finally:
        with contextlib.suppress(KafkaException):  # it has ended
            producer.abort_transaction(CALL_TIMEOUT_S)


class Offsets:
    """What a group has committed.

    Args:
        bootstrap: address of the broker.
        group: consumer group.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 2}
        )
        self._ends = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_uncommitted",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )

    def committed(self, topic: str, partitions: int) -> dict[int, int]:
        """Partition → stable committed offset; absent where there is none."""
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        answers = self._consumer.committed(wanted, CALL_TIMEOUT_S)
        return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}

    def metadata(self, topic: str, partition: int) -> str:
        """Return the commit metadata of a partition."""
        return self._consumer.committed([TopicPartition(topic, partition)], CALL_TIMEOUT_S)[0].metadata or ""

    def lag(self, topic: str, partitions: int) -> dict[int, int]:
        """Partition → high watermark less committed offset, as every tool sees it."""
        committed = self.committed(topic, partitions)
        ends = {
            number: self._ends.get_watermark_offsets(TopicPartition(topic, number), CALL_TIMEOUT_S)
            for number in range(partitions)
        }
        return {number: high - committed.get(number, low) for number, (low, high) in ends.items()}

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
        self._ends.close()
