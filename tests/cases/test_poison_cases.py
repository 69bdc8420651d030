"""Cases of records that can't be handled, are too slow or too large, on a real broker."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from pipeline.delivery.exits import ExitCode
from tests.chaos.ledger import produce
from tests.chaos.process import SESSION_S, until
from tests.integration.conftest import KINDS

REACH_S = 10.0
STALL_S = 30.0
SIZES = (900_000, 999_886, 1_000_000, 1_000_033, 1_048_576, 5_000_000)
DEFAULT_TOPIC_BYTES = 1_048_588
"""The broker's `message.max.bytes`."""
MARKER_ONLY_BYTES = 200
"""Enough for the markers of transactions, 78 bytes each, without which no abort would ever end; for no dead letter."""


@pytest.mark.parametrize("kind", KINDS)
def test_kaf_09_no_body_near_the_limit_vanishes(stage_factory, reader, offsets, broker, kind):
    """KAF-09: each body is delivered whole or is a dead letter, its neighbours are delivered, and nothing stalls."""
    stage = stage_factory(kind, partitions=1)
    topic = stage.toy.inputs[0]
    bodies = [b"%s:%d" % (content, size) for size in SIZES for content in (b"random", b"letters")]
    rows = [row for body in bodies for row in ((body, body), (b"beside-" + body, b"v:beside-" + body))]
    stage.worker().start()
    stage.assigned_to("a")
    produce(broker.bootstrap, topic, rows)
    group = offsets(stage.toy.group)
    until(lambda: {0: len(rows)} == group.committed(topic, 1), "everything committed", STALL_S)
    out, letters = reader(stage.toy.out).read_to_end(), reader(f"{topic}-dlq").read_to_end()
    dead = {row.key: row.headers["dlq-reason"] for row in letters}
    assert len(dead) == len(letters)
    for body in bodies:
        content, size = body.split(b":")
        delivered = [row.value for row in out if row.key == body and not row.value.startswith((b"timer:", b"beside:"))]
        if body in dead:
            assert (b"too_large", []) == (dead[body], delivered)
        else:
            (value,) = delivered
            assert int(size) == len(value)
            assert (content == b"letters") == (value == b"a" * len(value))
    assert {body for body in bodies if int(body.split(b":")[1]) > DEFAULT_TOPIC_BYTES} <= dead.keys()
    assert dead.keys().isdisjoint(body for body in bodies if int(body.split(b":")[1]) <= SIZES[3])
    beside = [row.key for row in out if row.key.startswith(b"beside-") and not row.value.startswith(b"timer:")]
    assert sorted(b"beside-" + body for body in bodies) == sorted(beside)


@pytest.mark.parametrize("kind", KINDS)
def test_kaf_13_a_record_slower_than_the_poll_interval_is_handled_once(stage_factory, reader, offsets, broker, kind):
    """KAF-13: no poll interval evicts a worker, and heartbeats go on beside the slow record: nothing begins again."""
    stage = stage_factory(kind, timer_s=0.0)
    topic = stage.toy.inputs[0]
    for name in ("a", "b"):
        stage.worker(name).start()
    until(lambda: len(stage.assigned_to("a")) == len(stage.assigned_to("b")) == 1, "one partition for each")
    assignments = len(stage.journal("assigned"))
    others = [(b"k%d" % number, b"v:%d" % number) for number in range(19)]
    produce(broker.bootstrap, topic, [(b"slow", b"gate:slow")], partition=0)
    stage.until_begun(b"gate:slow")
    produce(broker.bootstrap, topic, others)
    began_s = time.monotonic()
    until(
        lambda: time.monotonic() > began_s + SESSION_S + 1, "a time that would have evicted a member that is not there"
    )
    stage.open_gate("slow")
    out, group = reader(stage.toy.out), offsets(stage.toy.group)
    out.until_count(20 if kind == "parallel" else 40)
    until(lambda: not any(group.lag(topic, 2).values()), "no lag")
    assert [1] * 20 == [stage.begun(value) for value in (b"gate:slow", *(value for _, value in others))]
    assert assignments == len(stage.journal("assigned"))
    assert 20 * (1 if kind == "parallel" else 2) == len(out.read_to_end())


