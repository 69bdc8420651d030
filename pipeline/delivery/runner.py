"""What both runners share: intake with its proof of no gap, the first commit's condition, the ways to end."""

from __future__ import annotations

import abc
import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from faust.types import TP
from mode import Service

from pipeline.config import Delivery
from pipeline.delivery.api import Output, SourceRecord
from pipeline.delivery.assignment import Assignment, Batch, Start
from pipeline.delivery.dead_letters import Breaker, cut, dead_letter, reason_of
from pipeline.delivery.exits import ExitCode, exit_after
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.delivery.pace import Pace
from pipeline.delivery.pending import PendingPartition
from pipeline.delivery.record_size import record_bytes
from pipeline.delivery.stable_offsets import StableOffsets
from pipeline.delivery.start_watch import StartWatch
from pipeline.delivery.transactions import (
    ReplacedError,
    TransactionalProducer,
    Verdict,
)
from pipeline.delivery.watchdog import EndOffsets, IntakeWatch, Watchdog
from pipeline.errors import BrokerError, BugError, ConfigurationError, InputError
from pipeline.state.store import PartitionStore

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_ABORTS = 5
CRASH_GRACE_S = 2.0
INTAKE_LOOK_S = 10.0
LIFE_S = 1.0


class GapError(BugError):
    """Records are missing between two fetched batches of a partition: the worker ends before it commits past them."""


