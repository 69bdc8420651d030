"""The rules of delivery that show where a group has more than one worker, or one comes back."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from pipeline.delivery.exits import ExitCode
from pipeline.delivery.identity import Identity
from tests.chaos.ledger import produce, transaction
from tests.chaos.process import until
from tests.integration.conftest import KINDS

SHORT_SESSION_S = 3
GRACE_S = 2.0


def to_all(bootstrap, stage, *values):
    """Write each value to each partition, under a key of its own; a partition's number is added to the value."""
    for partition in range(stage.partitions):
        rows = [(b"%s-%d" % (value, partition), b"%s:%d" % (value, partition)) for value in values]
        produce(bootstrap, stage.toy.inputs[0], rows, partition)


def in_all(stage, *values):
    """What `to_all` has written."""
    return {b"%s:%d" % (value, partition) for value in values for partition in range(stage.partitions)}


def test_on_revoke_work_is_drained_committed_with_the_old_generation_and_forgotten(stage_factory, reader, broker):
    """What ends within the grace is not done again; the rest is the next owner's, even where it can't be stopped."""
    stage = stage_factory("parallel")
    older = stage.worker("older", delivery__revoke_grace_s=GRACE_S, delivery__commit_interval_s=600).start()
    out = reader(stage.toy.out)
    to_all(broker.bootstrap, stage, b"urgent:first")
    out.until_count(2)  # from here on nothing is committed before the revoke
    to_all(broker.bootstrap, stage, b"gate:soon", b"gate:late", b"stubborn:never")
    for value in in_all(stage, b"gate:soon", b"gate:late", b"stubborn:never"):
        stage.until_begun(value)
    stage.worker("younger", delivery__revoke_grace_s=GRACE_S).start()
    (drain,) = until(lambda: stage.journal("drain", "older"), "the older worker called back")
    stage.open_gate("soon")
    for value in in_all(stage, b"gate:late", b"stubborn:never"):
        stage.until_begun(value, times=2)
    (drained,) = stage.journal("drained", "older")
    assert drained["at_s"] - drain["at_s"] < GRACE_S + 1.0
    assert [1, 1] == [stage.begun(value) for value in in_all(stage, b"gate:soon")]
    stage.open_gate("late")
    stage.open_gate("never")
    until(lambda: len(stage.journal("end")) == 8, "everything handled")
    stage.open_gate("never.after")  # the older worker's own handling of it ends only now
    until(lambda: len(stage.journal("end")) == 10, "the ends of what could not be stopped")
    to_all(broker.bootstrap, stage, b"urgent:last")
    out.until_count(10)
    expected = in_all(stage, b"urgent:first", b"gate:soon", b"gate:late", b"stubborn:never", b"urgent:last")
    out.read_to_end()
    assert dict.fromkeys(expected, 1) == dict(out.values)
    assert older.running


def test_on_revoke_a_round_is_finished_not_cut(stage_factory, reader, broker):
    """An ordered worker commits what it has begun with the old generation, so that nobody does it again."""
    stage = stage_factory("ordered", timer_s=0.0)
    stage.worker("older").start()
    to_all(broker.bootstrap, stage, b"gate:go")
    stage.until_begun(b"gate:go:0")
    stage.worker("younger").start()
    until(lambda: stage.journal("drain", "older"), "the older worker called back")
    stage.open_gate("go")
    out = reader(stage.toy.out)
    out.until_count(4)
    stage.assigned_to("younger")
    assert [1, 1] == [stage.begun(value) for value in in_all(stage, b"gate:go")]
    assert 4 == len(out.read_to_end())