def refuse(admin, topic, *, largest_bytes):
    """Set how large a batch a topic takes."""
    entry = ConfigEntry("max.message.bytes", str(largest_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(REACH_S)


def committed_so_far(admin, group, topic):
    """Committed offset of partition 0, whatever an open transaction says; negative where there is none."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (answer,) = admin.list_consumer_group_offsets([asked]).values()
    (position,) = answer.result(REACH_S).topic_partitions
    return position.offset


def remove(admin, topic):
    """Remove a topic and wait until it shows."""
    admin.delete_topics([topic])[topic].result(REACH_S)
    until(lambda: topic not in admin.list_topics(timeout=REACH_S).topics, f"{topic} gone")


@pytest.mark.parametrize(
    ("kind", "outage"),
    [
        ("parallel", "refusing"),
        ("ordered", "missing"),
        pytest.param("parallel", "missing", marks=pytest.mark.chaos),
        pytest.param("ordered", "refusing", marks=pytest.mark.chaos),
    ],
)
def test_kaf_18_nothing_is_committed_past_a_dead_letter_that_can_not_be_written(
    stage_factory, reader, offsets, broker, *, admin, kind, outage
):
    """KAF-18: the record stays in the input until it is stored elsewhere; the other worker's partition goes on."""
    stage = stage_factory(kind, timer_s=0.0)
    topic = stage.toy.inputs[0]
    dlq = f"{topic}-dlq"
    workers = [stage.worker(name).start() for name in ("a", "b")]
    until(lambda: len(stage.assigned_to("a")) == len(stage.assigned_to("b")) == 1, "one partition for each")
    if outage == "missing":
        remove(admin, dlq)
    else:
        refuse(admin, dlq, largest_bytes=MARKER_ONLY_BYTES)
    poison = [(b"p%d" % number, b"poison:v%d" % number) for number in range(2)]
    good = [(b"g%d" % number, b"v:v%d" % number) for number in range(8)]
    produce(broker.bootstrap, topic, [*poison, *good[:4]], partition=0)
    produce(broker.bootstrap, topic, good[4:], partition=1)
    out, group = reader(stage.toy.out), offsets(stage.toy.group)
    copies = 1 if kind == "parallel" else 2
    out.until_count(4 * copies)
    (struck,) = [worker for worker in workers if stage.assigned_to(worker.name) == [0]]
    if outage == "refusing":
        assert ExitCode.BROKER == struck.exit_status()
        struck.says("5 transactions were aborted in a row")
    else:
        stage.until_begun(b"poison:v0")
    assert {value for _, value in good[4:]} == {row.value[-len(b"v:v0") :] for row in out.rows}
    assert committed_so_far(admin, stage.toy.group, topic) <= 0
    if outage == "missing":
        admin.create_topics([NewTopic(dlq, 2, 1)])[dlq].result(REACH_S)
    else:
        refuse(admin, dlq, largest_bytes=DEFAULT_TOPIC_BYTES)
        struck.start()
    letters = reader(dlq)
    letters.until_count(2)
    until(lambda: {0: 0, 1: 0} == group.lag(topic, 2), "no lag")
    assert [b"v0", b"v1"] == sorted(row.value.partition(b":")[2] for row in letters.read_to_end())
    handled = [row.value.rpartition(b":")[2] for row in out.read_to_end() if not row.value.startswith(b"beside:")]
    assert sorted(value.rpartition(b":")[2] for _, value in good for _ in range(copies)) == sorted(handled)


@pytest.mark.parametrize("kind", KINDS)
def test_kaf_18_killed_between_dead_letter_and_commit_there_is_one_dead_letter(
    stage_factory, reader, offsets, broker, kind
):
    """KAF-18: a dead letter of a transaction that nobody committed is never read."""
    stage = stage_factory(kind, partitions=1, timer_s=0.0)
    topic = stage.toy.inputs[0]
    rows = [(b"k%d" % number, b"%s:v%d" % (b"v" if number % 5 else b"poison", number)) for number in range(10)]
    stage.hold("before_commit", "a")
    produce(broker.bootstrap, topic, rows)
    worker = stage.worker().start()
    stage.stands_at("before_commit", "a")
    everything = reader(f"{topic}-dlq", "read_uncommitted")
    everything.until(lambda letters: letters, "a dead letter that is not committed")
    assert [] == reader(f"{topic}-dlq").read(0.5)
    worker.kill()
    stage.release("before_commit", "a")
    worker.start()
    group = offsets(stage.toy.group)
    until(lambda: {0: 0} == group.lag(topic, 1), "no lag")
    letters = reader(f"{topic}-dlq").read_to_end()
    assert [b"poison:v0", b"poison:v5"] == sorted(row.value for row in letters)
    assert len(letters) < len(everything.read_to_end())
    out = [row.value for row in reader(stage.toy.out).read_to_end() if row.value.startswith((b"v:", b"first:"))]
    assert 8 == len(out)


@pytest.mark.parametrize("kind", KINDS)
def test_kaf_18_a_dead_letter_over_the_limit_is_cut_and_never_dropped(stage_factory, reader, offsets, broker, kind):
    """KAF-18: the headers say what it was and how much of it is missing."""
    stage = stage_factory(kind, partitions=1, timer_s=0.0)
    topic = stage.toy.inputs[0]
    whole = b"poison:" + b"x" * 1_048_300  # its topic takes it; with the headers of a dead letter it is too large
    good = [(b"k%d" % number, b"v:v%d" % number) for number in range(8)]
    stage.worker().start()
    stage.assigned_to("a")
    produce(broker.bootstrap, topic, good[:4])
    sender = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2 * len(whole)})
    sender.produce(topic, whole, b"large")
    assert 0 == sender.flush(REACH_S)
    produce(broker.bootstrap, topic, [(b"small", b"poison:v"), *good[4:]])
    group = offsets(stage.toy.group)
    until(lambda: {0: 10} == group.committed(topic, 1), "everything committed", STALL_S)
    letters = {row.key: row for row in reader(f"{topic}-dlq").read_to_end()}
    assert {b"large", b"small"} == letters.keys()
    assert "dlq-cut" not in letters[b"small"].headers
    missing = int(letters[b"large"].headers["dlq-cut"])
    assert missing > 0
    assert whole[:-missing] == letters[b"large"].value
    assert (b"invalid_task", b"4") == tuple(
        letters[b"large"].headers[name] for name in ("dlq-reason", "dlq-origin-offset")
    )
    out = [row.value for row in reader(stage.toy.out).read_to_end() if row.value.startswith((b"v:", b"first:"))]
    assert 8 == len(out)


@pytest.mark.parametrize("kind", KINDS)
def test_kaf_18_a_dead_letter_of_thousands_of_headers_fits(stage_factory, reader, offsets, broker, kind):
    """KAF-18: each header costs its lengths too; the letter takes those that have room, and says how many had none."""
    stage = stage_factory(kind, partitions=1, timer_s=0.0)
    topic = stage.toy.inputs[0]
    value = b"poison:" + bytes(1_200_000)  # packed, it is small enough for its topic; its letter is cut to the limit
    stage.worker().start()
    stage.assigned_to("a")
    sender = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2 * len(value), "compression.type": "gzip"}
    )
    sender.produce(topic, value, b"k", headers=[("h", b"") for _ in range(7_800)])
    assert 0 == sender.flush(REACH_S)
    produce(broker.bootstrap, topic, [(b"good", b"v:v")])
    group = offsets(stage.toy.group)
    until(lambda: {0: 2} == group.committed(topic, 1), "everything committed", STALL_S)
    (letter,) = reader(f"{topic}-dlq").read_to_end()
    assert value[: -int(letter.headers["dlq-cut"])] == letter.value
    assert int(letter.headers["dlq-headers-left-out"]) > 5_000
