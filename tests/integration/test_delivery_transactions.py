"""Producer and stable offsets of the core on a real broker, without a worker around them."""

from __future__ import annotations

import threading
import uuid

import pytest
from confluent_kafka import TopicPartition
from faust.types import TP

from pipeline.delivery.api import Output
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap, encode
from pipeline.delivery.stable_offsets import StableOffsets
from pipeline.delivery.transactions import ReplacedError, TransactionalProducer, Verdict, Work
from pipeline.errors import BrokerError
from tests.chaos.ledger import produce, transaction

JOIN_S = 20.0
NOBODY = -1, ""


@pytest.fixture
def options(broker):
    """Of every client."""
    return {"bootstrap.servers": broker.bootstrap, "log_level": "2"}


@pytest.fixture
def make_producer(options):
    """Open producers by their transactional id."""

    def make(transactional_id):
        made = TransactionalProducer(options, transactional_id, 6.0, "none")
        made.open()
        return made

    return make


def work(out, *values, identity, positions=None):
    """Outputs and nothing else, or with offsets."""
    return Work([Output(out, value, b"k") for value in values], {}, positions or {}, identity)


def test_a_member_that_is_not_in_the_group_publishes_nothing(make_producer, topic_factory, reader, offsets):
    """The broker checks who sends offsets; outputs of one whom it refuses stay invisible, and so do the offsets."""
    topic, out, group = topic_factory(), topic_factory(), uuid.uuid4().hex
    producer = make_producer(group)
    stranger = Identity(group, 3, "stranger")
    verdict, _ = producer.run(work(out, b"v", identity=stranger, positions={TP(topic, 0): OffsetMap(1, 1)}))
    assert Verdict.FENCED is verdict
    assert [] == reader(out).read_to_end()
    assert {} == offsets(group).committed(topic, 1)


def test_what_the_topic_refuses_is_undone_and_the_producer_goes_on(make_producer, topic_factory, reader):
    """All of the transaction is undone; the next one is in order."""
    out, small = topic_factory(), topic_factory(max_message_bytes=1_000)
    producer, identity = make_producer(uuid.uuid4().hex), Identity("none", 1, "m")
    refused = Work([Output(out, b"first"), Output(small, bytes(5_000))], {}, {}, identity)
    assert Verdict.ABORTED is producer.run(refused)[0]
    assert Verdict.COMMITTED is producer.run(work(out, b"second", identity=identity))[0]
    assert [b"second"] == [row.value for row in reader(out).read_to_end()]


def test_the_store_learns_the_changelog_position_behind_its_changes(make_producer, topic_factory, reader):
    """Per partition, whatever stands there already: the store may lag its changelog, never lead it."""
    log = topic_factory(partitions=2)
    producer = make_producer(uuid.uuid4().hex)
    changes = {0: [(log, b"sa", b"1"), (log, b"sb", None)], 1: [(log, b"sc", b"3")]}
    identity = Identity("none", 1, "m")
    _, first = producer.run(Work([], changes, {}, identity))
    _, second = producer.run(Work([], {1: [(log, b"sd", b"4")]}, {}, identity))
    rows = {(row.partition, row.offset): row.key for row in reader(log).read_to_end()}
    assert {0: 2, 1: 1} == first
    assert b"sd" == rows[1, second[1] - 1]


def test_a_second_producer_of_the_same_id_fences_the_first(make_producer, topic_factory, reader):
    """Even in the middle of its life; it hears of it at its next transaction."""
    out, name = topic_factory(), uuid.uuid4().hex
    identity = Identity("none", 1, "m")
    older = make_producer(name)
    assert Verdict.COMMITTED is older.run(work(out, b"older", identity=identity))[0]
    younger = make_producer(name)
    with pytest.raises(ReplacedError, match=name):
        older.run(work(out, b"zombie", identity=identity))
    assert Verdict.COMMITTED is younger.run(work(out, b"younger", identity=identity))[0]
    assert [b"older", b"younger"] == [row.value for row in reader(out).read_to_end()]


# ---- stable offsets


def commit(broker, group, topic, offset_map, partition=0):
    """Commit a map in a transaction of somebody outside the group, which has no members."""
    with transaction(broker.bootstrap, f"{group}-setup") as producer:
        send(producer, group, topic, offset_map, partition)
        producer.commit_transaction(10)


