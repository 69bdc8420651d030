"""What a group has committed, seen again and again while things go wrong, and whether that was true.

A committed offset says that everything below it is finished, its map that more is. So a reader who begins to read after
it was seen must find the outputs: they lie before the ends that the topics then had. What lies there and is readable at
the end of the run is what such a reader gets, so the ends are all that has to be noted.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.ledger import Row

CALL_TIMEOUT_S = 2.0
EVERY_S = 1.5
PREFIX = "cp1."
SHOWN = 5

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class Sample(NamedTuple):
    """What was seen of one input partition.

    Attributes:
        partition: of the input topic.
        base: stable committed offset.
        metadata: that came with it.
        ends: (topic, partition) → high watermark, read afterwards.
    """

    partition: int
    base: int
    metadata: str
    ends: Mapping[tuple[str, int], int]


class Sampler:
    """Looks at one group until it is stopped, in a thread of its own.

    Args:
        bootstrap: address of the broker, which may go away for a while.
        group: consumer group.
        source: its input topic.
        written: topics that it writes.
        partitions: of each topic.
    """

    def __init__(self, bootstrap: str, group: str, source: str, written: Sequence[str], partitions: int) -> None:
        self.samples: list[Sample] = []
        self._source = source
        self._written = [(topic, number) for topic in written for number in range(partitions)]
        self._partitions = partitions
        options = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        self._offsets = Consumer({**options, "isolation.level": "read_committed"})
        self._ends = Consumer({**options, "isolation.level": "read_uncommitted"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; may be called twice, or without a start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.look()
            except KafkaException:
                continue  # the broker is away
        self._offsets.close()
        self._ends.close()

    def look(self) -> None:
        """Take one sample of each partition that has a commit and no transaction that stays open."""
        seen = []
        for number in range(self._partitions):  # one by one: those of busy workers are never stable all at once
            try:
                (answer,) = self._offsets.committed([TopicPartition(self._source, number)], CALL_TIMEOUT_S)
            except KafkaException:
                continue
            if answer.error is None and answer.offset >= 0:
                seen.append(answer)
        ends = {
            place: self._ends.get_watermark_offsets(TopicPartition(*place), CALL_TIMEOUT_S)[1]
            for place in self._written
        }
        self.samples += [Sample(one.partition, one.offset, (one.metadata or "").rstrip("\0"), ends) for one in seen]


def finished(base: int, metadata: str) -> tuple[int, frozenset[int]]:
    """Read an offset map by the bytes that are described in `pipeline/delivery/offsets.py`.

    Returns:
        The position up to which the map tells, and the offsets from `base` up to there that are not finished.

    Raises:
        ValueError: it is none.
    """
    if not metadata:
        return base, frozenset()
    if not metadata.startswith(PREFIX):
        raise ValueError(f"no offset map: {metadata[:20]!r}")
    text = metadata.removeprefix(PREFIX)
    numbers, number, shift = [], 0, 0
    for byte in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[4:]:  # behind the checksum
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number, shift = 0, 0
    length, *deltas = numbers
    unfinished, last = [], base
    for delta in deltas:
        last += delta
        unfinished.append(last)
    return base + length, frozenset(unfinished)


def wrong_samples(
    inputs: Sequence[Row], evidence: Mapping[tuple[int, int], Collection[Place]], samples: Sequence[Sample]
) -> list[str]:
    """What is wrong with committed offsets: each stood for outputs that could be read.

    Args:
        inputs: all records of the input topic; offsets of control records are not among them.
        evidence: (partition, offset) of an input → where its outputs or its dead letter are; absent for a record that
            has none.
        samples: in the order in which they were taken.
    """
    by_partition: dict[int, list[int]] = {}
    for row in inputs:
        by_partition.setdefault(row.partition, []).append(row.offset)
    bases: dict[int, int] = {}
    back, early = [], []
    for sample in samples:
        before = bases.get(sample.partition, 0)
        if sample.base < before:
            back.append((sample.partition, before, sample.base))
        bases[sample.partition] = max(before, sample.base)
        end, unfinished = finished(sample.base, sample.metadata)
        early += [
            (sample.partition, offset, sample.base)
            for offset in by_partition.get(sample.partition, [])
            if before <= offset < end and offset not in unfinished
            for topic, partition, place in evidence.get((sample.partition, offset), ())
            if place >= sample.ends[topic, partition]
        ]
    wrong = []
    if back:
        wrong.append(f"committed offsets went back (partition, from, to): {len(back)}, such as {back[:SHOWN]}")
    if early:
        wrong.append(
            "committed as finished, with outputs that could not be read (partition, offset, committed): "
            f"{len(early)}, such as {early[:SHOWN]}"
        )
    return wrong
