"""Committed offsets that no open transaction can still change.

Read with a `confluent_kafka.Consumer` that never joins the group: under `read_committed` its OffsetFetch requires
stable offsets (KIP-447) and `committed()` waits for open transactions. Not with `AdminClient`: up to librdkafka 2.16 a
coordinator request of it that meets a dying broker connection can hang for ever or abort the process (librdkafka#3663,
#4605).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from confluent_kafka import Consumer, KafkaException, TopicPartition
from faust.types import TP

from pipeline.delivery.assignment import Start
from pipeline.delivery.offsets import decode
from pipeline.errors import BrokerError

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 5.0
LAST_CALL_S = 0.1
RETRY_PAUSE_S = 0.1
SHOWN = 8
HINT = "`headrace doctor` tells whether the transaction is merely open or hangs, and the command that ends it"


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

    def starts(
        self,
        partitions: Iterable[TP],
        wanted: Callable[[], bool],
        limit_s: float,
        moved: Callable[[], None] = lambda: None,
    ) -> dict[TP, Start] | None:
        """Return where each partition begins.

        Args:
            partitions: what to read.
            wanted: asked between tries; False ends the reading.
            limit_s: how long the offsets of one partition number may be held by open transactions while the broker
                answers. An outage does not count: it ends by itself.
            moved: called when a partition number has been read.

        Returns:
            A start for every partition; one without a commit starts at its lowest offset, named explicitly because the
            consumer would otherwise decide by an OffsetFetch that does not wait. None when no longer wanted.

        Raises:
            BrokerError: a partition ends before its committed offset, so that records that follow would be taken for
                done; or offsets stay unstable.
        """
        starts: dict[TP, Start] = {}
        committed = Consumer({**self._options, "isolation.level": "read_committed"})
        # A read_committed consumer would give the last stable offset as its high watermark.
        watermarks = Consumer({**self._options, "isolation.level": "read_uncommitted"})
        try:
            for _, group in _by_number(partitions):
                found = _wait_for_starts(committed, watermarks, group, wanted, limit_s)
                if found is None:
                    return None
                starts.update(found)
                moved()
        finally:
            committed.close()
            watermarks.close()
        return starts

    def wait_for_group(
        self, topics: Iterable[str], partitions: int, limit_s: float, moved: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until every partition of the group has been seen stable once.

        A transaction left without markers by a broker crash would be completed by the next commit of the same producer
        id, its offsets without its outputs; so nobody commits before this has returned.

        Args:
            topics: all input topics of the group.
            partitions: how many each has.
            limit_s: how long to wait in all.
            moved: called when another partition was seen stable.

        Raises:
            BrokerError: names the partitions whose offsets stay unstable.
        """
        left = self.unstable(topics, partitions, limit_s, moved)
        if left:
            raise BrokerError(
                f"offsets of {_places(left)} stay unstable: a transaction is open or hangs, and no work is done before "
                f"it has ended; {HINT}"
            )

    def unstable(
        self, topics: Iterable[str], partitions: int, limit_s: float, moved: Callable[[], None] = lambda: None
    ) -> list[TP]:
        """Return the partitions of the group that are not seen stable once within `limit_s`.

        Args:
            topics: all input topics of the group.
            partitions: how many each has.
            limit_s: how long to look at most, and a tenth of a second more for each partition number.
            moved: called when another partition was seen stable.
        """
        deadline = time.monotonic() + limit_s
        consumer = Consumer({**self._options, "isolation.level": "read_committed"})
        left = [TP(topic, number) for topic in topics for number in range(partitions)]
        try:
            while left:
                still: list[TP] = []
                for _, group in _by_number(left):  # by partition number: busy members would never be stable all at once
                    time_s = min(CALL_TIMEOUT_S, max(LAST_CALL_S, deadline - time.monotonic()))
                    try:
                        answers = consumer.committed(group, timeout=time_s)
                        held = [TP(a.topic, a.partition) for a in answers if a.error]
                        still += held
                        if len(held) < len(group):
                            moved()
                    except KafkaException as exc:
                        log.warning("offsets of %s are not stable yet: %s", _places(group), exc)
                        still += [TP(t.topic, t.partition) for t in group]
                left = still
                if time.monotonic() > deadline:
                    break
                if left:
                    time.sleep(RETRY_PAUSE_S)
        finally:
            consumer.close()
        return left


def _wait_for_starts(
    committed: Consumer,
    watermarks: Consumer,
    group: list[TopicPartition],
    wanted: Callable[[], bool],
    limit_s: float,
) -> dict[TP, Start] | None:
    began_s = time.monotonic()
    while wanted():
        try:
            return _starts(committed, watermarks, group, min(CALL_TIMEOUT_S, limit_s))
        except KafkaException as exc:  # open transaction, moving coordinator, broker away: never a guess
            if not _answers(watermarks):
                began_s = time.monotonic()
            waited_s = time.monotonic() - began_s
            log.warning("no stable offsets of %s for %.0f s: %s", _places(group), waited_s, exc)
            if waited_s > limit_s:
                raise BrokerError(
                    f"offsets of {_places(group)} stay unstable for {waited_s:.0f} s, and nothing of it is read before "
                    f"they are; {HINT}"
                ) from exc
            time.sleep(RETRY_PAUSE_S)
    return None


def _starts(
    committed: Consumer, watermarks: Consumer, group: list[TopicPartition], timeout_s: float
) -> dict[TP, Start]:
    """Read the starts of partitions that are stable.

    Raises:
        KafkaException: one is not.
        BrokerError: one ends before its committed offset.
    """
    starts = {}
    for answer in committed.committed(group, timeout=timeout_s):
        if answer.error:
            raise KafkaException(answer.error)
        low, high = watermarks.get_watermark_offsets(answer, timeout=CALL_TIMEOUT_S)
        if answer.offset > high:
            raise BrokerError(
                f"{answer.topic}/{answer.partition} ends at {high}, before the committed offset {answer.offset}: it "
                "was truncated or made anew; reset the group's offsets of it (kafka-consumer-groups.sh --reset-offsets)"
            )
        offset = answer.offset if answer.offset >= 0 else low
        offset_map = decode(answer.metadata, offset, answer.topic, answer.partition)
        starts[TP(answer.topic, answer.partition)] = Start(offset_map, high)
    return starts


def _answers(consumer: Consumer) -> bool:
    """Whether the cluster answers at all: a call that waits for a transaction and one that meets nobody end alike."""
    try:
        consumer.list_topics(timeout=CALL_TIMEOUT_S)
    except KafkaException:
        return False
    return True


def _places(partitions: Sequence[TP | TopicPartition]) -> str:
    named = ", ".join(f"{tp.topic}/{tp.partition}" for tp in partitions[:SHOWN])
    return f"{named} and {len(partitions) - SHOWN} more" if len(partitions) > SHOWN else named


def _by_number(partitions: Iterable[TP]) -> list[tuple[int, list[TopicPartition]]]:
    ordered = sorted(partitions, key=lambda tp: (tp.partition, tp.topic))
    return [
        (number, [TopicPartition(tp.topic, tp.partition) for tp in group])
        for number, group in groupby(ordered, key=lambda tp: tp.partition)
    ]
