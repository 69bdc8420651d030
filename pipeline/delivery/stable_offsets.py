"""Committed offsets that no open transaction can still change.

Read with a `confluent_kafka.Consumer` that never joins the group: under `read_committed` its OffsetFetch requires
stable offsets (KIP-447) and `committed()` waits for open transactions. Not with `AdminClient`: up to librdkafka 2.16 a
coordinator request of it that meets a dying broker connection can hang for ever or abort the process (librdkafka#3663,
#4605).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from confluent_kafka import Consumer, KafkaException, TopicPartition
from faust.types import TP

from pipeline.delivery.assignment import Start
from pipeline.delivery.offsets import decode
from pipeline.errors import BrokerError

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
RETRY_PAUSE_S = 0.1


class StableOffsets:
    """Reads one group's stable offsets. Blocking; for an executor thread.

    Args:
        options: librdkafka options of the cluster.
        group: consumer group id.
    """

    def __init__(self, options: Mapping[str, str], group: str) -> None:
        self._options = {
            **options,
            "group.id": group,
            "enable.auto.commit": False,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
        }

    def starts(self, partitions: Iterable[TP], wanted: Callable[[], bool]) -> dict[TP, Start] | None:
        """Return where each partition begins.

        Args:
            partitions: what to read.
            wanted: asked between tries; False ends the reading.

        Returns:
            A start for every partition; one without a commit starts at its lowest offset, named explicitly because the
            consumer would otherwise decide by an OffsetFetch that does not wait. None when no longer wanted.

        Raises:
            BrokerError: a partition ends before its committed offset: records that follow would be taken for done.
        """
        starts: dict[TP, Start] = {}
        committed = Consumer({**self._options, "isolation.level": "read_committed"})
        # A read_committed consumer would give the last stable offset as its high watermark.
        watermarks = Consumer({**self._options, "isolation.level": "read_uncommitted"})
        try:
            for number, group in _by_number(partitions):
                while wanted():
                    try:
                        for answer in committed.committed(group, timeout=CALL_TIMEOUT_S):
                            if answer.error:
                                raise KafkaException(answer.error)  # noqa: TRY301  # as if the call had failed
                            low, high = watermarks.get_watermark_offsets(answer, timeout=CALL_TIMEOUT_S)
                            if answer.offset > high:
                                raise BrokerError(
                                    f"{answer.topic}/{answer.partition} ends at {high}, before the committed offset "
                                    f"{answer.offset}: it was truncated or made anew; reset the group's offsets of it "
                                    "(kafka-consumer-groups.sh --reset-offsets)"
                                )
                            offset = answer.offset if answer.offset >= 0 else low
                            offset_map = decode(answer.metadata, offset, answer.topic, answer.partition)
                            starts[TP(answer.topic, answer.partition)] = Start(offset_map, high)
                        break
                    except KafkaException as exc:  # open transaction, moving coordinator, broker away: never a guess
                        log.warning("stable offsets of partition %d not there yet: %s", number, exc)
                        time.sleep(RETRY_PAUSE_S)
                else:
                    return None
        finally:
            committed.close()
            watermarks.close()
        return starts

    def wait_for_group(self, topics: Iterable[str], partitions: int, limit_s: float) -> None:
        """Wait until every partition of the group has been seen stable once.

        A transaction left without markers by a broker crash would be completed by the next commit of the same producer
        id, its offsets without its outputs; so nobody commits before this has returned.

        Args:
            topics: all input topics of the group.
            partitions: how many each has.
            limit_s: how long to wait in all.

        Raises:
            BrokerError: names the partitions whose offsets stay unstable.
        """
        deadline = time.monotonic() + limit_s
        consumer = Consumer({**self._options, "isolation.level": "read_committed"})
        left = [TP(topic, number) for topic in topics for number in range(partitions)]
        try:
            while left:
                still: list[TP] = []
                for _, group in _by_number(left):  # by partition number: busy members would never be stable all at once
                    try:
                        answers = consumer.committed(group, timeout=min(CALL_TIMEOUT_S, limit_s))
                        still += [TP(a.topic, a.partition) for a in answers if a.error]
                    except KafkaException as exc:
                        log.warning("offsets of the group are not stable yet: %s", exc)
                        still += [TP(t.topic, t.partition) for t in group]
                left = still
                if left and time.monotonic() > deadline:
                    places = ", ".join(f"{t}/{p}" for t, p in left[:8])
                    raise BrokerError(
                        f"offsets of {places} stay unstable: a transaction is open or hangs; no work is done before it "
                        "has ended (kafka-transactions.sh find-hanging, then abort)"
                    )
                if left:
                    time.sleep(RETRY_PAUSE_S)
        finally:
            consumer.close()


def _by_number(partitions: Iterable[TP]) -> list[tuple[int, list[TopicPartition]]]:
    ordered = sorted(partitions, key=lambda tp: (tp.partition, tp.topic))
    return [
        (number, [TopicPartition(tp.topic, tp.partition) for tp in group])
        for number, group in groupby(ordered, key=lambda tp: tp.partition)
    ]
