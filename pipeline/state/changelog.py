"""Bringing a partition's store up to its changelog."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pipeline.errors import BrokerError
from pipeline.state.chunk import Chunk, Tally

log = logging.getLogger(__name__)

GROUP = "headrace-restore"
CHUNK_RECORDS = 20_000
CALL_TIMEOUT_S = 15.0
CONSUME_S = 0.05
PROGRESS_INTERVAL_S = 0.5
RETRY_PAUSE_S = 0.2
STANDSTILL_S = 60.0
BAR_WIDTH = 30


class RowCodec(Protocol):
    """How rows travel in the changelog topic."""

    def wrap(self, row: bytes) -> bytes:
        """Return the record value for a row."""
        ...

    def unwrap(self, value: bytes) -> bytes:
        """Return the row of a record value. Raises InputError where it holds none."""
        ...


class Restorable(Protocol):
    """What can be brought up to a changelog; `PartitionStore` says what the names mean."""

    @property
    def tables(self) -> Collection[str]: ...

    applied: int
    written_at: float
    changed: int

    def apply(
        self, changes: Mapping[tuple[str, bytes], bytes | None], applied: int, now: float, changed: int | None = None
    ) -> None: ...
    def wipe(self) -> None: ...


class PlainRows:
    """Rows that are contract records already travel as they are."""

    def wrap(self, row: bytes) -> bytes:
        return row

    def unwrap(self, value: bytes) -> bytes:
        return value


class Restored(NamedTuple):
    """What a restore did.

    Attributes:
        records: changes that were read.
        seconds: that it took.
        foreign: records that were passed over, since no table has such rows: somebody else wrote them.
    """

    records: int
    seconds: float
    foreign: int = 0


class Changelog:
    """The compacted topic behind the stores of a stage; partition p of it belongs to store p.

    Args:
        options: librdkafka options of the cluster.
        topic: name of the changelog topic.
        rows: how rows travel in it.
        delete_retention_s: how long the topic keeps deletions (delete.retention.ms); an older store is rebuilt.
        standstill_s: how long a restore may stand still while the broker answers.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        topic: str,
        rows: RowCodec,
        delete_retention_s: float,
        standstill_s: float = STANDSTILL_S,
    ) -> None:
        self.topic = topic
        self.rows = rows
        self._standstill_s = standstill_s
        self._options = {**options, "group.id": GROUP, "enable.auto.commit": False}
        self._delete_retention_s = delete_retention_s

    def restore(self, store: Restorable, partition: int, now: float, wanted: Callable[[], bool]) -> Restored | None:
        """Bring the store up to the changelog. Blocking.

        To be called after the stable input offset is known. The target is the high watermark, not the last stable
        offset: offsets can be stable while a marker of the same transaction is still missing here, and its changes
        would be missed. It is read up to with read_committed.

        Args:
            store: the store of the partition; wiped first where it can't be trusted.
            partition: of the changelog topic.
            now: seconds since the epoch.
            wanted: asked between chunks; False ends the restore.

        Returns:
            What was done, None when it was no longer wanted: the store is then behind and must be closed.

        Raises:
            BrokerError: an open transaction below the target does not end: what it holds back is not known, and without
                it the state would be wrong.
            ConfigurationError: the newest change of a row can't be read: without it the state would be wrong. A later
                change of the same row, a deletion too, makes good for it.
        """
        began_s = time.monotonic()
        while wanted():
            try:
                tally = self._restore(store, partition, now, wanted)
            except KafkaException as exc:  # leader moving, broker away: go on from what the store has
                log.warning("restore of %s/%d goes on after: %s", self.topic, partition, exc)
                time.sleep(RETRY_PAUSE_S)
            else:
                return None if tally is None else Restored(tally.records, time.monotonic() - began_s, tally.foreign)
        return None

    def _restore(self, store: Restorable, partition: int, now: float, wanted: Callable[[], bool]) -> Tally | None:
        low, target = self._watermarks(partition)
        self._wipe_what_is_past_trust(store, partition, target, now)
        # The last change that the store holds is read once more: its transaction may have been aborted from outside, as
        # an operator does with one that hangs, after the worker had been told that it was committed.
        confirm = store.changed - 1 if store.changed > low else None
        position, tally = max(store.applied, low) if confirm is None else confirm, Tally()
        if position >= target:
            return tally
        progress = _Progress(f"{self.topic}/{partition}", position, target)
        consumer = Consumer(
            {
                **self._options,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # its events carry the position past control and aborted records
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "queued.min.messages": 200_000,
                "queued.max.messages.kbytes": 65_536,
                "fetch.message.max.bytes": 4 << 20,
            }
        )
        try:
            consumer.assign([TopicPartition(self.topic, partition, position)])
            moved_s = time.monotonic()
            while position < target and wanted():
                chunk = self._read(consumer, partition, position, store.tables)
                if chunk.position > position:
                    moved_s = time.monotonic()
                elif time.monotonic() - moved_s > self._standstill_s:
                    self._watermarks(partition)  # an outage is none: it raises what makes the restore go on
                    raise BrokerError(self._stands_still(partition, position, target))
                if confirm is not None and chunk.position > confirm:
                    if confirm not in chunk.offsets[:1]:
                        log.warning("state of partition %d holds what %s does not: rebuilt", partition, self.topic)
                        store.wipe()
                        return self._restore(store, partition, now, wanted)
                    confirm, tally.records = None, -1  # not counted: the store has it
                position = chunk.position
                tally.add(chunk)
                _apply(store, chunk, tally, now, is_last=position >= target)
                progress.show(position, tally.records)
        finally:
            consumer.close()
        if position < target:
            return None
        tally.check(f"{self.topic}/{partition}")
        return tally

    def _wipe_what_is_past_trust(self, store: Restorable, partition: int, target: int, now: float) -> None:
        if store.applied > target:
            log.warning("state of partition %d is ahead of %s: rebuilt", partition, self.topic)
            store.wipe()
        elif store.applied and now - store.written_at > self._delete_retention_s:
            log.warning("state of partition %d is older than the deletions kept in %s: rebuilt", partition, self.topic)
            store.wipe()

    def _read(self, consumer: Consumer, partition: int, position: int, tables: Collection[str]) -> Chunk:
        chunk = Chunk(position, tables, self.rows.unwrap)
        for message in consumer.consume(CHUNK_RECORDS, CONSUME_S):
            error, offset = message.error(), message.offset() or 0
            if error is None:
                chunk.add(message.key() or b"", message.value(), offset)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the public name of the constant
                chunk.position = max(chunk.position, offset)
            else:
                raise KafkaException(error)
        if chunk.foreign:
            log.error(
                "%s/%d: %d records are of no table of ours and are passed over, the first at offset %d",
                self.topic, partition, len(chunk.foreign), chunk.foreign[0],
            )  # fmt: skip
        return chunk

    def _stands_still(self, partition: int, position: int, target: int) -> str:
        return (
            f"restore of {self.topic}/{partition} stands at {position}, {target - position} before its end, for "
            f"{self._standstill_s:g} s: a transaction is open there or hangs; `headrace doctor` tells which, and the "
            "command that ends it"
        )

    def _watermarks(self, partition: int) -> tuple[int, int]:
        # read_committed would give the last stable offset as the high watermark
        consumer = Consumer({**self._options, "isolation.level": "read_uncommitted"})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=CALL_TIMEOUT_S)
        finally:
            consumer.close()
        return low, high


def _apply(store: Restorable, chunk: Chunk, tally: Tally, now: float, *, is_last: bool) -> None:
    if tally.refused:  # what the store stands for ends before it: the next restore must meet it again
        before = min(refused.offset for refused in tally.refused.values())
        store.apply(chunk.changes, min(store.applied, before), now, min(store.changed, before))
    elif chunk.changes or is_last:
        store.apply(chunk.changes, chunk.position, now, chunk.offsets[-1] + 1 if chunk.offsets else None)


class _Progress:
    """A bar in the log, at most twice a second."""

    def __init__(self, name: str, start: int, target: int) -> None:
        self._name, self._start, self._target = name, start, target
        self._began_s = self._shown_s = time.monotonic()

    def show(self, position: int, records: int) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < PROGRESS_INTERVAL_S and position < self._target:
            return
        self._shown_s = now_s
        share = (position - self._start) / max(1, self._target - self._start)
        bar = ("#" * round(share * BAR_WIDTH)).ljust(BAR_WIDTH, ".")
        rate = records / max(1e-3, now_s - self._began_s)
        log.info("restore %s [%s] %3.0f %% %d records, %.0f/s", self._name, bar, 100 * share, records, rate)
