"""Exact lag of consumer groups, from outside: finished-aware, without phantom lag, absent rather than wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.delivery.offsets import OffsetMap, decode
from pipeline.errors import BrokerError

CALL_TIMEOUT_S = 5.0


class PartitionLag(NamedTuple):
    """What one group has left of one partition.

    Attributes:
        group: consumer group.
        topic: input topic.
        partition: number.
        start: lowest offset there is.
        end: last stable offset: what a read_committed reader can reach.
        high_watermark: end of the log.
        offset_map: committed offset and what is finished beyond it; None where the group never committed.
        lag: offsets left to do.
    """

    group: str
    topic: str
    partition: int
    start: int
    end: int
    high_watermark: int
    offset_map: OffsetMap | None
    lag: int

    @property
    def committed(self) -> int | None:
        """Committed offset; None where the group never committed."""
        return None if self.offset_map is None else self.offset_map.base

    @property
    def finished_ahead(self) -> int:
        """How many offsets beyond the committed one are finished."""
        return 0 if self.offset_map is None else self.offset_map.finished_ahead

    @property
    def never_committed(self) -> int:
        """1 where the group never committed, so that its lag rests on where it would begin; else 0."""
        return int(self.offset_map is None)


def remaining(start: int, end: int, offset_map: OffsetMap | None, *, from_earliest: bool = True) -> int:
    """Return how many offsets a group has left.

    Args:
        start: lowest offset of the partition.
        end: last stable offset.
        offset_map: committed offset and what is finished beyond it, None where nothing was ever committed.
        from_earliest: where a group without a commit would begin: at the start (as every stage here), or at the end.

    A partition without a commit has what the group could still read, not every record ever written; what retention
    has removed is left to nobody.
    """
    if offset_map is None:
        return max(0, end - start) if from_earliest else 0
    unfinished = sum(1 for offset in offset_map.unfinished if start <= offset < end)
    return unfinished + max(0, end - max(start, offset_map.end))


class LagReader:
    """Reads lag without joining any group.

    Args:
        options: librdkafka options of the cluster.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {**options, "enable.auto.commit": False}
        self._watermarks = {
            level: Consumer({**self._options, "group.id": "headrace-lag", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        }
        self._groups: dict[str, Consumer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients."""
        for consumer in (*self._watermarks.values(), *self._groups.values()):
            consumer.close()

    def read(self, group: str, topics: Iterable[str], partitions: int) -> list[PartitionLag]:
        """Return the lag of every partition of the topics.

        Raises:
            BrokerError: it could not be read; no figure is better than a wrong one.
        """
        # read_uncommitted: an open transaction must not make the figures wait.
        consumer = self._groups.get(group) or self._groups.setdefault(
            group, Consumer({**self._options, "group.id": group, "isolation.level": "read_uncommitted"})
        )
        wanted = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        try:
            return [self._one(group, answer) for answer in consumer.committed(wanted, timeout=CALL_TIMEOUT_S)]
        except KafkaException as exc:
            raise BrokerError(f"lag of {group}: {exc.args[0]}") from exc

    def _one(self, group: str, answer: TopicPartition) -> PartitionLag:
        if answer.error:
            raise KafkaException(answer.error)
        start, end = self._watermarks["read_committed"].get_watermark_offsets(answer, timeout=CALL_TIMEOUT_S)
        _, high = self._watermarks["read_uncommitted"].get_watermark_offsets(answer, timeout=CALL_TIMEOUT_S)
        offset_map = None
        if answer.offset >= 0:  # -1001: no commit
            offset_map = decode(answer.metadata, answer.offset, answer.topic, answer.partition)
        left = remaining(start, end, offset_map)
        return PartitionLag(group, answer.topic, answer.partition, start, end, high, offset_map, left)