def send(producer, group, topic, offset_map, partition=0):
    """Add a map to an open transaction."""
    metadata = encode(offset_map, topic, partition)
    position = TopicPartition(topic, partition, offset_map.base, metadata=metadata)
    producer.send_offsets_to_transaction([position], bytes(Identity(group, *NOBODY)), 10)


def test_a_partition_starts_where_its_group_stands(broker, options, topic_factory):
    """The committed offset with its map; what lies before the end was there before the assignment."""
    topic, group = topic_factory(partitions=2), uuid.uuid4().hex
    produce(broker.bootstrap, topic, [(b"k", b"%d" % number) for number in range(10)], 0)
    offset_map = OffsetMap(2, 9, (2, 5))
    commit(broker, group, topic, offset_map)
    starts = StableOffsets(options, group).starts([TP(topic, 0), TP(topic, 1)], lambda: True, JOIN_S)
    assert {TP(topic, 0): (offset_map, 10), TP(topic, 1): (OffsetMap(0, 0), 0)} == starts


def test_a_partition_without_a_commit_starts_at_what_retention_has_left(broker, admin, options, topic_factory):
    """Offset 0 may be gone; the consumer's own idea of a beginning does not wait for open transactions."""
    topic = topic_factory()
    produce(broker.bootstrap, topic, [(b"k", b"%d" % number) for number in range(10)])
    for done in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        done.result(10)
    starts = StableOffsets(options, uuid.uuid4().hex).starts([TP(topic, 0)], lambda: True, JOIN_S)
    assert {TP(topic, 0): (OffsetMap(4, 4), 10)} == starts


@pytest.mark.parametrize("ending", ["commit_transaction", "abort_transaction"])
def test_open_offsets_are_waited_for(broker, options, topic_factory, ending):
    """'No offset' while a transaction is open must not be read as 'from the beginning'."""
    topic, group = topic_factory(), uuid.uuid4().hex
    produce(broker.bootstrap, topic, [(b"k", b"%d" % number) for number in range(10)])
    commit(broker, group, topic, OffsetMap(3, 3))
    answers = []
    asked = threading.Event()

    def wanted():
        asked.set()
        return True

    reading = threading.Thread(
        target=lambda: answers.append(StableOffsets(options, group).starts([TP(topic, 0)], wanted, JOIN_S))
    )
    with transaction(broker.bootstrap, f"{group}-open") as producer:
        send(producer, group, topic, OffsetMap(7, 7))
        reading.start()
        assert asked.wait(JOIN_S)
        reading.join(0.3)
        assert reading.is_alive()
        getattr(producer, ending)(10)
    reading.join(JOIN_S)
    (starts,) = answers
    assert (7 if ending == "commit_transaction" else 3) == starts[TP(topic, 0)].offset_map.base


def test_reading_ends_when_nobody_wants_the_answer(broker, options, topic_factory):
    """The partitions were called back meanwhile."""
    topic, group = topic_factory(), uuid.uuid4().hex
    produce(broker.bootstrap, topic, [(b"k", b"v")])
    assert None is StableOffsets(options, group).starts([TP(topic, 0)], lambda: False, JOIN_S)


def test_a_topic_that_ends_before_the_committed_offset_ends_the_worker(broker, options, topic_factory):
    """Its next records would be taken for done."""
    topic, group = topic_factory(), uuid.uuid4().hex
    commit(broker, group, topic, OffsetMap(5, 5))
    with pytest.raises(BrokerError, match=f"{topic}/0 ends at 0"):
        StableOffsets(options, group).starts([TP(topic, 0)], lambda: True, JOIN_S)


def test_the_whole_group_is_looked_at_before_the_first_commit(broker, options, topic_factory):
    """One partition that stays unstable is named; when it has ended, work may begin."""
    topic, group = topic_factory(partitions=3), uuid.uuid4().hex
    reader = StableOffsets(options, group)
    reader.wait_for_group([topic], 3, 5.0)
    with transaction(broker.bootstrap, f"{group}-open") as producer:
        send(producer, group, topic, OffsetMap(0, 0), partition=1)
        with pytest.raises(BrokerError, match=rf"offsets of {topic}/1 stay unstable"):
            reader.wait_for_group([topic], 3, 0.5)
    reader.wait_for_group([topic], 3, 20.0)
