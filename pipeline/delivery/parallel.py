"""Runner for stages whose records finish out of order: fetch and parse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from faust.types import TP

from pipeline.delivery.api import Output, ParallelStage, Result, SourceRecord
from pipeline.delivery.assignment import Assignment, Batch
from pipeline.delivery.dead_letters import Breaker
from pipeline.delivery.flights import Flight, Lane, Partition, Quarantine
from pipeline.delivery.journal import MAX_CRASHES, InFlightJournal
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.pending import RESTORING, SHOWN_RECORDS, STOPPED, PendingPartition, PendingRecord
from pipeline.delivery.record_size import record_bytes
from pipeline.delivery.runner import Runner, log
from pipeline.delivery.transactions import Verdict, Work
from pipeline.errors import InputError
from pipeline.state.changelog import Changelog
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView, changelog_key

UNCOMMITTED_LIMIT = 4
"""Outputs that wait for their commit: this many times `commit_bytes`, then nothing new is started."""

Handled = tuple[Result, bool]
"""A result, and whether it is a dead letter."""


class StateLocation(NamedTuple):
    """Where a parallel stage keeps its state."""

    changelog: Changelog
    directory: Path
    tables: tuple[str, ...]


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
        self._lanes = {topic: Lane(slots) for topic, slots in lanes.items()}
        self._state = state
        self._journal = InFlightJournal(journal, sum(max(slots, self._partitions) for slots in lanes.values()))
        self._quarantine = Quarantine()
        self._partitions_by_tp: dict[TP, Partition] = {}
        self._stores: dict[int, PartitionStore] = {}
        self._flights: set[Flight] = set()
        self._begun = False
        self._outputs: list[Output] = []
        self._changes: dict[int, dict[tuple[str, bytes], bytes | None]] = {}
        self._uncommitted_bytes = 0
        self._finished = 0
        self._oldest_ms: dict[TP, int] = {}
        """Timestamp of the oldest record that waits for its commit, ms since the epoch."""
        self._dirty: set[Partition] = set()

    async def on_start(self) -> None:
        await super().on_start()
        await self._stage.start()

    async def on_stop(self) -> None:
        await super().on_stop()
        await self._stage.stop()

    # ---- assignment

    async def _begin(self, assignment: Assignment, moved: Callable[[], None]) -> None:
        for number in sorted({tp.partition for tp in assignment.partitions}):
            view = None
            if self._state is not None:
                store = await self._in_thread(self._open_store, self._state, number, assignment, moved)
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

    def _open_store(
        self, state: StateLocation, number: int, assignment: Assignment, moved: Callable[[], None]
    ) -> PartitionStore | None:
        store = PartitionStore(state.directory / str(number), state.tables)
        restored = state.changelog.restore(store, number, time.time(), self._wanted(assignment, store, moved))
        if restored is None or not self._current(assignment):  # closed here: the next one to open it is behind us
            store.close()
            return None
        self.metrics.note_restore(restored)
        return store

    def _partition(self, tp: TP, assignment: Assignment) -> Partition:
        found = self._partitions_by_tp.get(tp)
        if found is None:
            breaker = Breaker(self.settings.breaker_share, self.settings.breaker_records)
            lane = self._lanes[tp.topic]
            found = self._partitions_by_tp[tp] = Partition(tp, assignment.starts[tp], lane, breaker)
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
        for flight in self._flights:  # whatever they would still ask a site is their new owner's to ask
            if flight.task is not None and not flight.task.cancelling():  # a drain has told them already
                flight.task.cancel()
        self._stores.clear()
        self._partitions_by_tp.clear()
        self._quarantine.clear()
        self._outputs, self._changes, self._oldest_ms = [], {}, {}
        self._uncommitted_bytes = self._finished = 0
        self._dirty.clear()
        self._begun = False
        self.metrics.in_flight.set(0)

    async def _drain(self) -> None:
        for partition in self._partitions_by_tp.values():
            partition.queue.clear()
        running = {flight.task for flight in self._flights if flight.task is not None}
        if running:
            _, running = await asyncio.wait(running, timeout=self.settings.revoke_grace_s)
        for task in running:
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

    def _fill(self, partition: Partition) -> None:
        """Start what the partition's share, the offset map and the uncommitted outputs leave room for."""
        tracker, queue = partition.tracker, partition.queue
        while queue and self._begun and not self._closing and not partition.breaker.open:
            head = queue[0]
            if isinstance(head, int):
                queue.popleft()
                tracker.skip_to(head)
                self._touch(partition)
                continue
            crashes = self._journal.crashes(partition.tp, head.offset)
            if (
                tracker.in_flight >= partition.lane.share
                or not tracker.may_start(head.offset)
                or self._uncommitted_bytes > UNCOMMITTED_LIMIT * self.settings.commit_bytes
                or not self._quarantine.admits(partition, crashes, len(self._flights))
            ):
                return
            queue.popleft()
            partition.queued -= 1
            if partition.queued < self.settings.queue_records // 2:
                self.app.consumer.held.discard(partition.tp)
            if tracker.start(head.offset):
                self._start(partition, head, crashes)
            else:
                self.metrics.skipped.inc()
                self._touch(partition)

    def _start(self, partition: Partition, record: SourceRecord, crashes: int) -> None:
        flight = Flight(partition, record, self._journal.begin(partition.tp, record.offset), crashes, time.monotonic())
        self._flights.add(flight)
        self._quarantine.began(flight)
        self._launch(flight, self._handle)

    def _launch(self, flight: Flight, handle: Callable[[Flight], Awaitable[Handled]]) -> None:
        """Let a task handle the flight; one that does so already is cancelled and, if it goes on, not listened to."""
        flight.launches += 1
        former, flight.task = flight.task, asyncio.create_task(self._run(flight, handle, flight.launches))
        # Not in the task: one that is cancelled before its first step never enters its own `finally`.
        flight.task.add_done_callback(partial(self._ended, flight))
        if former is not None:
            former.cancel()

    def _ended(self, flight: Flight, task: asyncio.Task[None]) -> None:
        if flight.task is not task:
            return
        partition = flight.partition
        self._flights.discard(flight)
        self._journal.end(partition.tp, flight.record.offset, flight.slot)  # before the next one begins: it is counted
        alone = self._quarantine.active
        self._quarantine.ended(flight)
        try:
            if alone:
                self._fill_all()
            elif self._partitions_by_tp.get(partition.tp) is partition:
                self._fill(partition)
        except Exception as exc:  # noqa: BLE001  # a fault of the runner itself
            self.add_future(self._end(exc))

    def _touch(self, partition: Partition) -> None:
        """The partition's position moved without a result."""
        self._dirty.add(partition)
        if not partition.tracker.in_flight:
            self._pace.work()

    # ---- one record

    async def _run(self, flight: Flight, handle: Callable[[Flight], Awaitable[Handled]], launch: int) -> None:
        partition = flight.partition
        try:
            result, dead = await handle(flight)
            # Else handed back, and its next owner does it again; or begun anew, and the newer task answers.
            if self._partitions_by_tp.get(partition.tp) is partition and flight.launches == launch:
                self._finish(partition, flight.record, result, dead)
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # noqa: BLE001  # a fault of the runner itself
            await self._end(exc)

    def _finish(self, partition: Partition, record: SourceRecord, result: Result, dead: bool) -> None:
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

    async def _handle(self, flight: Flight) -> Handled:
        record = flight.record
        try:
            if flight.crashes >= MAX_CRASHES:
                raise InputError("crash_loop", f"in flight in {flight.crashes} crashes of this worker in a row")  # noqa: TRY301
            result = await self._stage.handle(record, backlog=record.offset < flight.partition.end_at_assignment)
            self._check_sizes(result.outputs)
        except (Exception, asyncio.CancelledError) as exc:  # a dead letter, not a dead worker
            task = asyncio.current_task()
            if flight.task is not task:
                raise asyncio.CancelledError from exc  # a newer task answers for the record
            if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # by us; else it leaked from a library, and would leave the record in flight for ever
            if not isinstance(exc, InputError):
                log.exception("handling %s/%d/%d failed", record.topic, record.partition, record.offset)
            return await self._give_up(exc, flight)
        return result, False

    async def _give_up(self, error: BaseException, flight: Flight) -> Handled:
        letter = self._dead_letter(flight.record, error, flight.attempts)
        return Result([letter, *await self._stage.dead_letter_outputs(flight.record, str(error))]), True

    # ---- records that take too long

    def _look_after(self) -> None:
        """Give up what is in flight beyond `handler_s`; a handler that does not even end then is left to itself."""
        limit_s = self.settings.handler_s
        late = InputError("deadline", f"not handled within {limit_s:g} s (delivery.handler_s)")
        now_s = time.monotonic()
        for flight in list(self._flights):
            if now_s - flight.began_s > limit_s and self._is_in_hand(flight):
                self._begin_anew(flight, partial(self._give_up, late))

    def _is_in_hand(self, flight: Flight) -> bool:
        """Whether its result still counts and is not there yet."""
        partition = flight.partition
        here = self._partitions_by_tp.get(partition.tp) is partition and not self._closing
        return here and flight.task is not None and not flight.task.done()

    def _begin_anew(self, flight: Flight, handle: Callable[[Flight], Awaitable[Handled]]) -> None:
        flight.began_s = time.monotonic()
        self._launch(flight, handle)

    def release(self, tp: TP, offset: int, *, give_up: bool) -> bool:
        """Begin a record in flight anew, or make it a dead letter; False where it is not in flight here."""
        for flight in self._flights:
            if flight.partition.tp == tp and flight.record.offset == offset and self._is_in_hand(flight):
                flight.releases += 1
                error = InputError("policy", "given up by hand")
                self._begin_anew(flight, partial(self._give_up, error) if give_up else self._handle)
                return True
        return False

    def resume(self, tp: TP) -> bool:
        """Let a partition go on that its breaker has stopped; False where none has."""
        partition = self._partitions_by_tp.get(tp)
        if partition is None or not self._reset(partition.breaker):
            return False
        self._fill(partition)
        return True

    def pending(self) -> list[PendingPartition]:
        """What is at hand of each partition."""
        now_s = time.monotonic()
        records: dict[Partition, list[PendingRecord]] = {}
        for flight in sorted(self._flights, key=lambda flight: flight.record.offset):
            record = PendingRecord(flight.record.offset, now_s - flight.began_s, flight.attempts)
            records.setdefault(flight.partition, []).append(record)
        return [
            PendingPartition(
                tp.topic, tp.partition, partition.expected, partition.queued, self._paused(partition),
                tuple(records.get(partition, ())[:SHOWN_RECORDS]),
            )
            for tp, partition in sorted(self._partitions_by_tp.items())
        ]  # fmt: skip

    def _paused(self, partition: Partition) -> str:
        """Why nothing more of a partition is begun; empty where it goes on or has nothing."""
        head = next((entry for entry in partition.queue if not isinstance(entry, int)), None)
        if not self._begun:
            why = RESTORING
        elif aborted := self._aborted():
            why = aborted
        elif partition.breaker.open:
            why = STOPPED
        elif self._quarantine.active:
            why = "quarantine: a record that was in flight in several crashes runs alone"
        elif head is None:
            why = ""
        elif not partition.tracker.may_start(head.offset):
            why = "the offset map is full: a record at its base has been unfinished for too long"
        elif self._uncommitted_bytes > UNCOMMITTED_LIMIT * self.settings.commit_bytes:
            why = "too many outputs wait for their commit"
        else:
            why = "all slots are in use" if partition.tracker.in_flight >= partition.lane.share else ""
        return why

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
            for tp, offset_map in positions.items():
                self._journal.settled(tp, offset_map.base)
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
