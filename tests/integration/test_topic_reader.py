"""The checker's reader against a real broker: it sees what every reader of the output sees."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer

from pipeline.errors import BrokerError
from pipeline.local.topic_reader import read_all


@pytest.fixture
def transactional(broker):
    """Makes transactional producers, each with an id of its own."""
    count = iter(range(100))

    def make(topic):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-{next(count)}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        return producer

    return make


def values(records):
    """The values alone, in order."""
    return [record.value for record in records]


def test_committed_records_are_read_and_aborted_ones_are_not(broker, topic_factory, transactional):
    """The last records of a partition are a marker's and an aborted transaction's: the reader must still end."""
    topic = topic_factory(partitions=3)
    for number, ends in enumerate(
        ("commit_transaction", "abort_transaction", "commit_transaction", "abort_transaction")
    ):
        producer = transactional(topic)
        for partition in range(2):
            producer.produce(topic, b"%d" % number, b"key", partition=partition, headers=[("h", b"1")], timestamp=77)
        getattr(producer, ends)(30)
    records = read_all(broker.bootstrap, topic, timeout_s=30)
    assert [b"0", b"2", b"0", b"2"] == values(records)
    assert [0, 0, 1, 1] == [record.partition for record in records]
    assert (topic, 77, b"key", [("h", b"1")]) == (
        records[0].topic,
        records[0].timestamp,
        records[0].key,
        records[0].headers,
    )


def test_an_open_transaction_is_waited_for(broker, topic_factory, transactional):
    """Up to the high watermark: the last stable offset would hide what is just being committed."""
    topic = topic_factory()
    producer = transactional(topic)
    producer.produce(topic, b"late")
    producer.flush(30)
    commit = threading.Timer(0.3, producer.commit_transaction)
    commit.start()
    try:
        assert [b"late"] == values(read_all(broker.bootstrap, topic, timeout_s=30))
    finally:
        commit.join()


def test_a_transaction_that_stays_open_is_an_error_and_no_short_count(broker, topic_factory, transactional):
    """Documents that can't be seen yet must not be called missing."""
    topic = topic_factory()
    producer = transactional(topic)
    producer.produce(topic, b"never")
    producer.flush(30)
    with pytest.raises(BrokerError, match="open transaction"):
        read_all(broker.bootstrap, topic, timeout_s=0.5)
    producer.abort_transaction(30)
    assert [] == read_all(broker.bootstrap, topic, timeout_s=30)


def test_an_empty_topic_gives_nothing_and_a_missing_one_an_error(broker, topic_factory):
    """A misspelt topic must not pass for one without faults."""
    assert [] == read_all(broker.bootstrap, topic_factory(partitions=2))
    with pytest.raises(BrokerError, match="test-none"):
        read_all(broker.bootstrap, "test-none")
