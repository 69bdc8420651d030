"""Cases of delivery and lag that other projects' users have met, on a real broker."""

from __future__ import annotations

import signal
import uuid

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.delivery.exits import ExitCode
from tests.chaos.ledger import produce, transaction
from tests.chaos.process import SESSION_S, until

REAPER_S = 10  # how often the broker looks for overdue transactions


def test_kaf_01_a_member_that_joins_in_mid_batch_repeats_nothing(stage_factory, reader, broker):
    """KAF-01: 400 records of 15 ms, B joins while A is at work, A is stopped cleanly: each once for the reader."""
    stage = stage_factory("parallel", partitions=4, slots=4, pause_s=0.12)  # four at once: 15 ms a record
    sent = [(b"k%d" % number, b"v%d" % number) for number in range(400)]
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    first = stage.worker("a", delivery__session_timeout_s=3).start()
    until(lambda: len(stage.journal("begin", "a")) > 40, "the first member at work")
    stage.worker("b", delivery__session_timeout_s=3).start()
    until(lambda: len(stage.journal("begin", "b")) > 20, "the second member at work")
    first.send(signal.SIGTERM)
    assert 0 == first.exit_status()
    out = reader(stage.toy.out)
    out.until_count(400)
    out.read_to_end()
    assert dict.fromkeys((value for _, value in sent), 1) == dict(out.values)


@pytest.mark.parametrize("kind", ["parallel", "ordered"])
def test_kaf_03_records_without_a_value_are_acknowledged(stage_factory, offsets, broker, kind):
    """KAF-03: deletions and records without key and value are passed; the commit does not stand still at them."""
    stage = stage_factory(kind, partitions=1)
    rows = [(b"a", b"1"), (b"a", None), (b"b", None), (None, None), (b"c", b"2")]
    produce(broker.bootstrap, stage.toy.inputs[0], rows)
    stage.worker().start()
    group = offsets(stage.toy.group)
    until(lambda: {0: 5} == group.committed(stage.toy.inputs[0], 1), "all five committed")
    assert {0: 0} == group.lag(stage.toy.inputs[0], 1)
    assert 5 == len(stage.journal("begin"))


@pytest.mark.parametrize(
    ("kind", "at_once"),
    [("parallel", True), ("ordered", True), ("parallel", False)],
    ids=["parallel-within-a-second", "ordered-within-a-second", "parallel-after-the-timeout"],
)
def test_kaf_11_killed_between_offsets_and_commit_the_group_does_not_start_over(
    stage_factory, reader, broker, kind, at_once
):
    """KAF-11: pending offsets are waited for, never taken for none; the restart is where the last commit was."""
    stage = stage_factory(kind, partitions=1, timer_s=600.0)
    topic = stage.toy.inputs[0]
    sent = [(b"k%d" % number, b"v%d" % number) for number in range(2_000)]
    produce(broker.bootstrap, topic, sent[:1_000])
    # At once means by taking over the id: the broker itself would end the transaction only after a minute.
    worker = stage.worker(delivery__transaction_timeout_s=60 if at_once else SESSION_S).start()
    out = reader(stage.toy.out)
    out.until_count(1_000)
    stage.hold("before_commit", "a")
    produce(broker.bootstrap, topic, sent[1_000:])
    stage.stands_at("before_commit", "a")
    begun = {row["offset"] for row in stage.journal("begin")}
    worker.kill()
    stage.release("before_commit", "a")
    if not at_once:
        pending = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": stage.toy.group, "log_level": 2})
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            pending.committed([TopicPartition(topic, 0)], timeout=0.5)
        (answer,) = pending.committed([TopicPartition(topic, 0)], timeout=SESSION_S + 2 * REAPER_S)
        assert 1_000 <= answer.offset < 2_000
        pending.close()
    worker.start()
    out.until_count(2_000)
    out.read_to_end()
    endings = [value.rpartition(b":")[2] for value in out.values.elements()]
    assert sorted(value for _, value in sent) == sorted(endings)
    again = [row["offset"] for row in stage.journal("begin") if row["offset"] < 1_000]
    assert sorted(offset for offset in begun if offset < 1_000) == sorted(
        again
    )  # what was committed is not begun again


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("parallel", "before_offsets"),
        # The broker takes its time. The heir of an ordered one waits for any open transaction, in its restore.
        pytest.param("parallel", "before_commit", marks=pytest.mark.chaos),
        pytest.param("ordered", "before_commit", marks=pytest.mark.chaos),
    ],
)
def test_kaf_19_a_zombie_stopped_inside_a_transaction_commits_nothing(
    stage_factory, reader, offsets, broker, *, kind, place
):
    """KAF-19: stopped for longer than the session, continued after another has done the work: refused, and replaced."""
    stage = stage_factory(kind, partitions=1, timer_s=0.0)
    topic, short = stage.toy.inputs[0], {"delivery__session_timeout_s": 2}
    if place == "before_commit":  # its offsets are pending: nobody begins before the broker has aborted it
        short["delivery__transaction_timeout_s"] = 2
    sent = [(b"k%d" % number, b"v:%d" % number) for number in range(20)]
    zombie = stage.worker("zombie", **short).start()
    out = reader(stage.toy.out)
    produce(broker.bootstrap, topic, sent[:10])
    copies = 1 if kind == "parallel" else 2
    out.until_count(10 * copies)
    for held in (place, "heartbeat"):  # without the heartbeat it learns from its commit alone that it is a zombie
        stage.hold(held, "zombie")
    produce(broker.bootstrap, topic, sent[10:])
    stage.stands_at(place, "zombie")
    zombie.send(signal.SIGSTOP)
    stage.worker("heir", **short).start()
    until(lambda: 10 == len({row["value"] for row in stage.journal("begin", "heir")}), "the work begun by its heir")
    stage.release(place, "zombie")
    zombie.send(signal.SIGCONT)
    if place == "before_offsets":
        zombie.says("the partitions have moved")  # refused by the group
        stage.release("heartbeat", "zombie")
    assert ExitCode.REPLACED == zombie.exit_status()
    zombie.start(toy=zombie.toy)
    until(lambda: len(stage.journal("assigned", "zombie")) > 1, "the zombie's successor in the group")
    group = offsets(stage.toy.group)
    until(lambda: {0: 0} == group.lag(topic, 1), "no lag")
    endings = [value.rpartition(b"v:")[2] for value in (row.value for row in out.read_to_end())]
    assert sorted(value.rpartition(b"v:")[2] for _, value in sent for _ in range(copies)) == sorted(endings)


def test_lag_02_markers_leave_no_lag(stage_factory, reader, offsets, broker):
    """LAG-02: six partitions written in transactions, all consumed, then idle: the lag of each is 0."""
    stage = stage_factory("parallel", partitions=6)
    topic = stage.toy.inputs[0]
    for _ in range(3):
        with transaction(broker.bootstrap, f"sender-{uuid.uuid4()}") as sender:
            for number in range(60):
                sender.produce(topic, b"v", b"k", number % 6)
            sender.commit_transaction(10)
    stage.worker().start()
    reader(stage.toy.out).until_count(180)
    group = offsets(stage.toy.group)
    until(lambda: dict.fromkeys(range(6), 0) == group.lag(topic, 6), "no lag", limit_s=30)
