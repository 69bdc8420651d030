"""The ordered runner without a broker, on real stores: rounds, timers, hand-over."""

from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from faust.types import TP
from prometheus_client import CollectorRegistry

from pipeline.config import Delivery
from pipeline.delivery import ordered
from pipeline.delivery import runner as module
from pipeline.delivery.api import Output
from pipeline.delivery.assignment import Assignment, Batch, Start
from pipeline.delivery.identity import Identity
from pipeline.delivery.journal import InFlightJournal
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.ordered import OrderedRunner
from pipeline.delivery.record_size import record_bytes
from pipeline.delivery.transactions import Verdict
from pipeline.errors import BugError, InputError
from pipeline.state.changelog import PlainRows, Restored
from pipeline.state.store import PartitionStore

FIRST, SECOND, OUT = "first", "second", "out"
PLACES = [TP(topic, number) for number in (0, 1) for topic in (FIRST, SECOND)]
LIMIT_S = 5.0
LETTER_BYTES = 10_000


class Record(NamedTuple):
    """What was read, with every field but the place defaulted."""

    topic: str
    partition: int
    offset: int
    value: bytes | None = b"v"
    timestamp: int = 0
    key: bytes | None = b"k"
    headers: tuple = ()


class Partition:
    """Notes what it is asked to do; table s counts records, table t holds when a timer is due."""

    def __init__(self, stage, number, view):
        self.stage, self.number, self.view = stage, number, view

    def handle(self, record, now):
        self.stage.entered.set()
        self.stage.gate.wait(LIMIT_S)
        self.stage.handled.append((record.topic, record.partition, record.offset))
        self.stage.on_work()
        self.view.put("s", b"count", b"%d" % (int(self.view.get("s", b"count") or b"0") + 1))
        if record.value.startswith(b"bad"):
            raise InputError("invalid_task", "bad")
        if record.value == b"timer":
            self.view.put("t", b"due", b"%d" % (now + 5))
        return [Output(OUT, b"%s/%d/%d" % (record.topic.encode(), record.partition, record.offset))]

    def due(self):
        row = self.view.get("t", b"due")
        return None if row is None else float(row)

    def tick(self, now):
        self.stage.on_work()
        self.stage.ticks += 1
        if self.stage.ticks >= self.stage.ticks_wanted:
            self.view.delete("t", b"due")
        return [Output(OUT, b"tick/%d" % self.number)]

    def before_commit(self, positions, now):
        self.stage.ranges.append(positions)
        return []

    def committed(self):
        pass

    def aborted(self):
        pass

    def close(self):
        pass


class Stage:
    """Opens partitions; records wait for the gate, which is open at first."""

    def __init__(self):
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.handled, self.ranges, self.opened = [], [], []
        self.ticks, self.ticks_wanted, self.on_work = 0, 1, lambda: None

    def open(self, partition, view, now):
        self.opened.append(partition)
        return Partition(self, partition, view)


class Producer:
    """Commits everything, or what it is told."""

    def __init__(self):
        self.works, self.verdicts = [], []
        self.trouble = ""

    def run(self, work):
        self.works.append(work)
        verdict = self.verdicts.pop(0) if self.verdicts else Verdict.COMMITTED
        return verdict, {number: len(self.works) for number in work.changes}


