"""Runner for stages that work in order on a partition's state: frontier and store."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from faust.types import TP

from pipeline.delivery.api import OrderedPartition, OrderedStage, Output, SourceRecord
from pipeline.delivery.assignment import Assignment, Batch, Start
from pipeline.delivery.dead_letters import Breaker
from pipeline.delivery.journal import MAX_CRASHES, InFlightJournal
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.pending import RESTORING, STOPPED, PendingPartition, PendingRecord
from pipeline.delivery.runner import Runner, log
from pipeline.delivery.transactions import Verdict, Work
from pipeline.errors import BrokerError, BugError, ConfigurationError, InputError
from pipeline.state.changelog import Changelog
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView, changelog_key

T = TypeVar("T")

MAX_ROUND_RECORDS = 5_000
WORK_SHARE = 0.5
"""Share of the commit interval for which a round works."""


class _Input:
    """One topic of one partition number in one assignment."""

    def __init__(self, start: Start, breaker: Breaker) -> None:
        self.expected = start.offset_map.base
        """Position after the last batch that arrived."""
        self.position = start.offset_map.base
        """Position after the last record that was taken into a round."""
        self.queue: deque[SourceRecord] = deque()
        self.breaker = breaker


class _Share:
    """Time shared out to some that come one after the other: what one does not use is left to the others.

    Args:
        clock: monotonic seconds.
        seconds: all there is.
        count: of those who share it.
    """

    def __init__(self, clock: Callable[[], float], seconds: float, count: int) -> None:
        self._clock = clock
        self._end_s = clock() + seconds
        self._left = count

    def next(self) -> float:
        """Return when the share of the next one ends."""
        now_s = self._clock()
        ends_s = now_s + (self._end_s - now_s) / self._left
        self._left -= 1
        return ends_s


class _Slot:
    """One partition number in one assignment: its inputs, its state, its logic."""

    def __init__(self, number: int, inputs: dict[str, _Input]) -> None:
        self.number = number
        self.inputs = inputs
        self.store: PartitionStore | None = None
        self.view: StagedView | None = None
        self.logic: OrderedPartition | None = None


@dataclass(slots=True)
class _Taken:
    """What a round takes from one input.

    Attributes:
        slot: of the partition.
        topic: of the input.
        records: what is handled.
        before: position before them.
        position: position after them.
        breaker: as it is after them.
        left: records that are not handled: the breaker tripped before them, or the round has lasted long enough.
    """

    slot: _Slot
    topic: str
    records: list[SourceRecord]
    before: int
    position: int
    breaker: Breaker
    left: list[SourceRecord] = field(default_factory=list)

    def leave(self, index: int) -> None:
        """Handle nothing from the record of that index on."""
        self.left = self.records[index:] + self.left  # a round that is done again may stop earlier
        del self.records[index:]
        if self.left:
            self.position = self.left[0].offset


class OrderedRunner(Runner):
    """One micro-batch of all partitions of a worker, in order, and what the time made due: one transaction.

    A round works for about half of `interval_s`, whatever is queued, for its transaction may take as long again: what
    is urgent and comes meanwhile waits for no more than the next one. The time is shared out to partitions, and in each
    to its inputs and what is due.

    Args:
        stage: opens the partitions' logic.
        changelog: of the state.
        directory: where the stores are.
        tables: one-letter names of the state's tables.
        journal: file of what is in hand.
        clock: seconds since the epoch.
        monotonic: seconds that never go back, for how long a round works.
        **shared: see `Runner`.
    """

    def __init__(
        self,
        app: Any,
        stage: OrderedStage,
        *,
        changelog: Changelog,
        directory: Path,
        tables: tuple[str, ...],
        journal: Path,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        **shared: Any,
    ) -> None:
        super().__init__(app, **shared)
        self._stage = stage
        self._changelog = changelog
        self._directory = directory
        self._tables = tables
        self._clock = clock
        self._monotonic = monotonic
        self._work_s: float = shared["interval_s"] * WORK_SHARE
        self._slots: dict[int, _Slot] = {}
        self._next_due: float | None = None
        self._journal = InFlightJournal(journal, 1)
        self._in_hand: tuple[TP, int, float] | None = None
        """The record that the thread handles: where it comes from, its offset, since when (monotonic)."""

    # ---- assignment

    async def _begin(self, assignment: Assignment, moved: Callable[[], None]) -> None:
        for number in sorted({tp.partition for tp in assignment.partitions}):
            slot = self._slot(number, assignment)
            if not await self._in_thread(self._open_slot, slot, assignment, moved) or not self._current(assignment):
                return  # forgotten meanwhile, and closed behind the opening
        async with self._commit_lock:  # no round is changing the views
            self._note_due()
        self._pace.work()

    def _slot(self, number: int, assignment: Assignment) -> _Slot:
        slot = self._slots.get(number)
        if slot is None:
            inputs = {
                topic: _Input(
                    assignment.starts[TP(topic, number)],
                    Breaker(self.settings.breaker_share, self.settings.breaker_records),
                )
                for topic in self._input_topics
            }
            slot = self._slots[number] = _Slot(number, inputs)
        return slot

    def _open_slot(self, slot: _Slot, assignment: Assignment, moved: Callable[[], None]) -> bool:
        """In the thread: restore the state and build the logic on it; False when no longer wanted."""
        now = self._clock()
        store = slot.store = PartitionStore(self._directory / str(slot.number), self._tables)
        restored = self._changelog.restore(store, slot.number, now, self._wanted(assignment, store, moved))
        if restored is None:
            return False
        for topic, entry in slot.inputs.items():
            self._journal.settled(TP(topic, slot.number), entry.position)
        self.metrics.note_restore(restored)
        slot.view = StagedView(store, self._tables)
        with _named(slot.number):
            slot.logic = self._stage.open(slot.number, slot.view, now)
        return True

    def _forget(self) -> None:
        slots, self._slots = self._slots, {}
        self._next_due = None
        if slots:
            self._thread.submit(_close_slots, list(slots.values()))

    async def _drain(self) -> None:
        """A round is never cut: what is queued and not taken is left to the next owner."""
        for slot in self._slots.values():
            for entry in slot.inputs.values():
                entry.queue.clear()

    # ---- intake

    def _take(self, tp: TP, batch: Batch) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        entry = self._slot(tp.partition, assignment).inputs[tp.topic]
        self._check_chain(tp, entry.expected, batch)
        if batch.end <= entry.expected:
            return
        entry.queue.extend(record for record in batch.records if record.offset >= entry.expected)
        entry.expected = batch.end
        if len(entry.queue) >= self.settings.queue_records:
            self.app.consumer.held.add(tp)
        self._pace.work(at_once=len(entry.queue) >= self.settings.queue_records)

    def _expected(self) -> dict[TP, int]:
        return {
            TP(topic, slot.number): entry.expected
            for slot in self._slots.values()
            for topic, entry in slot.inputs.items()
        }

    def _left(self, tp: TP, end: int) -> int:
        return max(0, end - self._slots[tp.partition].inputs[tp.topic].position)

    # ---- for people

    def _look_after(self) -> None:
        """A round runs in a thread and can't be cut: the watchdog ends the worker where one takes too long."""

    def release(self, tp: TP, offset: int, *, give_up: bool) -> bool:
        """Return False: a round can't be cut, the records of it that wait for another one have not begun."""
        del tp, offset, give_up
        return False

    def resume(self, tp: TP) -> bool:
        """Let a partition go on that its breaker has stopped; False where none has."""
        slot = self._slots.get(tp.partition)
        entry = slot.inputs.get(tp.topic) if slot is not None else None
        if entry is None or not self._reset(entry.breaker):
            return False
        self._pace.work()
        return True

    def pending(self) -> list[PendingPartition]:
        """What is at hand of each partition: at most one record in all is being handled."""
        in_hand, now_s = self._in_hand, time.monotonic()
        rows = []
        for number, slot in sorted(self._slots.items()):
            for topic, entry in sorted(slot.inputs.items()):
                records: tuple[PendingRecord, ...] = ()
                if in_hand is not None and in_hand[0] == TP(topic, number):
                    crashes = self._journal.crashes(TP(topic, number), in_hand[1])
                    records = (PendingRecord(in_hand[1], now_s - in_hand[2], 1 + crashes),)
                why = ""
                if slot.logic is None:
                    why = RESTORING
                elif aborted := self._aborted():
                    why = aborted
                elif entry.breaker.open:
                    why = STOPPED
                rows.append(PendingPartition(topic, number, entry.expected, len(entry.queue), why, records))
        return rows

    async def ask(self, question: Callable[[OrderedPartition], T], partition: int | None = None) -> dict[int, T]:
        """Put a question to the logic of this worker's partitions, in the thread, between two rounds.

        Args:
            question: looks and changes nothing; rounds wait for it.
            partition: number; None for all.

        Returns:
            Number → answer; nothing of a partition that is not this worker's, was lost meanwhile, or is being restored.
        """
        assignment = self._assignment
        if assignment is None:
            return {}
        slots = [slot for slot in self._slots.values() if partition in {None, slot.number}]
        answers = await self._in_thread(
            lambda: {slot.number: question(slot.logic) for slot in slots if slot.logic is not None}
        )
        return answers if self._current(assignment) else {}

    # ---- commit

    def _next_wake_s(self) -> float | None:
        # Never more often than commits under load, whatever the stage says is due.
        return None if self._next_due is None else max(self._pace.delay_s(), self._next_due - self._clock())

    def _note_due(self) -> None:
        due = [moment for slot in self._slots.values() if slot.logic and (moment := slot.logic.due()) is not None]
        self._next_due = min(due, default=None)

    def _take_round(self) -> list[_Taken]:
        """In the loop thread: take records from the queues, an equal share of the round for each input."""
        ready = [slot for slot in self._slots.values() if slot.logic is not None]
        waiting = sum(1 for slot in ready for entry in slot.inputs.values() if entry.queue)
        share = max(1, MAX_ROUND_RECORDS // max(1, waiting))
        taken = []
        for slot in ready:
            for topic in self._input_topics:
                entry = slot.inputs[topic]
                if entry.breaker.open:
                    continue
                records = [entry.queue.popleft() for _ in range(min(share, len(entry.queue)))]
                position = entry.queue[0].offset if entry.queue else entry.expected
                if len(entry.queue) < self.settings.queue_records // 2:
                    self.app.consumer.held.discard(TP(topic, slot.number))
                if position > entry.position:
                    taken.append(_Taken(slot, topic, records, entry.position, position, entry.breaker))
                    entry.position = position
        return taken

    async def _commit(self) -> None:
        assignment = self._assignment
        if assignment is None:
            return
        taken = [] if self._closing else self._take_round()
        now = self._clock()
        due = self._next_due is not None and self._next_due <= now and not self._closing
        if not taken and not due:
            return
        slots = list(self._slots.values())  # more may come while the round is in the thread
        verdict, published = await self._transact(partial(self._round, slots, taken, assignment, now))
        if verdict is Verdict.COMMITTED:
            self.metrics.outputs.inc(published)
            for part in taken:
                self._keep(part)
                self.metrics.records.inc(len(part.records))
                if part.records:
                    self.metrics.latency_s.observe(max(0.0, self._clock() - part.records[0].timestamp / 1000))
            self.app.monitor.on_tp_commit({TP(part.topic, part.slot.number): part.position for part in taken})
        elif verdict is Verdict.FENCED:
            self._lose_assignment()
            return
        else:  # undone: the same records again, before anything newer
            for part in taken:
                entry = part.slot.inputs[part.topic]
                entry.queue.extendleft(reversed(part.records + part.left))
                entry.position = part.before
            self._pace.work()
        self._note_due()
        queued = sum(len(entry.queue) for slot in self._slots.values() for entry in slot.inputs.values())
        if queued:  # a whole round is no reason to wait for more
            cut_short = any(part.left and not part.breaker.open for part in taken)
            self._pace.work(at_once=cut_short or queued >= MAX_ROUND_RECORDS)

    def _keep(self, part: _Taken) -> None:
        """The transaction has committed: where the input stands now, and whether it stands still."""
        entry = part.slot.inputs[part.topic]
        entry.queue.extendleft(reversed(part.left))
        entry.position = part.position
        if part.breaker.open and not entry.breaker.open:
            self._say_open(part.topic, part.slot.number)
        entry.breaker = part.breaker

    def _round(
        self, slots: list[_Slot], taken: list[_Taken], assignment: Assignment, now: float
    ) -> tuple[Verdict, int]:
        """In the thread: handle the records, do what is due, publish, apply."""
        outputs: list[Output] = []
        by_slot: dict[int, list[_Taken]] = {}
        for part in taken:
            by_slot.setdefault(part.slot.number, []).append(part)
        worked = [slot for slot in slots if slot.number in by_slot or _is_due(slot, now)]
        share = _Share(self._monotonic, self._work_s, len(worked))
        for slot in worked:
            with _named(slot.number):
                outputs += self._work(slot, by_slot.get(slot.number, []), now, share.next())
        positions = _positions(worked, taken)
        changes = {slot.number: staged for slot in worked if slot.view and (staged := slot.view.changes())}
        wrap = self._changelog.rows.wrap
        records = {
            number: [
                (self._changelog.topic, changelog_key(table, key), None if value is None else wrap(value))
                for (table, key), value in staged.items()
            ]
            for number, staged in changes.items()
        }
        verdict, high = self._producer.run(Work(outputs, records, positions, assignment.identity))
        for slot in worked:
            if verdict is Verdict.COMMITTED:
                _apply(slot, changes.get(slot.number, {}), high.get(slot.number, 0), now)
            elif slot.logic is not None:
                slot.logic.aborted()
                self._reopen(slot, now)
        if verdict is Verdict.COMMITTED:
            for tp, offset_map in positions.items():
                self._journal.settled(tp, offset_map.base)
        return verdict, len(outputs)

    def _work(self, slot: _Slot, parts: list[_Taken], now: float, until_s: float) -> list[Output]:
        if slot.view is None or slot.logic is None:
            return []
        dead: dict[tuple[str, int], Output] = {}
        while (outputs := self._handle_all(slot.logic, slot.view, parts, dead, now=now, until_s=until_s)) is None:
            # A record failed half-way: the partition's round is done again without it, from what is committed.
            self._reopen(slot, now)
        ranges = {part.topic: (part.records[0].offset, part.position) for part in parts if part.records}
        while _is_due(slot, now):
            made = self._checked(slot.logic.tick(now))
            outputs += made
            if not made or self._monotonic() >= until_s:
                break
        return outputs + self._checked(slot.logic.before_commit(ranges, now))

    def _checked(self, outputs: list[Output]) -> list[Output]:
        """No record is to blame for these, so one that is too large is our fault; an abort would only repeat itself."""
        try:
            self._check_sizes(outputs)
        except InputError as exc:
            raise BugError(f"{exc}, made by a timer or at a commit") from exc
        return outputs

    def _handle_all(
        self,
        logic: OrderedPartition,
        view: StagedView,
        parts: list[_Taken],
        dead: dict[tuple[str, int], Output],
        *,
        now: float,
        until_s: float,
    ) -> list[Output] | None:
        """Handle the round's records of one partition.

        Args:
            logic: of the partition.
            view: its state, nothing staged.
            parts: the records.
            dead: (topic, offset) → dead letter, of the records that are not handled; those that fail are added.
            now: seconds since the epoch.
            until_s: when the partition's share of the round ends; each input has at least one record handled.

        Returns:
            The outputs, or None when a record that failed may have left traces in the view or in memory.
        """
        outputs: list[Output] = []
        share = _Share(self._monotonic, until_s - self._monotonic(), len(parts) + 1)  # one is for what is due
        for part in parts:
            part.breaker = part.slot.inputs[part.topic].breaker.copy()
            part_until_s = share.next()
            for index, record in enumerate(part.records):
                if part.breaker.open or (index and self._monotonic() >= part_until_s):
                    part.leave(index)
                    break
                place = (part.topic, record.offset)
                if place in dead:
                    outputs.append(dead[place])
                    part.breaker.note(True)
                    continue
                writes = view.writes
                try:
                    made = self._handle(logic, TP(part.topic, part.slot.number), record, now)
                    self._check_sizes(made)
                except Exception as exc:  # noqa: BLE001  # a record nobody foresaw is a dead letter, not a dead worker
                    foreseen = isinstance(exc, InputError)
                    if not foreseen:
                        log.exception("handling %s/%d/%d failed", record.topic, record.partition, record.offset)
                    dead[place] = self._dead_letter(record, exc)
                    if not foreseen or view.writes > writes:
                        return None
                    outputs.append(dead[place])
                else:
                    outputs += made
                part.breaker.note(place in dead)
        return outputs

    def _handle(self, logic: OrderedPartition, tp: TP, record: SourceRecord, now: float) -> list[Output]:
        """Handle one record, known by the journal: one that ends the process is found out at the next start."""
        crashes = self._journal.crashes(tp, record.offset)
        if crashes >= MAX_CRASHES:
            raise InputError("crash_loop", f"in hand in {crashes} crashes of this worker in a row")
        slot = self._journal.begin(tp, record.offset)
        self._in_hand = tp, record.offset, time.monotonic()
        try:
            return logic.handle(record, now)
        finally:
            self._in_hand = None
            self._journal.end(tp, record.offset, slot)

    def _reopen(self, slot: _Slot, now: float) -> None:
        """Drop what is staged; what memory was derived from the view is rebuilt from it."""
        if slot.view is None or slot.logic is None:
            return
        slot.logic.close()
        slot.view.clear()
        slot.logic = self._stage.open(slot.number, slot.view, now)


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Let an error that nobody foresaw say in which partition it happened: the worker ends by it."""
    try:
        yield
    except (BrokerError, ConfigurationError):
        raise
    except Exception as exc:
        raise BugError(f"partition {number}: {type(exc).__name__}: {exc}") from exc


def _is_due(slot: _Slot, now: float) -> bool:
    """Whether the time has made something due."""
    moment = None if slot.logic is None else slot.logic.due()
    return moment is not None and moment <= now


def _positions(worked: list[_Slot], taken: list[_Taken]) -> dict[TP, OffsetMap]:
    """What a round commits. Timer work too commits a position of its partition: a zombie's tick must be fenced."""
    positions = {TP(part.topic, part.slot.number): OffsetMap(part.position, part.position) for part in taken}
    with_records = {part.slot.number for part in taken}
    for slot in worked:
        if slot.number not in with_records:
            topic, entry = next(iter(slot.inputs.items()))
            positions[TP(topic, slot.number)] = OffsetMap(entry.position, entry.position)
    return positions


def _apply(slot: _Slot, changes: dict[tuple[str, bytes], bytes | None], position: int, now: float) -> None:
    """Write committed changes to the store, which stands for the changelog up to `position` then."""
    if slot.store is None or slot.view is None or slot.logic is None:
        return
    if changes:
        slot.store.apply(changes, position, now)
    slot.view.clear()
    slot.logic.committed()


def _close_slot(slot: _Slot) -> None:
    if slot.logic is not None:
        slot.logic.close()
    slot.logic = slot.view = None
    if slot.store is not None:
        slot.store.close()
    slot.store = None


def _close_slots(slots: list[_Slot]) -> None:
    for slot in slots:
        _close_slot(slot)
