"""Reads `-dlq` topics: committed records only, without joining a group, bounded in memory and in time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import BrokerError, ConfigurationError
from pipeline.ops.dead_letters import Letter, Marker, RecordName, read_letter, read_marker

GROUP: Final = "headrace-dlq-reader"
"""What the consumers name; it never has members or offsets."""
CALL_TIMEOUT_S: Final = 10.0
STALL_S: Final = 30.0
POLL_S: Final = 0.02
"""The client waits so long for a whole batch, at the end of a partition too."""
BATCH_RECORDS: Final = 500
QUEUE_KIB: Final = 16 << 10
"""What the client holds of records that were not asked for yet."""


class Part(NamedTuple):
    """What there is of one partition of a `-dlq` topic.

    Attributes:
        topic: its name.
        number: of the partition.
        start: lowest offset.
        end: position up to which it is read.
    """

    topic: str
    number: int
    start: int
    end: int


class _Record(NamedTuple):
    """Has the shape of `pipeline.delivery.api.SourceRecord`."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class DeadLetterReader:
    """Reads a partition at a time; a context manager.

    In memory are the markers of one partition and what the client has fetched ahead (16 MiB).

    Args:
        options: librdkafka options of the cluster.
        topics: names of `-dlq` topics.
        stall_s: how long a partition may bring nothing before the reading fails, seconds.
    """

    def __init__(self, options: Mapping[str, str], topics: Iterable[str], *, stall_s: float = STALL_S) -> None:
        self._topics = tuple(topics)
        self._stall_s = stall_s
        base = {**options, "group.id": GROUP, "enable.auto.commit": False}
        # A read_committed consumer gives the last stable offset as its high watermark, so there are two.
        self._uncommitted = Consumer({**base, "isolation.level": "read_uncommitted"})
        self._committed = Consumer(
            {
                **base,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                # The end is an event with its position: it tells that control records and aborted ones are behind us.
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                "queued.max.messages.kbytes": QUEUE_KIB,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the clients."""
        self._uncommitted.close()
        self._committed.close()

    def parts(self, *, whole: bool = False) -> Iterator[Part]:
        """Yield the partitions that hold anything, in order.

        Args:
            whole: up to the high watermark, so that reading waits for transactions that are open now; otherwise up to
                the last stable offset, which waits for nobody.

        Raises:
            BrokerError: no answer.
            ConfigurationError: no such topic.
        """
        for topic in self._topics:
            for number in self._numbers(topic):
                part = self.part(topic, number, whole=whole)
                if part.start < part.end:
                    yield part

    def part(self, topic: str, number: int, *, whole: bool = False) -> Part:
        """Return what there is of one partition now; see `parts`."""
        consumer = self._uncommitted if whole else self._committed
        with _mapped_errors(topic):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=CALL_TIMEOUT_S)
        return Part(topic, number, low, high)

    def letters(self, part: Part) -> Iterator[Letter]:
        """Yield the letters of a partition in order, each with its state.

        The partition is read twice: a letter's marker stands after it. One reading at a time.

        Raises:
            BrokerError: nothing comes for too long: a transaction is open or hangs, or the broker is away.
        """
        markers: dict[RecordName, tuple[int, Marker]] = {}
        texts: dict[str, str] = {}  # one text for all that was done in one go
        there_are_letters = False
        for record in self._records(part):
            marker = read_marker(record.headers)
            if marker is None:
                there_are_letters = True
            else:
                by, at = (texts.setdefault(text, text) for text in (marker.by, marker.at))
                markers[marker.record] = (record.offset, marker._replace(by=by, at=at))
        if not there_are_letters:
            return
        for record in self._records(part):
            if read_marker(record.headers) is None:
                letter = read_letter(record)
                names = (letter.record, (letter.id, None))
                offset, marker = max((markers[name] for name in names if name in markers), default=(-1, None))
                if marker is not None and offset > letter.offset:
                    letter = replace(letter, state=marker.state, done_by=marker.by, done_at=marker.at)
                yield letter

    def first_letter(self, part: Part) -> int:
        """Return the offset of the first letter of a partition; its end where there is none."""
        letters = (record.offset for record in self._records(part) if read_marker(record.headers) is None)
        return next(letters, part.end)

    def _numbers(self, topic: str) -> list[int]:
        with _mapped_errors(topic):
            described = self._uncommitted.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
        if described.error is not None:
            raise ConfigurationError(f"{topic}: {described.error.str()}; create it with `headrace topics apply`")
        return sorted(described.partitions)

    def _records(self, part: Part) -> Iterator[_Record]:
        if part.start >= part.end:
            return
        consumer = self._committed
        consumer.assign([TopicPartition(part.topic, part.number, part.start)])
        position, moved_s = part.start, time.monotonic()
        while position < part.end:
            with _mapped_errors(part.topic):
                messages: list[Any] = consumer.consume(BATCH_RECORDS, POLL_S)  # the stubs doubt that one has a place
            if messages:
                moved_s = time.monotonic()
            elif time.monotonic() - moved_s > self._stall_s:
                raise BrokerError(
                    f"{part.topic}/{part.number} brings nothing between {position} and {part.end} for "
                    f"{self._stall_s:g} s: a transaction is open or hangs (docs/operations/failures.md), or the broker "
                    "is away"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    if message.offset() >= part.end:
                        return
                    position = message.offset() + 1
                    yield _record(message)
                    moved_s = time.monotonic()  # whoever took it may have taken his time
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's own name
                    position = max(position, message.offset())
                elif not error.retriable():
                    raise BrokerError(f"{part.topic}/{part.number}: {error.str()}")


def _record(message: Any) -> _Record:
    return _Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


@contextlib.contextmanager
def _mapped_errors(topic: str) -> Iterator[None]:
    """Map the client's errors to ours."""
    try:
        yield
    except KafkaException as exc:
        raise BrokerError(f"{topic}: {exc.args[0].str()}") from exc