def test_a_zombies_results_are_fenced(stage_factory, reader, broker):
    """A worker that was silent too long finishes work that somebody else has done: nobody sees it."""
    stage = stage_factory("parallel")
    zombie = stage.worker("zombie", delivery__session_timeout_s=SHORT_SESSION_S).start()
    to_all(broker.bootstrap, stage, b"gate:go")
    for value in in_all(stage, b"gate:go"):
        stage.until_begun(value)
    stage.hold("heartbeat", "zombie")
    stage.worker("heir", delivery__session_timeout_s=SHORT_SESSION_S).start()
    for value in in_all(stage, b"gate:go"):
        stage.until_begun(value, times=2)
    stage.open_gate("go")
    zombie.says("the partitions have moved")
    out = reader(stage.toy.out)
    out.until_count(2)
    to_all(broker.bootstrap, stage, b"v:last")
    out.until_count(4)
    out.read_to_end()
    assert dict.fromkeys(in_all(stage, b"gate:go", b"v:last"), 1) == dict(out.values)
    stage.release("heartbeat", "zombie")  # it hears that it was evicted, and makes room
    assert ExitCode.REPLACED == zombie.exit_status()


def test_a_zombies_tick_is_fenced(stage_factory, reader, broker):
    """Timer work has no record whose offset would be checked: it sends its partition's positions all the same."""
    stage = stage_factory("ordered", partitions=1, timer_s=3.0 * SHORT_SESSION_S)
    zombie = stage.worker("zombie", delivery__session_timeout_s=SHORT_SESSION_S).start()
    out = reader(stage.toy.out)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"key", b"v")])
    out.until_count(1)
    stage.hold("heartbeat", "zombie")
    stage.worker("heir", delivery__session_timeout_s=SHORT_SESSION_S).start()
    until(lambda: stage.assigned_to("heir") == [0], "the heir's partition")
    assert [] == stage.journal("tick")
    until(lambda: stage.journal("tick", "zombie") and stage.journal("tick", "heir"), "the ticks of both")
    zombie.says("the partitions have moved")
    out.until_count(2)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"next", b"v")])
    out.until_count(3)
    assert [b"first:1:v", b"timer:v", b"first:2:v"] == [row.value for row in out.read_to_end()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_comes_back_moves_nobody_elses_partitions(stage_factory, reader, broker, kind):
    """A stable name is a static member: a restart within the session stops only its own partitions."""
    stage = stage_factory(kind)
    stage.worker("stays").start()
    back = stage.worker("comes-back").start()
    until(
        lambda: len(stage.assigned_to("stays")) == len(stage.assigned_to("comes-back")) == 1, "one partition for each"
    )
    partitions = stage.assigned_to("comes-back")
    drains = len(stage.journal("drain", "stays"))
    back.kill()
    back.start()
    until(lambda: len(stage.journal("assigned", "comes-back")) > 1, "the assignment after the restart")
    to_all(broker.bootstrap, stage, b"v:x")
    reader(stage.toy.out).until_count(2 if kind == "parallel" else 4)
    assert partitions == stage.assigned_to("comes-back")
    assert drains == len(stage.journal("drain", "stays"))


def test_nobody_commits_before_the_whole_groups_offsets_are_stable(stage_factory, reader, broker):
    """A transaction that hangs on another partition would be completed by the next commit of its producer."""
    stage = stage_factory("parallel")
    topic = stage.toy.inputs[0]
    stage.worker("other").start()
    worker = stage.worker("checked", delivery__stable_offsets_s=2).start()
    until(lambda: len(stage.assigned_to("other")) == len(stage.assigned_to("checked")) == 1, "one partition for each")
    (others,), (own,) = stage.assigned_to("other"), stage.assigned_to("checked")
    worker.kill()
    with transaction(broker.bootstrap, f"{stage.toy.group}-foreign") as foreign:
        nobody = bytes(Identity(stage.toy.group, -1, ""))
        foreign.send_offsets_to_transaction([TopicPartition(topic, others, 0)], nobody, 10)
        produce(broker.bootstrap, topic, [(b"k", b"v")], own)
        worker.start()
        assert ExitCode.BROKER == worker.exit_status()
        worker.says(f"offsets of {topic}/{others} stay unstable")
        assert [] == reader(stage.toy.out).read_to_end()
        assert [] == stage.journal("begin")
    worker.start()
    reader(stage.toy.out).until_count(1)
