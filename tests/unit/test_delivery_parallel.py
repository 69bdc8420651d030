"""The parallel runner without a broker: intake, back-pressure, its ends."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from faust.types import TP
from prometheus_client import CollectorRegistry

from pipeline.config import Delivery
from pipeline.delivery import runner as module
from pipeline.delivery.api import Output, Result
from pipeline.delivery.assignment import Assignment, Batch, Start
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.identity import Identity
from pipeline.delivery.journal import InFlightJournal
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.parallel import ParallelRunner
from pipeline.delivery.transactions import ReplacedError, Verdict
from pipeline.errors import BrokerError, ConfigurationError, InputError

TOPIC, OUT = "in", "out"
PLACES = TP(TOPIC, 0), TP(TOPIC, 1)
QUEUE_RECORDS = 10
SLOTS = 8
LIMIT_S = 5.0


class Record(NamedTuple):
    """What was read, with every field but the place defaulted."""

    partition: int
    offset: int
    topic: str = TOPIC
    timestamp: int = 0
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple = ()


class Stage:
    """Handles a record as soon as its gate is open; there is one for all."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.begun = []
        self.broken = self.stubborn = False

    async def handle(self, record, *, backlog):
        self.begun.append((record.partition, record.offset))
        if self.broken:
            raise InputError("policy", "broken")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            await asyncio.wait_for(self.gate.wait(), LIMIT_S)
        return Result([Output(OUT, b"%d" % record.offset, record.key)])

    async def dead_letter_outputs(self, record, reason):
        return []

    def opened(self, partition, view):
        pass

    def closed(self, partition):
        pass


class Producer:
    """Commits everything, or what it is told."""

    def __init__(self):
        self.works = []
        self.verdicts = []
        self.trouble = ""

    def run(self, work):
        self.works.append(work)
        return self.verdicts.pop(0) if self.verdicts else Verdict.COMMITTED, {}


class World:
    """A runner with everything around it faked; `submit` and `assign` do what the transport would."""

    def __init__(self, tmp_path, **settings):
        self.directory = tmp_path
        consumer = SimpleNamespace(current_assignment=None, held=set())
        self.app = SimpleNamespace(
            conf=SimpleNamespace(id="group"),
            consumer=consumer,
            monitor=SimpleNamespace(on_tp_commit=lambda offsets: None),
            on_partitions_revoked=SimpleNamespace(connect=lambda *args, **kwargs: None),
        )
        self.stage, self.producer = Stage(), Producer()
        self.runner = ParallelRunner(
            self.app,
            self.stage,
            lanes={TOPIC: SLOTS},
            journal=tmp_path / "in-flight",
            state=None,
            stage_name="toy",
            settings=Delivery(queue_records=QUEUE_RECORDS, revoke_grace_s=0.0, **settings),
            options={"bootstrap.servers": "127.0.0.1:1"},
            input_topics=(TOPIC,),
            partitions=2,
            max_bytes={OUT: 1_000, f"{TOPIC}-dlq": 1_000},
            producer=self.producer,
            own_transactions=None,
            metrics=DeliveryMetrics(CollectorRegistry(), "toy"),
            interval_s=0.1,
        )
        self.runner._ready.set()
        self.crashed_with = []
        self.runner.crash = self._crash

    async def _crash(self, error):
        self.crashed_with.append(error)

    async def assign(self, **maps):
        """Give both partitions to the worker; `p0` and `p1` are their maps where they don't begin at 0."""
        starts = {tp: Start(maps.get(f"p{tp.partition}", OffsetMap(0, 0)), 0) for tp in PLACES}
        assignment = Assignment(Identity("group", 1, "member"), frozenset(PLACES), starts)
        self.app.consumer.current_assignment = assignment
        self.runner.assigned(assignment)
        await self.settle()
        return assignment

    async def submit(self, partition, offsets, start, end, assignment=None):
        """Hand a batch over as the agent does."""
        records = [Record(partition, offset) for offset in offsets]
        batch = Batch(records, start, end, assignment or self.app.consumer.current_assignment)
        message = SimpleNamespace(topic=TOPIC, partition=partition)
        await self.runner.submit(SimpleNamespace(value=batch, message=message))
        await self.settle()

    async def settle(self):
        """Let everything run that can."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def commit(self):
        """Commit what has finished."""
        await self.settle()
        await asyncio.wait_for(self.runner.commit(), LIMIT_S)

    def published(self):
        """Values of all committed works."""
        return [output.value for work in self.producer.works for output in work.outputs]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A world whose process is not ended."""
    keep_alive(monkeypatch)
    return World(tmp_path)


