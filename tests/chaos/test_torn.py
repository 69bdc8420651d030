from __future__ import annotations

import random

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.delivery.exits import ExitCode
from pipeline.local.kafka import LocalBroker
from tests.chaos.ledger import Offsets, Reader, produce
from tests.chaos.process import Stage, until
from tests.chaos.torn import cut, last_segment, tear
from tests.chaos.toy import Toy

REACH_S = 10.0
NAMES = ("in", "in-dlq", "out")


@pytest.fixture
def own_broker(tmp_path):
    """A broker that may be killed, with the topics of a toy of one partition."""
    with LocalBroker(tmp_path / "kafka") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_topics([NewTopic(name, 1, 1) for name in NAMES]).values():
            done.result(REACH_S)
        yield broker


@pytest.fixture
def toy_stage(own_broker, tmp_path):
    """A parallel toy on it."""
    directory = tmp_path / "toy"
    toy = Toy("group", ["in"], "out", str(directory / "journal"), str(directory / "gates"))
    stage = Stage("parallel", toy, own_broker.bootstrap, directory, 1)
    yield stage
    stage.end()


def values(first, count):
    """Keys and values that are all different."""
    return [(b"k%d" % number, b"v:%d" % number) for number in range(first, first + count)]


@pytest.mark.chaos
def test_what_was_never_acknowledged_is_thrown_away_and_nothing_else(own_broker, toy_stage):
    """A broker that was cut off while it wrote: each tail ends in garbage, and everything goes on after it."""
    produce(own_broker.bootstrap, "in", values(0, 100))
    worker = toy_stage.worker().start()
    reader = Reader(own_broker.bootstrap, "out")
    reader.until_count(100)
    own_broker.kill()
    torn = tear(own_broker.directory / "data", random.Random(1), share=1.0)
    assert {"in-0", "out-0"} < set(torn)
    own_broker.start()
    produce(own_broker.bootstrap, "in", values(100, 100))

    def all_there():
        if not worker.running:  # its client's call for offsets may not survive the restart of the coordinator
            assert ExitCode.BROKER == worker.exit_status()
            worker.start()
        return len(reader.read()) >= 200

    until(all_there, "all outputs")
    assert dict.fromkeys([value for _, value in values(0, 200)], 1) == dict(reader.values)
    reader.close()


@pytest.mark.broker
def test_a_committed_offset_beyond_the_end_is_refused_not_skipped(own_broker, toy_stage):
    """Acknowledged records are lost with their only replica: what comes next must not be taken for them."""
    for first in range(0, 100, 10):
        produce(own_broker.bootstrap, "in", values(first, 10))  # a batch each
    worker = toy_stage.worker().start()
    reader = Reader(own_broker.bootstrap, "out")
    reader.until_count(100)
    offsets = Offsets(own_broker.bootstrap, "group")
    until(lambda: {0: 100} == offsets.committed("in", 1), "everything committed")
    worker.kill()
    own_broker.kill()
    end = cut(last_segment(own_broker.directory / "data", "in", 0), batches=3)
    own_broker.start()
    produce(own_broker.bootstrap, "in", values(200, 10))
    worker.start()
    assert ExitCode.BROKER == worker.exit_status()
    worker.says(f"in/0 ends at {end + 10}, before the committed offset 100: it was truncated or made anew")
    offsets.close()

    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})

    def reset():  # refused for as long as the group believes that its member is there
        wanted = ConsumerGroupTopicPartitions("group", [TopicPartition("in", 0, end)])
        (done,) = admin.alter_consumer_group_offsets([wanted]).values()
        return not any(partition.error for partition in done.result(REACH_S).topic_partitions)

    until(reset, "the offsets of a group without members")
    worker.start()
    reader.until_count(110)
    assert dict.fromkeys([value for _, value in values(0, 100) + values(200, 10)], 1) == dict(reader.values)
    reader.close()
