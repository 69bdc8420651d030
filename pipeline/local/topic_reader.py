"""Read a topic as any reader of the output would: committed records only, from the beginning, without a group."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import BrokerError

REQUEST_S = 15.0
BATCH = 10_000
MARKER_HEADER = "dlq-marker"


class ReadRecord(NamedTuple):
    """One record; it has the shape of `pipeline.delivery.api.SourceRecord`.

    Attributes:
        timestamp: milliseconds since the epoch, as its producer set it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]

    @property
    def is_marker(self) -> bool:
        """Whether it is no dead letter, but says what was done with one."""
        return any(name == MARKER_HEADER for name, _ in self.headers)


def read_all(
    bootstrap: str, topic: str, *, options: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> list[ReadRecord]:
    """Return all committed records that were written before the call, by partition and offset.

    Reads with isolation.level=read_committed up to the high watermark at the time of the call, so it waits for
    transactions that are open then. No group is joined and nothing is committed.

    Args:
        bootstrap: host:port of the broker.
        topic: name of the topic.
        options: further librdkafka options, such as security.*.
        timeout_s: how long the whole may take.

    Raises:
        BrokerError: no such topic, the broker doesn't answer, or a transaction stays open until the time is up.
    """
    deadline = time.monotonic() + timeout_s
    base = {
        **(options or {}),
        "bootstrap.servers": bootstrap,
        "group.id": "headrace-reader",
        "enable.auto.commit": "false",
    }
    try:
        ranges = _ranges(base, topic)
        return _read(base, topic, {p: span for p, span in ranges.items() if span[0] < span[1]}, deadline)
    except KafkaException as exc:
        raise BrokerError(f"{bootstrap}: {topic}: {exc.args[0].str()}") from exc


def _ranges(base: Mapping[str, str], topic: str) -> dict[int, tuple[int, int]]:
    """Return for each partition the first offset and the high watermark.

    The consumer must read uncommitted: one that reads committed is told the last stable offset in its place.
    """
    consumer = Consumer({**base, "isolation.level": "read_uncommitted"})
    try:
        described = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_S)
            for partition in sorted(described.partitions)
        }
    finally:
        consumer.close()


def _read(base: Mapping[str, str], topic: str, ranges: dict[int, tuple[int, int]], deadline: float) -> list[ReadRecord]:
    options: dict[str, Any] = {
        **base,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        # The end of a partition is an event with its position: it tells of markers and aborted records, which are
        # never handed out, that they are behind us.
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
    }
    records: list[ReadRecord] = []
    waiting = {partition: end for partition, (_, end) in ranges.items()}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition(topic, partition, first) for partition, (first, _) in ranges.items()])
        while waiting:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{topic}: partitions {sorted(waiting)} were not read to their end: an open transaction?"
                )
            messages: list[Any] = consumer.consume(BATCH, 0.1)  # the stubs doubt that a message has a position
            for message in messages:
                partition = message.partition()
                position = message.offset()
                if message.error() is None:
                    if position < ranges[partition][1]:
                        records.append(_record(message))
                    position += 1
                elif message.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name
                    raise KafkaException(message.error())
                if position >= waiting.get(partition, position + 1):
                    del waiting[partition]
    finally:
        consumer.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _record(message: Any) -> ReadRecord:
    return ReadRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or (),
    )
