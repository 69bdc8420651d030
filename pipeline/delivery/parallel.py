"""Runner for stages whose records finish out of order: fetch and parse."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from faust.types import TP

from pipeline.delivery.api import Output, ParallelStage, Result, SourceRecord
from pipeline.delivery.assignment import Assignment, Batch, Start
from pipeline.delivery.dead_letters import Breaker
from pipeline.delivery.journal import MAX_CRASHES, InFlightJournal
from pipeline.delivery.offsets import OffsetMap, OffsetTracker
from pipeline.delivery.runner import Runner, log
from pipeline.delivery.transactions import Verdict, Work, record_bytes
from pipeline.errors import InputError
from pipeline.state.changelog import Changelog
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView, changelog_key

UNCOMMITTED_LIMIT = 4
"""Outputs that wait for their commit: this many times `commit_bytes`, then nothing new is started."""


class StateLocation(NamedTuple):
    """Where a parallel stage keeps its state."""

    changelog: Changelog
    directory: Path
    tables: tuple[str, ...]


class _Lane:
    """Slots of one topic, dealt to its partitions in equal shares, so that a stuck partition delays no other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.partitions: list[_Partition] = []

    @property
    def share(self) -> int:
        return max(1, self.slots // max(1, len(self.partitions)))


class _Partition:
    """One partition in one assignment."""

    def __init__(self, tp: TP, start: Start, lane: _Lane, breaker: Breaker) -> None:
        self.tp = tp
        self.lane = lane
        self.breaker = breaker
        self.tracker = OffsetTracker(start.offset_map)
        self.expected = start.offset_map.base
        self.end_at_assignment = start.end
        self.queue: deque[SourceRecord | int] = deque()
        """Records to start; an integer is the position after the batch before it."""
        self.queued = 0


class ParallelRunner(Runner):
    """Many records in flight; one short transaction for what has finished.

    Args:
        stage: what is done with a record.
        lanes: topic → how many of its records may be in flight.
        journal: file of what is in flight.
        state: where the stage's state is; None for a stage without.
        **shared: see `Runner`.
    """

    def __init__(
        self,
        app: Any,
        stage: ParallelStage,
        *,
        lanes: Mapping[str, int],
        journal: Path,
        state: StateLocation | None,
        **shared: Any,
    ) -> None:
        super().__init__(app, **shared)
        self._stage = stage
        self._lanes = {topic: _Lane(slots) for topic, slots in lanes.items()}
        self._state = state
        self._journal = InFlightJournal(journal, sum(max(slots, self._partitions) for slots in lanes.values()))
        self._suspect_in_flight = False
        self._partitions_by_tp: dict[TP, _Partition] = {}
        self._stores: dict[int, PartitionStore] = {}
        self._handling: set[asyncio.Task[None]] = set()
        self._begun = False
        self._outputs: list[Output] = []
        self._changes: dict[int, dict[tuple[str, bytes], bytes | None]] = {}
        self._uncommitted_bytes = 0
        self._finished = 0
        self._oldest_ms: dict[TP, int] = {}
        """Timestamp of the oldest record that waits for its commit, ms since the epoch."""
        self._dirty: set[_Partition] = set()

    async def on_start(self) -> None:
        await super().on_start()
        await self._stage.start()

    async def on_stop(self) -> None:
        await super().on_stop()
        await self._stage.stop()

    # ---- assignment

    async def _begin(self, assignment: Assignment) -> None:
        for number in sorted({tp.partition for tp in assignment.partitions}):
            view = None
            if self._state is not None:
                store = await self._in_thread(self._open_store, self._state, number, assignment)
                if store is None:
                    return
                if not self._current(assignment):
                    store.close()
                    return
                self._stores[number] = store
                view = StagedView(store, self._state.tables)
            self._stage.opened(number, view)
        for tp in sorted(assignment.partitions):
            self._partition(tp, assignment)
        self._begun = True
        self._fill_all()

    def _open_store(self, state: StateLocation, number: int, assignment: Assignment) -> PartitionStore | None:
        store = PartitionStore(state.directory / str(number), state.tables)
        restored = state.changelog.restore(store, number, time.time(), lambda: self._current(assignment))
        if restored is None or not self._current(assignment):  # closed here: the next one to open it is behind us
            store.close()
            return None
        self.metrics.restored.inc(restored.records)
        self.metrics.restore_s.inc(restored.seconds)
        return store

    def _partition(self, tp: TP, assignment: Assignment) -> _Partition:
        found = self._partitions_by_tp.get(tp)
        if found is None:
            breaker = Breaker(self.settings.breaker_share, self.settings.breaker_records)
            lane = self._lanes[tp.topic]
            found = self._partitions_by_tp[tp] = _Partition(tp, assignment.starts[tp], lane, breaker)
            lane.partitions.append(found)
            self._journal.settled(tp, found.expected)
        return found

    def _forget(self) -> None:
        for number in {tp.partition for tp in self._partitions_by_tp} | self._stores.keys():
            self._stage.closed(number)
        for store in self._stores.values():
            store.close()
        for lane in self._lanes.values():
            lane.partitions.clear()
        self._stores.clear()
        self._partitions_by_tp.clear()
        self._outputs, self._changes, self._oldest_ms = [], {}, {}
        self._uncommitted_bytes = self._finished = 0
        self._dirty.clear()
        self._begun = False
        self.metrics.in_flight.set(0)

    async def _drain(self) -> None:
        for partition in self._partitions_by_tp.values():
            partition.queue.clear()
        if self._handling:
            await asyncio.wait(set(self._handling), timeout=self.settings.revoke_grace_s)
        for task in set(self._handling):
            task.cancel()
            self.metrics.cancelled.inc()

    # ---- intake

    def _take(self, tp: TP, batch: Batch) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        partition = self._partition(tp, assignment)
        self._check_chain(tp, partition.expected, batch)
        if batch.end <= partition.expected:
            return
        fresh = [record for record in batch.records if record.offset >= partition.expected]
        partition.queue.extend(fresh)
        partition.queue.append(batch.end)
        partition.queued += len(fresh)
        partition.expected = batch.end
        if partition.queued >= self.settings.queue_records:
            self.app.consumer.held.add(tp)
        self._fill(partition)

    def _expected(self) -> dict[TP, int]:
        return {tp: partition.expected for tp, partition in self._partitions_by_tp.items()}

    def _left(self, tp: TP, end: int) -> int:
        done = self._partitions_by_tp[tp].tracker.snapshot()
        return max(0, end - done.base - done.finished_ahead)

    def _fill_all(self) -> None:
        for partition in self._partitions_by_tp.values():
            self._fill(partition)

    def _fill(self, partition: _Partition) -> None:
        """Start what the partition's share, the offset map and the uncommitted outputs leave room for."""
        tracker, queue = partition.tracker, partition.queue
        while queue and self._begun and not self._closing and not partition.breaker.open:
            head = queue[0]
            if isinstance(head, int):
                queue.popleft()
                tracker.skip_to(head)
                self._touch(partition)
                continue
            if (
                tracker.in_flight >= partition.lane.share
                or not tracker.may_start(head.offset)
                or self._uncommitted_bytes > UNCOMMITTED_LIMIT * self.settings.commit_bytes
                or (self._suspect_in_flight and self._journal.crashes(partition.tp, head.offset))
            ):
                return
            queue.popleft()
            partition.queued -= 1
            if partition.queued < self.settings.queue_records // 2:
                self.app.consumer.held.discard(partition.tp)
            if tracker.start(head.offset):
                self._start(partition, head)
            else:
                self.metrics.skipped.inc()
                self._touch(partition)

    def _start(self, partition: _Partition, record: SourceRecord) -> None:
        crashes = self._journal.crashes(partition.tp, record.offset)
        slot = self._journal.begin(partition.tp, record.offset)
        task = asyncio.create_task(self._run(partition, record, crashes))
        self._handling.add(task)
        self._suspect_in_flight = self._suspect_in_flight or crashes > 0
        # Not in the task: one that is cancelled before its first step never enters its own `finally`.
        task.add_done_callback(partial(self._ended, partition, record.offset, slot, crashes))

    def _ended(self, partition: _Partition, offset: int, slot: int, crashes: int, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._journal.end(partition.tp, offset, slot)  # before the next one begins: slots are counted
        if crashes:
            self._suspect_in_flight = False
        try:
            if crashes:
                self._fill_all()
            elif self._partitions_by_tp.get(partition.tp) is partition:
                self._fill(partition)
        except Exception as exc:  # noqa: BLE001  # a fault of the runner itself
            self.add_future(self._end(exc))

    def _touch(self, partition: _Partition) -> None:
        """The partition's position moved without a result."""
        self._dirty.add(partition)
        if not partition.tracker.in_flight:
            self._pace.work()

    # ---- one record

    async def _run(self, partition: _Partition, record: SourceRecord, crashes: int) -> None:
        try:
            result, dead = await self._handle(partition, record, crashes)
            if self._partitions_by_tp.get(partition.tp) is partition:  # else handed back: the next owner does it again
                self._finish(partition, record, result, dead)
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # noqa: BLE001  # a fault of the runner itself
            await self._end(exc)

    def _finish(self, partition: _Partition, record: SourceRecord, result: Result, dead: bool) -> None:
        """Take a result for the next commit."""
        partition.tracker.finish(record.offset)
        if partition.breaker.note(dead):
            self._say_open(*partition.tp)
        self._outputs += result.outputs
        self._uncommitted_bytes += sum(record_bytes(output) for output in result.outputs)
        self._finished += 1
        self._oldest_ms[partition.tp] = min(record.timestamp, self._oldest_ms.get(partition.tp, record.timestamp))
        self._dirty.add(partition)
        for change in result.changes:
            self._changes.setdefault(record.partition, {})[change.table, change.key] = change.value
        self._pace.work(
            at_once=result.urgent
            or self._uncommitted_bytes >= self.settings.commit_bytes
            or len(self._outputs) >= self.settings.commit_records
        )

    async def _handle(self, partition: _Partition, record: SourceRecord, crashes: int) -> tuple[Result, bool]:
        """Return the result, and whether it is a dead letter."""
        try:
            if crashes >= MAX_CRASHES:
                raise InputError("crash_loop", f"in flight in {crashes} crashes of this worker in a row")  # noqa: TRY301
            result = await self._stage.handle(record, backlog=record.offset < partition.end_at_assignment)
            self._check_sizes(result.outputs)
        except (Exception, asyncio.CancelledError) as exc:  # a dead letter, not a dead worker
            task = asyncio.current_task()
            if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # by us; else it leaked from a library, and would leave the record in flight for ever
            if not isinstance(exc, InputError):
                log.exception("handling %s/%d/%d failed", record.topic, record.partition, record.offset)
            letter = self._dead_letter(record, exc)
            beside = await self._stage.dead_letter_outputs(record, str(exc))
            return Result([letter, *beside]), True
        return result, False

    # ---- commit

    def _next_wake_s(self) -> float | None:
        return None

    async def _commit(self) -> None:
        assignment = self._assignment
        if assignment is None or not self._dirty:
            return
        # One snapshot in the loop thread: results and finished offsets belong together.
        outputs, self._outputs = self._outputs, []
        changes, self._changes = self._changes, {}
        dirty, self._dirty = self._dirty, set()
        oldest_ms, self._oldest_ms = self._oldest_ms, {}
        size, self._uncommitted_bytes = self._uncommitted_bytes, 0
        finished, self._finished = self._finished, 0
        positions = {partition.tp: partition.tracker.snapshot() for partition in dirty}
        verdict, _ = await self._transact(partial(self._publish, outputs, changes, positions, assignment))
        if verdict is Verdict.COMMITTED:
            self.metrics.outputs.inc(len(outputs))
            self.metrics.records.inc(finished)
            now_ms = time.time() * 1000
            for timestamp_ms in oldest_ms.values():
                self.metrics.latency_s.observe(max(0.0, (now_ms - timestamp_ms) / 1000))
            self.app.monitor.on_tp_commit({tp: m.base for tp, m in positions.items()})
        elif verdict is Verdict.FENCED:
            self._lose_assignment()
            return
        else:  # undone: what this transaction took is put back, before anything newer
            self._outputs = outputs + self._outputs
            for number, rows in changes.items():
                self._changes[number] = {**rows, **self._changes.get(number, {})}
            self._dirty |= dirty
            self._oldest_ms = {**self._oldest_ms, **oldest_ms}
            self._uncommitted_bytes += size
            self._finished += finished
            self._pace.work()
        self.metrics.in_flight.set(sum(p.tracker.in_flight for p in self._partitions_by_tp.values()))
        self._fill_all()

    def _publish(
        self,
        outputs: list[Output],
        changes: dict[int, dict[tuple[str, bytes], bytes | None]],
        positions: dict[TP, OffsetMap],
        assignment: Assignment,
    ) -> tuple[Verdict, None]:
        """In the thread: the transaction, then the store."""
        records = {}
        if self._state is not None:
            log_topic, wrap = self._state.changelog.topic, self._state.changelog.rows.wrap
            records = {
                number: [
                    (log_topic, changelog_key(table, key), None if value is None else wrap(value))
                    for (table, key), value in rows.items()
                ]
                for number, rows in changes.items()
            }
        verdict, high = self._producer.run(Work(outputs, records, positions, assignment.identity))
        if verdict is Verdict.COMMITTED:
            for number, rows in changes.items():
                self._stores[number].apply(rows, high[number], time.time())
        return verdict, None