class World:
    """A runner with everything around it faked but its stores."""

    def __init__(self, tmp_path):
        self.now_s = 1_000.0
        self.worked_s = 0.0
        self.directory = tmp_path
        consumer = SimpleNamespace(current_assignment=None, held=set())
        self.app = SimpleNamespace(
            conf=SimpleNamespace(id="group"),
            consumer=consumer,
            monitor=SimpleNamespace(on_tp_commit=lambda offsets: None),
            on_partitions_revoked=SimpleNamespace(connect=lambda *args, **kwargs: None),
        )
        self.stage, self.producer = Stage(), Producer()
        changelog = SimpleNamespace(topic="log", rows=PlainRows(), restore=lambda *args: Restored(0, 0.0))
        self.runner = OrderedRunner(
            self.app,
            self.stage,
            changelog=changelog,
            directory=tmp_path,
            tables=("s", "t"),
            journal=tmp_path / "in-hand",
            clock=lambda: self.now_s,
            monotonic=lambda: self.worked_s,
            stage_name="toy",
            settings=Delivery(breaker_records=5),
            options={"bootstrap.servers": "127.0.0.1:1"},
            input_topics=(FIRST, SECOND),
            partitions=2,
            max_bytes={OUT: 1_000, f"{FIRST}-dlq": LETTER_BYTES, f"{SECOND}-dlq": LETTER_BYTES},
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

    def hand_over(self):
        """Give both partitions to the worker."""
        starts = {tp: Start(OffsetMap(0, 0), 0) for tp in PLACES}
        assignment = Assignment(Identity("group", 1, "member"), frozenset(PLACES), starts)
        self.app.consumer.current_assignment = assignment
        self.runner.assigned(assignment)
        return assignment

    async def assign(self):
        """Give both partitions to the worker and wait until they are open."""
        assignment = self.hand_over()
        await self.until(lambda: len(self.runner._slots) == 2 and all(s.logic for s in self.runner._slots.values()))
        return assignment

    async def until(self, condition):
        """Wait for what a thread does."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110  # threads set no asyncio event
                await asyncio.sleep(0)

    async def submit(self, topic, partition, start, *values):
        """Hand a batch over as the agent does."""
        records = [Record(topic, partition, start + index, value) for index, value in enumerate(values)]
        batch = Batch(records, start, start + len(values), self.app.consumer.current_assignment)
        await self.runner.submit(
            SimpleNamespace(value=batch, message=SimpleNamespace(topic=topic, partition=partition))
        )

    async def commit(self):
        """Do a round."""
        await asyncio.wait_for(self.runner.commit(), LIMIT_S)


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """A world whose process is not ended."""
    monkeypatch.setattr(module, "exit_after", lambda seconds, code: None)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    made = World(tmp_path)
    yield made
    made.stage.gate.set()
    await made.runner._on_revoked(made.app, set())
    made.runner._thread.shutdown()
    assert [] == made.crashed_with


def position(work, topic, number):
    """The position that a work commits for an input; None where it commits none."""
    offset_map = work.positions.get(TP(topic, number))
    return None if offset_map is None else offset_map.base


async def test_a_round_takes_the_inputs_in_the_order_of_the_stage(world):
    """Urgent tasks before others, outcomes before new work: partition by partition, in one transaction."""
    await world.assign()
    await world.submit(SECOND, 0, 0, b"v", b"v")
    await world.submit(FIRST, 0, 0, b"v")
    await world.submit(SECOND, 1, 0, b"v")
    await world.commit()
    assert [(FIRST, 0, 0), (SECOND, 0, 0), (SECOND, 0, 1), (SECOND, 1, 0)] == world.stage.handled
    (work,) = world.producer.works
    assert (1, 2, 1) == (position(work, FIRST, 0), position(work, SECOND, 0), position(work, SECOND, 1))
    assert [{FIRST: (0, 1), SECOND: (0, 2)}, {SECOND: (0, 1)}] == world.stage.ranges


async def test_a_batch_that_overlaps_is_filtered_record_by_record(world):
    """A seek may bring back what is here already: it must not be handled twice, nor its new part be lost."""
    await world.assign()
    await world.submit(FIRST, 0, 0, b"v", b"v", b"v")
    await world.submit(FIRST, 0, 1, b"v", b"v", b"v", b"v")
    await world.commit()
    assert [(FIRST, 0, offset) for offset in range(5)] == world.stage.handled
    assert 5 == position(world.producer.works[-1], FIRST, 0)


async def test_what_is_queued_at_a_revoke_is_not_committed_past(world):
    """It was fetched and not handled: the next owner has to begin with it."""
    await world.assign()
    world.stage.gate.clear()
    await world.submit(FIRST, 0, 0, b"v")
    round_in_work = asyncio.create_task(world.runner.commit())
    await world.until(world.stage.entered.is_set)
    await world.submit(FIRST, 0, 1, b"v", b"v")
    revoke = asyncio.create_task(world.runner._on_revoked(world.app, set()))
    await world.until(lambda: world.runner._closing)
    world.stage.gate.set()
    await asyncio.wait_for(asyncio.gather(round_in_work, revoke), LIMIT_S)
    assert [1] == [position(work, FIRST, 0) for work in world.producer.works]
    assert [(FIRST, 0, 0)] == world.stage.handled


async def test_batches_that_arrive_while_a_round_is_in_work_do_not_disturb_it(world):
    """Partitions may be opened, and batches come, while the thread goes through what it was given."""
    assignment = await world.assign()
    world.runner._slots.pop(1)
    world.stage.gate.clear()
    await world.submit(FIRST, 0, 0, b"v")
    round_in_work = asyncio.create_task(world.runner.commit())
    await world.until(world.stage.entered.is_set)
    for number in (1, 2, 3):
        world.runner._slots[number] = world.runner._slot(1, assignment)
    world.stage.gate.set()
    await asyncio.wait_for(round_in_work, LIMIT_S)
    assert [1] == [position(work, FIRST, 0) for work in world.producer.works]
    for number in (2, 3):
        world.runner._slots.pop(number)


async def test_a_timer_is_a_transaction_of_its_own_with_a_position_of_its_partition(world):
    """No earlier than it is due, and fenced like every other."""
    await world.assign()
    await world.submit(FIRST, 1, 0, b"timer")
    await world.commit()
    world.now_s += 4.5
    assert 0.5 == pytest.approx(world.runner._next_wake_s())
    await world.commit()
    assert 1 == len(world.producer.works)
    world.now_s += 0.5
    await world.commit()
    (_, work) = world.producer.works
    assert [b"tick/1"] == [output.value for output in work.outputs]
    assert {TP(FIRST, 1)} == work.positions.keys()
    assert None is world.runner._next_wake_s()


async def test_a_partition_without_records_commits_where_it_starts(world):
    """Its timers were restored with its state; a zombie that ticks must have something to be fenced by."""
    store = PartitionStore(world.directory / "0", ("s", "t"))
    store.apply({("t", b"due"): b"1"}, 1, 0.0)
    store.close()
    await world.assign()
    await world.until(lambda: world.runner._next_due is not None)
    await world.commit()
    (work,) = world.producer.works
    assert 0 == position(work, FIRST, 0)


async def test_state_and_position_are_applied_after_the_commit_and_only_then(world):
    """An abort leaves store and staged state as they were; the same records give the same again."""
    await world.assign()
    world.producer.verdicts = [Verdict.ABORTED]
    await world.submit(FIRST, 0, 0, b"v", b"v")
    store = world.runner._slots[0].store
    await world.commit()
    assert (0, None) == (store.applied, store.get("s", b"count"))
    await world.commit()
    first, second = world.producer.works
    assert first == second
    assert (2, b"2") == (store.applied, store.get("s", b"count"))
    assert [(b"scount", b"2")] == [(key, value) for _, key, value in second.changes[0]]


async def test_a_record_that_fails_half_way_leaves_nothing_but_its_dead_letter(world):
    """What it counted is undone; those before and after it in the round are not."""
    await world.assign()
    await world.submit(FIRST, 0, 0, b"v", b"bad", b"v")
    await world.commit()
    (work,) = world.producer.works
    assert [OUT, f"{FIRST}-dlq", OUT] == [output.topic for output in work.outputs]
    assert b"2" == world.runner._slots[0].store.get("s", b"count")
    assert 3 == position(work, FIRST, 0)


async def test_a_dead_letter_fits_its_topic(world):
    """A record may be larger than any topic takes once it is unpacked; its letter is cut, and nothing is aborted."""
    await world.assign()
    await world.submit(FIRST, 0, 0, b"bad" + bytes(2 * LETTER_BYTES))
    await world.commit()
    ((letter,),) = (work.outputs for work in world.producer.works)
    assert record_bytes(letter) <= LETTER_BYTES
    assert letter.value.startswith(b"bad")
    assert "dlq-cut" in dict(letter.headers)


async def test_a_partition_stops_at_the_record_that_trips_its_breaker(world):
    """What follows stays where it is, for a worker that can handle it; the other input goes on."""
    await world.assign()
    await world.submit(FIRST, 0, 0, *[b"bad"] * 8)
    await world.submit(SECOND, 0, 0, b"v")
    await world.commit()
    (work,) = world.producer.works
    assert (5, 1) == (position(work, FIRST, 0), position(work, SECOND, 0))
    await world.submit(SECOND, 0, 1, b"v")
    await world.commit()
    assert {SECOND} == {tp.topic for tp in world.producer.works[1].positions}


async def test_a_backlog_does_not_wait_for_the_interval(world, monkeypatch):
    """More than a round can take is at hand: the next one follows at once."""
    monkeypatch.setattr(ordered, "MAX_ROUND_RECORDS", 4)
    await world.assign()
    world.runner._pace.committed()
    await world.submit(FIRST, 0, 0, *[b"v"] * 10)
    for done in (4, 8):
        await world.commit()
        assert done == position(world.producer.works[-1], FIRST, 0)
        assert (done == 4) == world.runner._pace._now.is_set()
        world.runner._pace._now.clear()


def let_work_take(world, seconds):
    """Let each record and each tick take so long; a round has a tenth of a second."""

    def work():
        world.worked_s += seconds

    world.stage.on_work = work


async def test_a_round_ends_in_time_and_leaves_the_rest_to_the_next(world):
    """What is urgent and comes meanwhile must not wait until a backlog is done."""
    await world.assign()
    let_work_take(world, 0.01)
    await world.submit(FIRST, 0, 0, b"v")
    await world.submit(SECOND, 0, 0, *[b"v"] * 100)
    await world.submit(SECOND, 1, 0, *[b"v"] * 100)
    world.runner._pace._now.clear()
    await world.commit()
    (work,) = world.producer.works
    assert 1 == position(work, FIRST, 0)
    assert 4 <= len(world.stage.handled) <= 12
    assert world.runner._pace._now.is_set()
    await world.submit(FIRST, 0, 1, b"v")
    world.stage.handled.clear()
    await world.commit()
    assert (FIRST, 0, 1) == world.stage.handled[0]


async def test_each_input_moves_in_each_round_however_slow_the_others_are(world):
    """Urgent first is an order, not a share: bulk must not starve."""
    await world.assign()
    let_work_take(world, 60.0)
    for topic, number in PLACES:
        await world.submit(topic, number, 0, b"v", b"v")
    for done in (1, 2):
        await world.commit()
        assert [done] * 4 == [position(world.producer.works[-1], *place) for place in PLACES]


async def test_a_round_that_was_cut_short_and_is_done_again_loses_nothing(world):
    """It may be cut sooner the second time: what was left the first time stays behind what is left then."""
    await world.assign()
    let_work_take(world, 0.01)
    await world.submit(FIRST, 0, 0, *[b"v"] * 20)
    await world.submit(SECOND, 0, 0, *[b"v", b"bad", b"v"])
    while world.runner._left(TP(FIRST, 0), 20) or world.runner._left(TP(SECOND, 0), 3):
        await world.commit()
    published = [output.value for work in world.producer.works for output in work.outputs if output.topic == OUT]
    assert [b"first/0/%d" % offset for offset in range(20)] == [value for value in published if value[:1] == b"f"]
    assert [b"second/0/0", b"second/0/2"] == [value for value in published if value[:1] == b"s"]


@pytest.mark.parametrize(("seconds", "in_one_round"), [(0.001, 5), (60.0, 1)])
async def test_what_stays_due_goes_on_as_long_as_the_round_has_time(world, seconds, in_one_round):
    """One tick is a small piece of work: many of them are done at once where nothing else is to do."""
    await world.assign()
    world.stage.ticks_wanted = 5
    await world.submit(FIRST, 0, 0, b"timer")
    await world.commit()
    let_work_take(world, seconds)
    world.now_s += 5
    await world.commit()
    assert in_one_round == world.stage.ticks


async def test_an_undone_round_trips_no_breaker(world):
    """Its dead letters were not written; they are counted when they are."""
    await world.assign()
    world.producer.verdicts = [Verdict.ABORTED]
    await world.submit(FIRST, 0, 0, *[b"bad"] * 4)
    await world.commit()
    await world.commit()
    await world.submit(FIRST, 0, 4, b"v")
    await world.commit()
    assert [4, 5] == [position(work, FIRST, 0) for work in world.producer.works[1:]]


async def test_a_fenced_round_is_forgotten(world):
    """The partitions have another owner: their stores are closed, nothing is taken for them any more."""
    assignment = await world.assign()
    world.producer.verdicts = [Verdict.FENCED]
    await world.submit(FIRST, 0, 0, b"v")
    await world.commit()
    assert world.app.consumer.current_assignment is None
    await asyncio.get_running_loop().run_in_executor(world.runner._thread, lambda: None)
    PartitionStore(world.directory / "0", ("s", "t")).close()  # it can be opened again
    world.app.consumer.current_assignment = assignment
    await world.submit(FIRST, 0, 1, b"v")
    await world.commit()
    assert 1 == len(world.producer.works)


async def test_a_partition_that_its_breaker_has_stopped_goes_on_when_told_to(world):
    """With the first record that was not handled, as a restart would, but without one."""
    await world.assign()
    await world.submit(FIRST, 0, 0, *[b"bad"] * 5, b"v")
    await world.commit()
    assert ["breaker: too much of it went to the dead letters", "", "", ""] == [
        row.paused for row in world.runner.pending()
    ]
    assert (True, False) == (world.runner.resume(TP(FIRST, 0)), world.runner.resume(TP(FIRST, 0)))
    await world.commit()
    assert [5, 6] == [position(work, FIRST, 0) for work in world.producer.works]


async def test_what_is_in_hand_is_told_while_it_is(world):
    """A round that does not end is found out by its record."""
    await world.assign()
    world.stage.gate.clear()
    await world.submit(FIRST, 1, 0, b"v", b"v")
    round_in_work = asyncio.create_task(world.runner.commit())
    await world.until(world.stage.entered.is_set)
    (row,) = (row for row in world.runner.pending() if row.records)
    assert (FIRST, 1, 2) == row[:3]
    assert [(0, 1)] == [(record.offset, record.attempts) for record in row.records]
    assert not world.runner.release(TP(FIRST, 1), 0, give_up=False)
    world.stage.gate.set()
    await asyncio.wait_for(round_in_work, LIMIT_S)
    assert [()] == list({row.records for row in world.runner.pending()})


async def test_a_record_that_was_in_hand_in_three_crashes_is_a_dead_letter(world):
    """It would bring the worker down for ever; the records around it are handled."""
    for _ in range(3):
        InFlightJournal(world.directory / "in-hand", 1).begin(TP(FIRST, 0), 1)
    world.runner._journal = InFlightJournal(world.directory / "in-hand", 1)
    await world.assign()
    await world.submit(FIRST, 0, 0, b"v", b"crash", b"v")
    await world.commit()
    (work,) = world.producer.works
    assert [OUT, f"{FIRST}-dlq", OUT] == [output.topic for output in work.outputs]
    assert b"crash_loop" == dict(work.outputs[1].headers)["dlq-reason"]
    assert 0 == world.runner._journal.suspects


async def test_a_timers_output_that_no_topic_takes_is_our_fault(world):
    """Repeating it would abort for ever, and no record is to blame: the worker ends and says what it was."""
    await world.assign()
    slot = world.runner._slots[0]
    slot.logic.before_commit = lambda positions, now: [Output(OUT, bytes(2_000))]
    await world.submit(FIRST, 0, 0, b"v")
    await world.commit()
    assert [BugError] == [type(error) for error in world.crashed_with]
    world.crashed_with.clear()


async def test_an_error_of_a_timer_says_in_which_partition_it_happened(world):
    """No record is to blame, so nothing else tells where to look; every owner of the partition would end by it."""
    await world.assign()

    def fail(now):
        raise KeyError("a row that makes no sense")

    logic = world.runner._slots[1].logic
    logic.due, logic.tick = lambda: 0.0, fail
    await world.submit(FIRST, 1, 0, b"v")
    await world.commit()
    (error,) = world.crashed_with
    assert (BugError, "partition 1: KeyError: 'a row that makes no sense'") == (type(error), str(error))
    world.crashed_with.clear()


async def test_a_state_that_can_not_be_opened_says_of_which_partition_it_is(world):
    """The same at an assignment."""

    def fail(partition, view, now):
        raise ValueError("no row of ours")

    world.stage.open = fail
    world.hand_over()
    await world.until(lambda: world.crashed_with)
    (error,) = world.crashed_with
    assert (BugError, "partition 0: ValueError: no row of ours") == (type(error), str(error))
    world.crashed_with.clear()


async def test_a_question_is_answered_between_two_rounds(world):
    """Whoever looks must see what a transaction has left behind, not half of one."""
    await world.assign()
    world.stage.gate.clear()
    await world.submit(FIRST, 1, 0, b"v", b"v")
    round_in_work = asyncio.create_task(world.runner.commit())
    await world.until(world.stage.entered.is_set)
    question = asyncio.create_task(world.runner.ask(lambda logic: logic.view.get("s", b"count")))
    world.stage.gate.set()
    await asyncio.wait_for(round_in_work, LIMIT_S)
    assert {0: None, 1: b"2"} == await asyncio.wait_for(question, LIMIT_S)
    assert {1: b"2"} == await world.runner.ask(lambda logic: logic.view.get("s", b"count"), 1)


async def test_nothing_is_said_of_a_partition_that_is_not_ours_any_more(world):
    """Its new owner knows better, and two answers would be a riddle."""
    assert {} == await world.runner.ask(lambda logic: True)
    await world.assign()
    assert {} == await world.runner.ask(lambda logic: True, 7)

    def lose(logic):
        world.app.consumer.current_assignment = None
        return True

    assert {} == await world.runner.ask(lose)


async def test_a_question_that_fails_harms_nobody_but_its_asker(world):
    """It is put by people, to a worker that has work to do."""
    await world.assign()
    with pytest.raises(ZeroDivisionError):
        await world.runner.ask(lambda logic: 1 / 0)
    await world.submit(FIRST, 0, 0, b"v")
    await world.commit()
    assert [1] == [position(work, FIRST, 0) for work in world.producer.works]
