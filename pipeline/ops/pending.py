"""What is unfinished in each partition of a stage: from the broker alone, and from the workers that answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from pipeline.delivery.offsets import encode
from pipeline.ops.lag import PartitionLag

READ_S = 5.0
POLL_S = 0.5


class Pending(NamedTuple):
    """One partition.

    Attributes:
        lag: committed offset, offset map, ends.
        map_characters: size of the offset map in the commit metadata; the broker takes 4,095.
        oldest_ms: timestamp of the oldest record that is not finished, ms since the epoch; None where there is none.
        owner: worker that said the partition is its own; None where nobody did.
        at_hand: its answer (`PartitionAtHand` of the contract); None where nobody answered.
    """

    lag: PartitionLag
    map_characters: int
    oldest_ms: int | None
    owner: str | None
    at_hand: Mapping[str, Any] | None


def combine(
    lags: Iterable[PartitionLag],
    answers: Sequence[Mapping[str, Any]],
    oldest_ms: Mapping[tuple[str, int], int],
) -> list[Pending]:
    """Join what the broker knows with what workers answered.

    Args:
        lags: of every partition of the stage.
        answers: `ControlAnswer` records.
        oldest_ms: (topic, partition) → timestamp of the oldest unfinished record.
    """
    owned = {
        (row["topic"], row["partition"]): (answer["worker"], row) for answer in answers for row in answer["partitions"]
    }
    rows = []
    for lag in lags:
        owner, at_hand = owned.get((lag.topic, lag.partition), (None, None))
        readable = lag.offset_map is not None and lag.offset_map.readable
        characters = len(encode(lag.offset_map, lag.topic, lag.partition)) if lag.offset_map and readable else 0
        rows.append(Pending(lag, characters, oldest_ms.get((lag.topic, lag.partition)), owner, at_hand))
    return rows


def oldest_unfinished_ms(options: Mapping[str, str], lags: Sequence[PartitionLag]) -> dict[tuple[str, int], int]:
    """Read the timestamp of the record at each committed offset with something after it.

    Returns:
        (topic, partition) → ms since the epoch; a partition whose record did not come in five seconds is absent.
    """
    wanted = {(lag.topic, lag.partition): max(lag.start, lag.committed or 0) for lag in lags if lag.lag}
    if not wanted:
        return {}
    found: dict[tuple[str, int], int] = {}
    consumer = Consumer(
        {
            **options,
            "group.id": "headrace-pending",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": "65536",
            "queued.max.messages.kbytes": "4096",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in wanted.items()])
        deadline = time.monotonic() + READ_S
        while len(found) < len(wanted) and time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            place = message.topic() or "", message.partition() or 0
            if place not in found:
                found[place] = message.timestamp()[1]
                consumer.incremental_unassign([TopicPartition(*place)])
    finally:
        consumer.close()
    return found
