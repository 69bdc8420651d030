"""Acceptance case KAF-16: one key, one partition, whoever writes it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import topics
from pipeline.contracts import load_codec
from pipeline.delivery.api import Output
from pipeline.delivery.identity import Identity
from pipeline.delivery.transactions import TransactionalProducer, Verdict, Work
from pipeline.ops import submission
from pipeline.tasks import records
from pipeline.web.partition import partition_for
from tests.frontier_world import CODECS, Bench, make_stage, make_task

KEYS = [b"TT0731", b"news.example.com", b"a.example", b"www.example.org"]
EXPECTED = [2, 0, 2, 11]
"""By murmur2; CRC32, librdkafka's own default, would say 7, 1, 0, 9."""
PARTITIONS = 12
SOURCES = sorted(path for room in ("pipeline", "agents") for path in (Path(__file__).parents[2] / room).rglob("*.py"))


def test_kaf_16_keys_go_where_murmur2_puts_them():
    """Politeness and state rest on one owner of a host."""
    assert EXPECTED == [partition_for(key, PARTITIONS) for key in KEYS]


def test_kaf_16_a_workers_producer_agrees(broker, topic_factory, reader):
    """Outputs, redirects, retries and replays of dead letters all go out by it."""
    topic = topic_factory(partitions=PARTITIONS)
    producer = TransactionalProducer({"bootstrap.servers": broker.bootstrap}, topic, 10.0, "none")
    producer.open()
    work = Work([Output(topic, b"v", key) for key in KEYS], {}, {}, Identity(topic, 1, "member"))
    assert Verdict.COMMITTED is producer.run(work)[0]
    placed = {row.key: row.partition for row in reader(topic).read_to_end()}
    assert dict(zip(KEYS, EXPECTED, strict=True)) == placed


def test_kaf_16_the_seeders_producer_agrees(broker, topic_factory, reader, monkeypatch):
    """A task that comes in lies where its domain's frontier reads; an IP address is its own domain."""
    topic = topic_factory(partitions=PARTITIONS)
    monkeypatch.setattr(records, "TASKS", replace(topics.TASKS, name=topic))
    hosts = ["news.example.com", "a.example", "www.example.org", "192.0.2.7", *(f"h{n}.example" for n in range(40))]
    sender = submission.Submission({"bootstrap.servers": broker.bootstrap}, load_codec())
    sender.submit([f"http://{host}/" for host in hosts], "c", 3, 0.0)
    sender.flush()
    rows = reader(topic).read_to_end()
    assert len(hosts) == len(rows)
    assert [partition_for(row.key, PARTITIONS) for row in rows] == [row.partition for row in rows]
    assert {b"example.com", b"a.example", b"example.org", b"192.0.2.7"} <= {row.key for row in rows}


def producers_of(source: str) -> list[ast.Call]:
    """Calls that make a plain producer, where the module also writes records without naming their partition."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    by_key = any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "produce"
        and not any(keyword.arg == "partition" for keyword in call.keywords)
        for call in calls
    )
    return [call for call in calls if by_key and isinstance(call.func, ast.Name) and call.func.id == "Producer"]


def test_kaf_16_no_producer_places_keys_in_another_way():
    """The next one that is written, too: the default of its library is another."""
    found = {}
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        assert "AIOKafkaProducer" not in source
        for call in producers_of(source):
            found[path.name] = '"partitioner": "murmur2_random"' in (ast.get_source_segment(source, call) or "")
    assert {"submission.py": True, "transactions.py": True} == found


@pytest.mark.parametrize("key", [b"", None])
def test_kaf_16_a_record_without_a_key_is_refused(key):
    """Where the owner of a host matters there must be a host."""
    with pytest.raises(ValueError, match="without a key"):
        partition_for(key, PARTITIONS)


@pytest.mark.parametrize("key", [b"", None])
def test_kaf_16_a_task_without_a_key_is_not_handled_where_it_lies(key):
    """A sender that names no key puts it anywhere: only the owner of its domain may keep it, so it is sent there."""
    owner = partition_for(b"a.example", 4)
    stranger = Bench(make_stage(partitions=4), partition=(owner + 1) % 4)
    value = CODECS.encode(topics.TASKS.subject, make_task("http://www.a.example/"))
    (output,) = stranger.send(topics.TASKS, value, key=key)
    assert (topics.TASKS.name, value, b"a.example", owner) == output[:4]
    assert [] == stranger.urls()