def keep_alive(monkeypatch):
    """The ways to end the process do nothing."""
    monkeypatch.setattr(module, "exit_after", lambda seconds, code: None)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)


async def test_a_full_queue_holds_its_partition_out_of_the_fetch(world):
    """And lets it in again when there is room: nothing is dropped, nobody waits."""
    await world.assign()
    await world.submit(0, range(SLOTS // 2 + QUEUE_RECORDS), 0, SLOTS // 2 + QUEUE_RECORDS)
    assert {PLACES[0]} == world.app.consumer.held
    await world.submit(1, range(2), 0, 2)
    assert {PLACES[0]} == world.app.consumer.held
    world.stage.gate.set()
    for _ in range(QUEUE_RECORDS):
        await world.settle()
    assert set() == world.app.consumer.held


async def test_start_offsets_are_waited_for_as_long_as_is_configured(tmp_path, monkeypatch):
    """An operator who raises the limit because transactions live long means every wait for them."""
    keep_alive(monkeypatch)
    world = World(tmp_path, stable_offsets_s=7.0)
    limits_s = []
    world.runner._opening = asyncio.ensure_future(asyncio.sleep(0))
    world.runner._stable_offsets = SimpleNamespace(
        starts=lambda places, wanted, limit_s, moved: limits_s.append(limit_s)
    )
    assert None is await world.runner.starts(Assignment(Identity("group", 1, "member"), frozenset(PLACES), {}))
    assert [7.0] == limits_s


async def test_what_aborts_the_transactions_is_told_of_each_partition(world):
    """One transaction serves all, so one record that is refused stops all of them: `headrace pending` says which."""
    await world.assign()
    world.producer.trouble = "in-dlq/1 refuses the dead letter of in/1/7"
    assert {"its worker's transactions are aborted: in-dlq/1 refuses the dead letter of in/1/7"} == {
        row.paused for row in world.runner.pending()
    }


async def test_slots_are_dealt_to_partitions(world):
    """One that is stuck keeps its share and no more."""
    await world.assign()
    await world.submit(0, range(100), 0, 100)
    await world.submit(1, range(2), 0, 2)
    assert [(0, offset) for offset in range(SLOTS // 2)] + [(1, 0), (1, 1)] == world.stage.begun


async def test_what_was_finished_before_the_assignment_is_not_begun(world):
    """The map of the last commit says which."""
    await world.assign(p0=OffsetMap(5, 9, (5, 7)))
    await world.submit(0, range(5, 10), 5, 10)
    assert [(0, 5), (0, 7), (0, 9)] == world.stage.begun


async def test_a_batch_that_overlaps_is_filtered_record_by_record(world):
    """A seek may bring back what is here already; dropped whole, its new part would be lost."""
    await world.assign()
    await world.submit(0, range(3), 0, 3)
    await world.submit(0, range(1, 5), 1, 5)
    assert sorted((0, offset) for offset in range(4)) == sorted(world.stage.begun)
    world.stage.gate.set()
    await world.commit()
    await world.commit()
    assert [b"%d" % offset for offset in range(5)] == sorted(world.published())


async def test_a_batch_of_another_assignment_is_dropped(world):
    """Its partitions were given away and came back since; it will be read again from where they start now."""
    before = await world.assign()
    await world.assign()
    await world.submit(0, range(3), 0, 3, assignment=before)
    assert [] == world.stage.begun


async def test_a_hole_between_batches_ends_the_worker(world):
    """Before anything is committed past it; `submit` itself never raises."""
    await world.assign()
    await world.submit(0, range(3), 0, 3)
    await world.submit(0, range(5, 8), 5, 8)
    assert ["in/0: expected offset 3, the batch starts at 5"] == [str(error) for error in world.crashed_with]
    assert ExitCode.BUG == world.runner.exit_code
    world.stage.gate.set()
    await world.commit()
    assert [] == world.producer.works


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplacedError("x"), ExitCode.REPLACED),
        (BrokerError("x"), ExitCode.BROKER),
        (ConfigurationError("x"), ExitCode.CONFIGURATION),
        (ZeroDivisionError("x"), ExitCode.BUG),
    ],
)
async def test_the_exit_status_says_who_must_act(world, error, code):
    """A supervisor starts the worker again, or does not; people see where to look. Nothing is kept in memory."""

    def run(work):
        raise error

    world.producer.run = run
    await world.assign()
    world.stage.gate.set()
    await world.submit(0, [0], 0, 1)
    await world.commit()
    assert code == world.runner.exit_code
    assert world.app.consumer.current_assignment is None
    await world.commit()  # nothing is done any more


async def test_a_fault_of_the_runner_after_the_handling_ends_the_worker(world):
    """Unseen it would leave the record in flight, and the partition's commits, where they are for ever."""

    def broken(*args):
        raise KeyError("slot")

    world.runner._finish = broken
    await world.assign()
    world.stage.gate.set()
    await world.submit(0, [0], 0, 1)
    assert ["'slot'"] == [str(error) for error in world.crashed_with]


async def test_a_fault_of_the_runner_between_two_records_ends_the_worker(world):
    """The same for what begins the next record."""
    await world.assign()
    await world.submit(0, range(SLOTS), 0, SLOTS)

    def broken(*args):
        raise KeyError("slot")

    world.runner._journal.begin = broken
    world.stage.gate.set()
    await world.settle()
    assert ["'slot'"] == [str(error) for error in world.crashed_with]


async def test_records_that_finish_at_once_need_no_more_slots_than_there_are(world):
    """Each frees its slot in the journal before the next begins."""
    await world.assign()
    world.stage.gate.set()
    for start in range(0, 1_000, 100):
        await world.submit(0, range(start, start + 100), start, start + 100)
        for _ in range(100):
            await world.settle()
        await world.commit()
    assert [] == world.crashed_with
    assert 1_000 == len(world.published())


async def test_what_an_aborted_transaction_took_goes_back_before_what_is_newer(world):
    """The newest change of a row must win, and outputs keep their order, when both go into the next transaction."""
    await world.assign()
    world.stage.gate.set()
    runner = world.runner
    runner._changes = {0: {("t", b"row"): b"old", ("t", b"other"): b"old"}}

    def finish_meanwhile(work):
        world.producer.works.append(work)
        if len(world.producer.works) > 1:
            return Verdict.COMMITTED, {}
        runner._changes = {0: {("t", b"row"): b"new"}}
        runner._outputs.append(Output(OUT, b"newer"))
        return Verdict.ABORTED, {}

    world.producer.run = finish_meanwhile
    await world.submit(0, [0], 0, 1)
    await world.commit()
    assert {0: {("t", b"row"): b"new", ("t", b"other"): b"old"}} == runner._changes
    assert [b"0", b"newer"] == [output.value for output in runner._outputs]
    runner._changes = {}
    await world.commit()
    assert [b"0", b"newer"] == [output.value for output in world.producer.works[-1].outputs]


async def test_an_assignment_whose_offsets_are_still_being_read_is_forgotten_with_the_rest(world):
    """It was handed back before it began: what comes of the reading must find that nobody wants it any more."""
    early = Assignment(Identity("group", 2, "member"), frozenset(PLACES), {})
    world.app.consumer.current_assignment = early
    await world.runner._on_revoked(world.app, set())
    assert world.app.consumer.current_assignment is None
    assert not world.runner._current(early)


async def test_a_fenced_worker_forgets_and_waits(world):
    """Its partitions are somebody else's: no result of before counts, and no batch is taken."""
    assignment = await world.assign()
    world.producer.verdicts = [Verdict.FENCED]
    await world.submit(0, [0], 0, 1)
    await world.submit(1, [0], 0, 1)
    world.runner._finish(world.runner._partitions_by_tp[PLACES[0]], Record(0, 0), Result([Output(OUT, b"x")]), False)
    await world.commit()
    assert world.app.consumer.current_assignment is None
    world.stage.gate.set()
    await world.submit(0, [1], 1, 2, assignment=assignment)
    await world.commit()
    assert 1 == len(world.producer.works)
    assert [] == world.crashed_with


async def test_uncommitted_outputs_are_bounded(tmp_path, monkeypatch):
    """While the broker is away results pile up in memory; beyond four commits' worth nothing new is begun."""
    keep_alive(monkeypatch)
    world = World(tmp_path, commit_bytes=1_000)
    await world.assign()
    world.stage.gate.set()
    await world.submit(0, range(100), 0, 100)
    for _ in range(20):
        await world.settle()
    begun = len(world.stage.begun)
    assert begun < 20
    await world.commit()
    for _ in range(20):
        await world.settle()
    assert len(world.stage.begun) > begun


async def test_nothing_is_committed_before_the_group_was_looked_at(world):
    """Neither by the loop nor at a revoke."""
    world.runner._ready.clear()
    await world.assign()
    world.stage.gate.set()
    await world.submit(0, [0], 0, 1)
    await world.commit()
    await world.runner._on_revoked(world.app, set())
    assert [] == world.producer.works


async def test_a_handed_back_partition_is_drained_committed_and_forgotten(world):
    """In this order; what can't be stopped counts for nothing when it ends."""
    assignment = await world.assign()
    await world.submit(0, [0], 0, 1)
    world.runner._finish(world.runner._partitions_by_tp[PLACES[0]], Record(0, 0), Result([Output(OUT, b"done")]), False)
    await world.submit(0, [1], 1, 2)
    await world.runner._on_revoked(world.app, set())
    (work,) = world.producer.works
    assert ([b"done"], OffsetMap(1, 2, (1,)), assignment.identity) == (
        [output.value for output in work.outputs], work.positions[PLACES[0]], work.identity,
    )  # fmt: skip
    assert world.app.consumer.current_assignment is None
    world.stage.gate.set()
    await world.commit()
    assert 1 == len(world.producer.works)


def suspect(world, partition, offset, crashes):
    """Let the journal say that a record was in flight in so many crashes in a row."""
    for _ in range(crashes):
        InFlightJournal(world.directory / "in-flight", 2 * SLOTS).begin(TP(TOPIC, partition), offset)
    world.runner._journal = InFlightJournal(world.directory / "in-flight", 2 * SLOTS)


async def test_after_one_crash_records_are_begun_as_ever(world):
    """Most crashes are kills, and hundreds of records were in flight: one at a time they would take for ever."""
    suspect(world, 0, 1, crashes=1)
    await world.assign()
    await world.submit(0, range(3), 0, 3)
    assert [(0, 0), (0, 1), (0, 2)] == world.stage.begun


async def test_a_record_of_two_crashes_runs_alone(world):
    """If the third one comes, nobody else can have been it; nothing is begun beside it, in no partition."""
    suspect(world, 0, 1, crashes=2)
    await world.assign()
    await world.submit(0, range(3), 0, 3)
    await world.submit(1, range(2), 0, 2)
    assert [(0, 0)] == world.stage.begun
    assert ["quarantine: a record that was in flight in several crashes runs alone"] * 2 == [
        row.paused for row in world.runner.pending()
    ]
    world.stage.gate.set()
    await world.settle()
    world.stage.gate.clear()
    await world.settle()
    assert [(0, 0), (0, 1)] == world.stage.begun[:2]
    world.stage.gate.set()
    await world.commit()
    assert {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)} == set(world.stage.begun)
    assert [b"0", b"0", b"1", b"1", b"2"] == sorted(world.published())
    assert 0 == world.runner._journal.suspects


