"""A small compacted topic that a worker holds whole."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Producer

from pipeline.delivery.global_table import GlobalTable
from pipeline.errors import InputError
from tests.chaos.process import until

PARTITIONS = 3
LIMIT_S = 10.0


def decode(value):
    """Read rows of this test: text; anything that begins with an exclamation mark is refused."""
    if value.startswith(b"!"):
        raise InputError("undecodable", "begins with an exclamation mark")
    return {"text": value.decode()}


@pytest.fixture
def topic(topic_factory):
    """A compacted topic."""
    return topic_factory(partitions=PARTITIONS, cleanup_policy="compact")


@pytest.fixture
def write(broker, topic):
    """Write rows: `write((b"key", b"value"), …)`."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})

    def rows(*pairs):
        for key, value in pairs:
            producer.produce(topic, value, key)
        assert 0 == producer.flush(LIMIT_S)

    return rows


@pytest.fixture
def table(broker, topic):
    """The table, not started; ended after the test."""
    made = GlobalTable({"bootstrap.servers": broker.bootstrap}, topic, PARTITIONS, decode)
    yield made
    if made._thread.is_alive():
        made.stop()


def test_it_knows_everything_that_was_written_before_its_start(table, write):
    """A worker that began with half the definitions would hold tasks that could go."""
    write(*((b"k%d" % n, b"v%d" % n) for n in range(50)))
    assert None is table.get("k0")
    table.start()
    assert table.wait(LIMIT_S)
    assert {f"k{n}": {"text": f"v{n}"} for n in range(50)} == table.rows()


def test_an_empty_topic_is_read_whole_at_once(table):
    """The first crawl of a new cluster must not wait for another."""
    table.start()
    assert table.wait(LIMIT_S)
    assert {} == table.rows()


def test_it_follows_changes_and_deletions(table, write):
    """The newest row of a key counts; a value of nothing ends it."""
    write((b"a", b"1"), (b"b", b"1"))
    table.start()
    assert table.wait(LIMIT_S)
    write((b"a", b"2"), (b"b", None), (b"c", b"1"))
    expected = {"a": {"text": "2"}, "c": {"text": "1"}}
    until(lambda: expected == table.rows(), "the changes", LIMIT_S)
    assert None is table.get("b")


def test_a_row_that_cannot_be_read_is_said_and_harms_no_other(table, write, caplog):
    """A stranger's bytes in the topic must not blind every worker."""
    write((b"bad", b"!"), (b"good", b"1"), (b"\xff", b"2"))
    with caplog.at_level(logging.WARNING):
        table.start()
        assert table.wait(LIMIT_S)
        until(lambda: "key bad: begins with an exclamation mark" in caplog.text, "the warning", LIMIT_S)
    assert {"text": "1"} == table.get("good")
    assert None is table.get("bad")


def test_an_uncommitted_row_does_not_count(table, write, broker, topic):
    """A definition of a transaction that is undone was never made."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "retry.backoff.ms": 10})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"undone", b"a")
    producer.flush(LIMIT_S)
    producer.abort_transaction(LIMIT_S)
    write((b"b", b"1"))
    table.start()
    assert table.wait(LIMIT_S)
    until(lambda: table.get("b"), "the row that counts", LIMIT_S)
    assert None is table.get("a")


def test_it_does_not_pretend_to_have_read_what_it_could_not(topic):
    """Without a broker there is nothing to rely on."""
    alone = GlobalTable({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, topic, PARTITIONS, decode)
    alone.start()
    assert not alone.wait(0.5)
    alone.stop()
