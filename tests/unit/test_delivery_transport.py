from __future__ import annotations

from types import SimpleNamespace

import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from pipeline.delivery import transport as module
from pipeline.delivery.assignment import Assignment, Start, equal_partition_sets
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.transport import Consumer, ConsumerThread, RebalanceListener

ONE, TWO = TP("topic", 0), TP("topic", 1)


class Ended(BaseException):
    """The process would have ended here."""


@pytest.fixture(autouse=True)
def ends(monkeypatch):
    """A hard exit becomes an exception; returns the list of its arguments."""
    calls = []

    def exit_now(message, code):
        calls.append((message, code))
        raise Ended

    monkeypatch.setattr(module, "exit_now", exit_now)
    return calls


# ---- the group's words


class Coordinator(SimpleNamespace):
    """What aiokafka's coordinator says of the member."""

    async def _do_heartbeat(self):
        return self.beats


@pytest.fixture
def listener(monkeypatch):
    """A listener of a thread with a coordinator: `.coordinator`, `.consumer`, `.thread`."""

    async def assigned(self, assigned):
        pass

    monkeypatch.setattr(driver.ConsumerRebalanceListener, "on_partitions_assigned", assigned)
    monkeypatch.setattr(driver.ConsumerRebalanceListener, "on_partitions_revoked", lambda self, revoked: assigned)
    coordinator = Coordinator(group_id="g", generation=4, member_id="m", _group_instance_id="i", beats=True)
    consumer = SimpleNamespace(current_assignment=None, held={ONE}, last_heartbeat_s=float("-inf"))
    thread = object.__new__(ConsumerThread)
    thread.consumer, thread.positions = consumer, {ONE: 7}
    thread._ensure_consumer = lambda: SimpleNamespace(_coordinator=coordinator)
    made = RebalanceListener(thread)
    made.coordinator, made.consumer, made.thread = coordinator, consumer, thread
    return made


async def test_the_identity_is_captured_at_the_assignment_and_never_read_again(listener):
    """What the coordinator says later belongs to other partitions: work of this assignment must be fenced by it."""
    await listener.on_partitions_assigned([ONE, TWO])
    assignment = listener.consumer.current_assignment
    listener.coordinator.generation, listener.coordinator.member_id = 5, "another"
    assert (Identity("g", 4, "m", "i"), frozenset({ONE, TWO})) == (assignment.identity, assignment.partitions)


async def test_what_belonged_to_the_assignment_before_is_forgotten(listener):
    """A position or a hold of the partitions' former time says nothing of the new one."""
    await listener.on_partitions_assigned([ONE])
    assert ({}, set()) == (listener.thread.positions, listener.consumer.held)


@pytest.mark.parametrize(("generation", "member"), [(-1, "m"), (4, "")])
async def test_a_member_that_could_not_be_fenced_gets_no_work(listener, generation, member):
    """Its commits would be accepted from anybody."""
    listener.coordinator.generation, listener.coordinator.member_id = generation, member
    await listener.on_partitions_assigned([ONE])
    assert listener.consumer.current_assignment is None


async def test_topics_that_are_torn_apart_end_the_worker(listener, ends):
    """A stage whose topics are not co-partitioned would work on half of a domain."""
    with pytest.raises(Ended):
        await listener.on_partitions_assigned([ONE, TWO, TP("other", 0)])
    assert ExitCode.BUG == ends[0][1]


def test_equal_partition_sets_are_equal_for_every_topic():
    """Any number of topics, none at all included."""
    assert equal_partition_sets(frozenset())
    assert equal_partition_sets(frozenset({ONE, TWO, TP("other", 0), TP("other", 1)}))
    assert not equal_partition_sets(frozenset({ONE, TP("other", 1)}))


def test_an_evicted_static_member_ends(listener, ends):
    """It would rejoin and fence the one that has its name, which would do the same, once a second for ever."""
    listener.coordinator.member_id = ""
    with pytest.raises(Ended):
        listener.on_partitions_revoked({ONE})
    assert ExitCode.REPLACED == ends[0][1]


@pytest.mark.parametrize(("instance", "member", "revoked"), [("i", "m", {ONE}), (None, "", {ONE}), ("i", "", set())])
def test_other_revokes_end_nobody(listener, instance, member, revoked):
    """An ordinary rebalance, a dynamic member, the first join."""
    listener.coordinator._group_instance_id, listener.coordinator.member_id = instance, member
    listener.on_partitions_revoked(revoked)