async def test_a_record_of_three_crashes_is_a_dead_letter(world):
    """It is not begun again."""
    suspect(world, 0, 1, crashes=3)
    await world.assign()
    world.stage.gate.set()
    await world.submit(0, range(3), 0, 3)
    await world.commit()
    assert [(0, 0), (0, 2)] == world.stage.begun
    (letter,) = (output for work in world.producer.works for output in work.outputs if output.topic.endswith("-dlq"))
    assert (b"crash_loop", b"4") == (dict(letter.headers)["dlq-reason"], dict(letter.headers)["dlq-attempts"])


async def test_a_handler_that_does_not_return_is_given_up(tmp_path, monkeypatch):
    """Also one that can't be cancelled; what it does afterwards counts for nothing."""
    keep_alive(monkeypatch)
    world = World(tmp_path, handler_s=60.0)
    world.stage.stubborn = True
    await world.assign()
    await world.submit(0, range(2), 0, 2)
    world.runner._look_after()
    await world.commit()
    assert [] == world.published()
    for flight in world.runner._flights:
        flight.began_s -= 61.0
    world.runner._look_after()
    await world.commit()
    letters = [output for work in world.producer.works for output in work.outputs]
    assert [b"deadline"] * 2 == [dict(letter.headers)["dlq-reason"] for letter in letters]
    assert OffsetMap(2, 2) == world.producer.works[-1].positions[PLACES[0]]
    world.stage.gate.set()
    await world.commit()
    assert [] == world.crashed_with
    assert 2 == len(world.published())