class Runner(Service, abc.ABC):
    """One per worker: takes batches from the agent, gives them to the stage, commits.

    Args:
        app: the Faust app; its consumer is the one of `pipeline.delivery.transport`.
        stage_name: for dead letters and metrics.
        settings: delivery section of the configuration.
        options: librdkafka options of the cluster.
        input_topics: in the order in which an ordered stage takes them.
        partitions: of every topic.
        max_bytes: topic → largest record it takes; a larger output makes its source a dead letter.
        producer: not yet opened.
        own_transactions: looks for what the producer has left open.
        metrics: of this worker.
        interval_s: longest time between commits under load.
    """

    def __init__(
        self,
        app: Any,
        *,
        stage_name: str,
        settings: Delivery,
        options: Mapping[str, str],
        input_topics: tuple[str, ...],
        partitions: int,
        max_bytes: Mapping[str, int],
        producer: TransactionalProducer,
        own_transactions: OwnTransactions,
        metrics: DeliveryMetrics,
        interval_s: float,
    ) -> None:
        super().__init__()
        self.app = app
        self.metrics = metrics
        self.settings = settings
        self.group: str = app.conf.id
        self.exit_code: ExitCode | None = None
        """How the process shall end; None while nothing is wrong."""
        self._stage_name = stage_name
        self._input_topics = input_topics
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._producer = producer
        self._own_transactions = own_transactions
        self._pace = Pace(interval_s, time.monotonic)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transactions")
        self._commit_lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None
        self._stable_offsets = StableOffsets(options, self.group)
        self._assignment: Assignment | None = None
        self._closing = False
        self._aborts_in_a_row = 0
        self._commit_began_s: float | None = None
        self._loop_seen_s: float | None = None
        self._beginning = False
        self._start_watch = StartWatch()
        self._joining = ExitStack()
        self._joining.enter_context(self._start_watch.step("the group is joined"))
        self._ends = EndOffsets(options, self.group)
        self._intake = IntakeWatch()
        self._watchdog = Watchdog(self.standstill, settings.stall_s)
        self._ending = False
        app.on_partitions_revoked.connect(self._on_revoked, weak=False)

    # ---- what a kind of runner adds

    @abc.abstractmethod
    async def _begin(self, assignment: Assignment, moved: Callable[[], None]) -> None:
        """Set up the partitions of a new assignment: restore state, open the stage's partitions.

        Args:
            assignment: the one in force.
            moved: to be called at each progress, from any thread.
        """

    @abc.abstractmethod
    def _take(self, tp: TP, batch: Batch) -> None:
        """Queue a batch; never waits."""

    @abc.abstractmethod
    def _expected(self) -> dict[TP, int]:
        """Return the position after the last batch that arrived, of the partitions that had one."""

    @abc.abstractmethod
    def _left(self, tp: TP, end: int) -> int:
        """Return how many offsets of a partition, of the assignment, are left up to `end`; finished ones are not."""

    @abc.abstractmethod
    async def _commit(self) -> None:
        """Commit what is finished, if anything; called under the lock."""

    @abc.abstractmethod
    async def _drain(self) -> None:
        """Partitions are called back: let work finish for the grace, cancel the rest."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """Drop everything that belongs to the assignment."""

    @abc.abstractmethod
    def _next_wake_s(self) -> float | None:
        """How long the commit loop may sleep without work; None for ever."""

    @abc.abstractmethod
    def _look_after(self) -> None:
        """Look after what takes too long; called about once a second."""

    @abc.abstractmethod
    def pending(self) -> list[PendingPartition]:
        """Return what is at hand of each partition, in the order of topic and number."""

    @abc.abstractmethod
    def release(self, tp: TP, offset: int, *, give_up: bool) -> bool:
        """Begin a record in hand anew, or make it a dead letter (`give_up`); False where it is not in hand."""

    @abc.abstractmethod
    def resume(self, tp: TP) -> bool:
        """Let a partition go on that its breaker has stopped; False where none has."""

    # ---- life

    async def on_start(self) -> None:
        """Open, also where the group has no partitions for this worker."""
        self._joining.close()
        self._watchdog.start()
        await self.opened()

    async def opened(self) -> None:
        """Take over the transactional id, then wait until nothing hangs that a commit could complete: before any."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._guarded(self._open()))
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        limit_s = self.settings.stable_offsets_s
        with self._start_watch.step("the producer is opened"):
            await self._in_thread(self._producer.open)
        with self._start_watch.step("the group's offsets are read") as moved:
            await self._in_thread(
                self._stable_offsets.wait_for_group, self._input_topics, self._partitions, limit_s, moved
            )
        with self._start_watch.step("the producer's earlier transactions are looked for"):
            await self._own_transactions.wait_for_end(limit_s)
        self._ready.set()

    async def starts(self, assignment: Assignment) -> Mapping[TP, Start] | None:
        """Return where each partition of an assignment begins, None when that is no longer of interest.

        Opens first: a transaction that our predecessor left open keeps its offsets unstable until we take over its id,
        and Faust starts its services, this one too, only after it has the offsets.
        """
        self._joining.close()
        await self.opened()
        with self._start_watch.step("the start offsets are read") as moved:
            read = partial(
                self._stable_offsets.starts,
                assignment.partitions,
                lambda: self.app.consumer.current_assignment is assignment,
                self.settings.stable_offsets_s,
                moved,
            )
            return await self._guarded(asyncio.get_running_loop().run_in_executor(None, read))

    async def on_stop(self) -> None:
        """Drain and commit: Faust sends no revoke at shutdown."""
        self._watchdog.stop()
        await self._hand_back()
        self._thread.shutdown()

    def assigned(self, assignment: Assignment) -> None:
        """Called by the consumer once the stable offsets of an assignment are known and sought."""
        self._assignment = assignment
        self._closing = False
        self.metrics.assigned.set(len({tp.partition for tp in assignment.partitions}))
        for tp, start in assignment.starts.items():
            if not start.offset_map.readable:
                self.metrics.unreadable_maps.inc()
                log.warning("offset map of %s/%d can't be read: what it covered is done again", tp.topic, tp.partition)
        self.add_future(self._guarded(self._begin_when_ready(assignment)))

    def expected(self, assignment: Assignment) -> Mapping[TP, int]:
        """Where the next batch of each partition must start."""
        begun = self._expected() if self._assignment is assignment else {}
        return {tp: begun.get(tp, start.offset_map.base) for tp, start in assignment.starts.items()}

    async def _begin_when_ready(self, assignment: Assignment) -> None:
        await self._ready.wait()
        if self._current(assignment):
            self._beginning = True
            try:
                with self._start_watch.step("the state is restored") as moved:
                    await self._begin(assignment, moved)
            finally:
                self._beginning = False

    async def submit(self, event: Any) -> None:
        """Take one event of the agent. Never raises: Faust would restart the agent and skip the record."""
        try:
            batch: Batch = event.value
            tp = TP(event.message.topic, event.message.partition)
            if not self._closing and batch.assignment is not None and self._current(batch.assignment):
                self._take(tp, batch)
        except Exception as exc:  # noqa: BLE001  # whatever it is, committing past this batch would lose it
            await self._end(exc)

    @Service.task  # type: ignore[untyped-decorator]  # mode is not followed
    async def _commit_loop(self) -> None:
        await self._ready.wait()
        while not self.should_stop:
            await self._pace.wait(self._next_wake_s())
            await self.commit()

    async def commit(self) -> None:
        """Commit what is finished. Ends the worker on an error that nobody foresaw."""
        await self._guarded(self._commit_locked())

    async def _commit_locked(self) -> None:
        async with self._commit_lock:
            if self._assignment is not None and self._ready.is_set():
                self._commit_began_s = time.monotonic()
                await self._commit()
                self._commit_began_s = None

    @Service.task  # type: ignore[untyped-decorator]  # mode is not followed
    async def _show_life(self) -> None:
        while not self.should_stop:
            self._loop_seen_s = time.monotonic()
            self.metrics.lags(self._lags())
            self._look_after()
            await self.sleep(min(LIFE_S, self.settings.stall_s / 4))

    def _lags(self) -> dict[TP, int]:
        """What is left of each partition that has begun, as far as its last fetch could see."""
        ends = {tp: self.app.consumer.last_stable_offset(tp) for tp in self._expected()}
        return {tp: self._left(tp, end) for tp, end in ends.items() if end is not None}

    @Service.task  # type: ignore[untyped-decorator]  # mode is not followed
    async def _watch_intake(self) -> None:
        while not self.should_stop:
            await self.sleep(min(INTAKE_LOOK_S, self.settings.stall_s / 4))
            assignment = self._assignment
            if assignment is None or self._closing:
                self._intake.clear()
                continue
            still = self.app.consumer.held | {TP(row.topic, row.partition) for row in self.pending() if row.paused}
            positions = {tp: at for tp, at in self.expected(assignment).items() if tp not in still}
            ask = self._intake.unmoved(positions)
            try:
                ends = await asyncio.get_running_loop().run_in_executor(None, self._ends.read, ask)
            except KafkaException:  # the cluster does not say, so nobody is to blame
                self._intake.clear()
                continue
            if self._current(assignment):
                self._intake.look(positions, ends, time.monotonic())

    def stalled_s(self) -> float:
        """How long commits have stood still, seconds: a commit in progress, work without one, or a stuck loop."""
        now_s = time.monotonic()
        loop_s = 0.0 if self._loop_seen_s is None else now_s - self._loop_seen_s
        if self._beginning:  # commits wait for a restore, which has limits of its own
            return loop_s
        began_s = self._commit_began_s
        in_commit_s = 0.0 if began_s is None else now_s - began_s
        return max(in_commit_s, self._pace.waiting_s, loop_s)

    def complaint(self) -> str:
        """What has stood still for longer than `stall_s`, in words; empty while all is well. From any thread."""
        return self.standstill() or self._start_watch.complaint(self.settings.stall_s)

    def standstill(self) -> str:
        """The same of a worker that has started: what only a restart ends."""
        limit_s = self.settings.stall_s
        stalled_s = self.stalled_s()
        if stalled_s > limit_s:
            return f"no commit for {stalled_s:.0f} s with work at hand (limit {limit_s:.0f} s)"
        longest = self._intake.longest(time.monotonic())
        if longest is not None and longest[2] > limit_s:
            tp, position, waited_s = longest
            return f"nothing of {tp.topic}/{tp.partition} has arrived for {waited_s:.0f} s, from offset {position} on"
        return ""

    async def _on_revoked(self, app: Any, revoked: Any, **kwargs: Any) -> None:
        """Run before JoinGroup, when the old generation may still commit."""
        del app, revoked, kwargs
        await self._guarded(self._hand_back())

    async def _hand_back(self) -> None:
        self._closing = True
        await self._drain()
        await self._commit_locked()
        async with self._commit_lock:
            self.app.consumer.current_assignment = None  # also one whose offsets are still being read
            self._lose_assignment()

    # ---- for the kinds

    def _current(self, assignment: Assignment) -> bool:
        """Whether work of that assignment still counts; asked after every await."""
        return self._assignment is assignment and self.app.consumer.current_assignment is assignment

    def _wanted(self, assignment: Assignment, store: PartitionStore, moved: Callable[[], None]) -> Callable[[], bool]:
        """Return what a restore asks between its chunks; it tells by it, too, that the store has moved."""
        seen = store.applied

        def wanted() -> bool:
            nonlocal seen
            if store.applied != seen:
                seen = store.applied
                moved()
            return self._current(assignment)

        return wanted

    def _lose_assignment(self) -> None:
        """Stop counting on the partitions; a newer assignment that has arrived meanwhile is left alone."""
        if self.app.consumer.current_assignment is self._assignment:
            self.app.consumer.current_assignment = None
        self._assignment = None
        self.metrics.assigned.set(0)
        self.metrics.breaker_open.set(0)
        self._forget()

    async def _in_thread(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    async def _transact(self, call: Callable[[], tuple[Verdict, T]]) -> tuple[Verdict, T]:
        """Run a transaction in the thread and keep the books that both runners keep."""
        began_s = time.monotonic()
        verdict, answer = await self._in_thread(call)
        self.metrics.transaction_s.observe(time.monotonic() - began_s)
        self._pace.committed()
        if verdict is Verdict.COMMITTED:
            self._aborts_in_a_row = 0
            self.metrics.commits.inc()
            self.metrics.last_commit.set_to_current_time()
        elif verdict is Verdict.FENCED:
            log.warning("the partitions have moved: work since the last commit is left to their new owner")
            self.metrics.fenced.inc()
        else:
            self.metrics.aborts.inc()
            self._aborts_in_a_row += 1
            log.error("a transaction was aborted, %d in a row: %s", self._aborts_in_a_row, self._producer.trouble)
            if self._aborts_in_a_row >= MAX_ABORTS:
                raise BrokerError(f"{MAX_ABORTS} transactions were aborted in a row: {self._producer.trouble}")
        return verdict, answer

    def _aborted(self) -> str:
        """Why nothing of any partition gets through, one transaction serving all; empty where it does."""
        trouble = self._producer.trouble
        return f"its worker's transactions are aborted: {trouble}" if trouble else ""

    def _say_open(self, topic: str, partition: int) -> None:
        self.metrics.breaker_open.inc()
        log.critical("%s/%d stands still: too much of it goes to the dead letters", topic, partition)

    def _reset(self, breaker: Breaker) -> bool:
        """Let a partition go on by order; False where its breaker has not stopped it."""
        if not breaker.open:
            return False
        breaker.reset()
        self.metrics.breaker_open.dec()
        return True

    def _dead_letter(self, record: SourceRecord, error: BaseException, attempts: int = 1) -> Output:
        reason = reason_of(error)
        self.metrics.dead_letter(reason)
        log.warning("dead letter %s/%d/%d: %s: %s", record.topic, record.partition, record.offset, reason, error)
        letter = dead_letter(record, error, group=self.group, stage=self._stage_name, attempts=attempts)
        excess_bytes = record_bytes(letter) - self._max_bytes[letter.topic]
        return cut(letter, excess_bytes) if excess_bytes > 0 else letter

    def _check_sizes(self, outputs: list[Output]) -> None:
        """Refuse outputs that their topic would refuse: an abort would only repeat itself.

        Raises:
            InputError: `too_large`.
        """
        for output in outputs:
            limit = self._max_bytes.get(output.topic)
            if limit is None:
                raise BugError(f"output to {output.topic!r}, which is not in the table of topics")
            if record_bytes(output) > limit:
                raise InputError("too_large", f"a record of {record_bytes(output)} bytes for {output.topic}")

    def _check_chain(self, tp: TP, expected: int, batch: Batch) -> None:
        """Prove that nothing was dropped between the fetcher and here.

        Raises:
            GapError: there is a hole.
        """
        if batch.start > expected:
            raise GapError(f"{tp.topic}/{tp.partition}: expected offset {expected}, the batch starts at {batch.start}")

    async def _guarded(self, work: Awaitable[T]) -> T | None:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except Exception as exc:  # noqa: BLE001  # nothing is repaired in place
            await self._end(exc)
        return None

    async def _end(self, exc: BaseException) -> None:
        """Drop everything and end the worker: a restart reads the truth."""
        if self._ending:
            return
        self._ending = True
        code = ExitCode.BUG
        if isinstance(exc, ReplacedError):
            code = ExitCode.REPLACED
        elif isinstance(exc, ConfigurationError):
            code = ExitCode.CONFIGURATION
        elif isinstance(exc, BrokerError):
            code = ExitCode.BROKER
        self.exit_code = code
        log.critical("this worker ends (exit status %d): %s", code, exc, exc_info=code is ExitCode.BUG)
        exit_after(CRASH_GRACE_S, code)
        self._closing = True
        self.app.consumer.current_assignment = None
        self._assignment = None
        if code is ExitCode.BUG:
            await self.crash(exc)
        else:  # the same way out, without the traceback under which the message above would be buried
            os.kill(os.getpid(), signal.SIGTERM)
