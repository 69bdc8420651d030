"""One record of a changelog, looked at and taken back: for a row that something else has written over."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pipeline.errors import BrokerError, ConfigurationError

GROUP: Final = "headrace-forget"
READ_S: Final = 15.0
POLL_S: Final = 0.2


class ChangelogRecord(NamedTuple):
    """A record as it stands.

    Attributes:
        topic: a changelog.
        partition: number.
        offset: where it stands.
        key: letter of the table, and the row's key.
        value_bytes: length of its value; None for a deletion.
    """

    topic: str
    partition: int
    offset: int
    key: bytes
    value_bytes: int | None


def read_record(options: Mapping[str, str], topic: str, partition: int, offset: int) -> ChangelogRecord:
    """Return the record of a place; blocking.

    Raises:
        ConfigurationError: there is none, or none that a restore reads.
        BrokerError: the broker does not answer.
    """
    consumer = Consumer(
        {**options, "group.id": GROUP, "enable.auto.commit": False, "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "auto.offset.reset": "error"}
    )
    place = f"{topic}/{partition}/{offset}"
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_S)
        if not low <= offset < high:
            raise ConfigurationError(f"{place}: the partition has offsets {low} to {high - 1}")
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = _first(consumer, place)
    except KafkaException as exc:
        raise BrokerError(f"{place}: {exc.args[0]}") from exc
    finally:
        consumer.close()
    if message is None or message.offset() != offset:
        raise ConfigurationError(f"{place}: no record that is committed stands there (any more)")
    value = message.value()
    return ChangelogRecord(topic, partition, offset, message.key() or b"", None if value is None else len(value))


def _first(consumer: Consumer, place: str) -> Message | None:
    deadline = time.monotonic() + READ_S
    while time.monotonic() < deadline:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            return message
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the public name of the constant
            return None
        raise KafkaException(error)
    raise BrokerError(f"{place}: nothing was read within {READ_S:g} s")


def forget(options: Mapping[str, str], record: ChangelogRecord) -> None:
    """Write a deletion of the record's row behind it; blocking.

    Raises:
        BrokerError: it was not written.
    """
    refusals: list[str] = []

    def note(error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            refusals.append(str(error))

    producer = Producer({**options, "enable.idempotence": True, "message.timeout.ms": int(READ_S * 1000)})
    producer.produce(record.topic, None, record.key, partition=record.partition, on_delivery=note)
    left = producer.flush(READ_S + POLL_S)
    if refusals or left:
        raise BrokerError(f"{record.topic}/{record.partition}: the deletion was not written: {', '.join(refusals)}")