async def test_a_record_in_hand_is_begun_anew_when_told_to(world):
    """The first handling is cancelled; if it ends all the same its result is not taken."""
    world.stage.stubborn = True
    await world.assign()
    await world.submit(0, range(2), 0, 2)
    assert world.runner.release(PLACES[0], 1, give_up=False)
    assert not world.runner.release(PLACES[0], 7, give_up=False)
    await world.settle()
    assert [(0, 0), (0, 1), (0, 1)] == world.stage.begun
    (row, _) = world.runner.pending()
    assert [(0, 1), (1, 2)] == [(record.offset, record.attempts) for record in row.records]
    world.stage.gate.set()
    await world.commit()
    assert [b"0", b"1"] == sorted(world.published())


async def test_a_record_in_hand_is_given_up_when_told_to(world):
    """For one that nobody waits for any more."""
    await world.assign()
    await world.submit(0, range(2), 0, 2)
    assert world.runner.release(PLACES[0], 0, give_up=True)
    world.stage.gate.set()
    await world.commit()
    ((letter, output),) = (work.outputs for work in world.producer.works)
    assert (b"policy", b"1") == (dict(letter.headers)["dlq-reason"], output.value)


async def test_a_partition_that_its_breaker_has_stopped_goes_on_when_told_to(tmp_path, monkeypatch):
    """With the record after those that tripped it."""
    keep_alive(monkeypatch)
    world = World(tmp_path, breaker_records=3)
    await world.assign()
    world.stage.gate.set()
    world.stage.broken = True
    await world.submit(0, range(3), 0, 3)
    await world.submit(0, range(3, 5), 3, 5)
    assert "breaker: too much of it went to the dead letters" == world.runner.pending()[0].paused
    world.stage.broken = False
    assert (True, False) == (world.runner.resume(PLACES[0]), world.runner.resume(PLACES[0]))
    await world.commit()
    assert OffsetMap(5, 5) == world.producer.works[-1].positions[PLACES[0]]
    assert [(0, offset) for offset in range(5)] == world.stage.begun


async def test_no_result_of_a_fenced_assignment_goes_on_being_worked_for(world):
    """The request that it would still send is the new owner's to send."""
    await world.assign()
    await world.submit(0, [0], 0, 1)
    world.runner._lose_assignment()
    await world.settle()
    assert set() == world.runner._flights