async def test_only_heartbeats_that_succeed_prove_membership(listener, monkeypatch):
    """A process that was stopped and continued must not believe in its last beats; the time is that of sending."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now_s)
    await listener.on_partitions_assigned([ONE])
    await listener.on_partitions_assigned([ONE])  # watches once however often
    clock.now_s = 105.0
    await listener.coordinator._do_heartbeat()
    assert 105.0 == listener.consumer.last_heartbeat_s
    clock.now_s, listener.coordinator.beats = 110.0, False
    await listener.coordinator._do_heartbeat()
    assert 105.0 == listener.consumer.last_heartbeat_s
    assert Consumer.membership_is_fresh(listener.consumer, 10.0, 2.0)
    clock.now_s = 113.0
    assert not Consumer.membership_is_fresh(listener.consumer, 10.0, 2.0)


# ---- the chain of batches


@pytest.fixture
def fetch(monkeypatch):
    """A fetch that gives what is planned: records and the position after them by partition; `.thread` is ours."""
    plan = {}

    async def drained(self, *args):
        return plan["records"]

    monkeypatch.setattr(driver.AIOKafkaConsumerThread, "_fetch_records", drained)
    thread = object.__new__(ConsumerThread)
    thread.positions = {ONE: 10, TWO: 20}
    thread.consumer = SimpleNamespace(current_assignment=Assignment(Identity("g", 1, "m"), frozenset({ONE, TWO})))

    async def run(records, positions, active=frozenset({ONE, TWO})):
        plan["records"] = records
        states = {
            tp: SimpleNamespace(position=end, has_valid_position=end is not None) for tp, end in positions.items()
        }
        assigned = SimpleNamespace(tps=set(states), state_value=states.__getitem__)
        consumer = SimpleNamespace(_subscription=SimpleNamespace(subscription=SimpleNamespace(assignment=assigned)))
        return await thread._fetch_records(consumer, set(active))

    run.thread = thread
    return run


async def test_each_batch_begins_where_the_one_before_has_ended(fetch):
    """The chain in which a runner sees a hole; it passes offsets without records too."""
    ((first,), (second,)) = [
        (await fetch({ONE: ["a"]}, {ONE: 12, TWO: 20}))[ONE],
        (await fetch({ONE: ["b"]}, {ONE: 15, TWO: 20}))[ONE],
    ]
    assert [(10, 12), (12, 15)] == [(batch.start, batch.end) for batch in (first, second)]
    assert first.assignment is fetch.thread.consumer.current_assignment


async def test_offsets_without_records_move_the_position(fetch):
    """Markers and aborted records must not count as lag for ever."""
    (batch,) = (await fetch({}, {ONE: 10, TWO: 25}))[TWO]
    assert ([], 20, 25) == (list(batch.records), batch.start, batch.end)


async def test_what_was_fetched_before_our_seek_is_dropped(fetch):
    """The seek brings it again; taken twice, the chain would have a hole."""
    del fetch.thread.positions[ONE]
    assert {} == await fetch({ONE: ["early"]}, {ONE: 3, TWO: 20})


async def test_a_partition_that_is_being_reset_gives_nothing(fetch):
    """Its position is unknown for a moment."""
    assert {} == await fetch({}, {ONE: None, TWO: 20})


async def test_a_topic_that_goes_back_ends_the_worker(fetch, ends):
    """It was truncated or made anew: what comes now has offsets that are taken for done."""
    with pytest.raises(Ended):
        await fetch({ONE: ["new"]}, {ONE: 2, TWO: 20})
    assert ExitCode.BROKER == ends[0][1]


async def test_batches_of_nobodys_partitions_carry_no_assignment(fetch):
    """Between revoke and assignment; the runner drops them."""
    fetch.thread.consumer.current_assignment = None
    (batch,) = (await fetch({ONE: ["a"]}, {ONE: 11, TWO: 20}))[ONE]
    assert batch.assignment is None


# ---- holding back


async def test_a_held_partition_is_left_out_of_the_fetch(monkeypatch):
    """Never by pausing: Faust drops already fetched records of a paused partition."""
    asked = []

    async def getmany(self, *args):
        asked.append(args)
        return {}

    monkeypatch.setattr(driver.Consumer, "_getmany", getmany)
    consumer = object.__new__(Consumer)
    consumer.held = set()
    await consumer._getmany({ONE, TWO}, 5.0)
    consumer.held = {ONE}
    await consumer._getmany({ONE, TWO}, 5.0)
    consumer.held = {ONE, TWO}
    await consumer._getmany({ONE, TWO}, 5.0)  # an empty set would mean all partitions
    assert [{ONE, TWO}, {TWO}] == [active for active, _ in asked]
    assert asked[1][1] < 1.0  # it is soon let go


# ---- seeking


class Membership:
    """A consumer with one assignment, and the runner it tells of it."""

    def __init__(self):
        self.assignment = Assignment(Identity("g", 1, "m"), frozenset({ONE}))
        self.told, self.sought, self.reads = [], [], 0
        self.consumer = SimpleNamespace(
            current_assignment=self.assignment, seek_wait=self.seek_wait, app=SimpleNamespace(headrace_runner=self)
        )

    async def seek_wait(self, offsets):
        self.sought.append(dict(offsets))

    async def starts(self, assignment):
        self.reads += 1
        return {ONE: Start(OffsetMap(10, 10), 40)}

    def assigned(self, assignment):
        self.told.append(assignment)

    def expected(self, assignment):
        return {ONE: 25}

    async def seek(self):
        return await Consumer.seek_to_committed(self.consumer)


async def test_a_seek_in_mid_assignment_goes_back_to_where_the_runner_stands():
    """Faust seeks again when it has dropped a fetch; taken for a new assignment it would open the state twice."""
    member = Membership()
    assert {ONE: 10} == await member.seek()
    assert {ONE: 25} == await member.seek()
    assert [{ONE: 10}, {ONE: 25}] == member.sought
    assert ([member.assignment], 1) == (member.told, member.reads)


async def test_an_assignment_that_is_gone_is_not_told_of():
    """Its partitions were called back while their offsets were read."""
    member = Membership()

    async def revoked(assignment):
        member.consumer.current_assignment = None
        return {ONE: Start(OffsetMap(10, 10), 40)}

    member.starts = revoked
    await member.seek()
    assert [] == member.told
    assert {} == await member.seek()
