from __future__ import annotations

from typing import ClassVar

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.delivery.transactions import ReplacedError, Verdict
from pipeline.errors import BrokerError
from pipeline.ops import task_writer
from pipeline.ops.task_writer import TaskWriter
from pipeline.tasks.model import Limits, WrittenTask
from pipeline.tasks.records import Defaults, wish_of
from pipeline.topics import TASKS, TASKS_URGENT

CODECS = load_codec()


class Producer:
    """Ends each transaction as it is told: a verdict, or an error."""

    made: ClassVar[list[Producer]] = []

    def __init__(self, options, transactional_id, timeout_s, compression):
        self.endings = [Verdict.COMMITTED]
        self.opened = 0
        self.trouble = "a record is too large"
        self.works = []
        Producer.made.append(self)

    def open(self):
        self.opened += 1

    def run(self, work):
        self.works.append(work)
        ending = self.endings.pop(0) if self.endings else Verdict.COMMITTED
        if isinstance(ending, Exception):
            raise ending
        return ending, {}


@pytest.fixture
def writer(monkeypatch):
    """A writer over producers that a test orders about."""
    monkeypatch.setattr(Producer, "made", [])
    monkeypatch.setattr(task_writer, "TransactionalProducer", Producer)
    made = TaskWriter({}, CODECS, "headrace-x", 10.0, now=lambda: 5.25)
    made.open()
    return made


def wish(url="http://www.a.test/", **fields):
    """A task."""
    return wish_of(WrittenTask(url=url, **fields), Defaults("c", "s"), Limits())


def test_all_tasks_of_a_call_are_one_transaction(writer):
    """A batch that is there by half would have to be searched for what is missing."""
    writer.write([wish(), wish("http://b.test/", priority=1)])
    [producer] = Producer.made
    [work] = producer.works
    assert [(TASKS.name, b"a.test"), (TASKS_URGENT.name, b"b.test")] == [(out.topic, out.key) for out in work.outputs]
    record = CODECS.decode(TASKS.subject, work.outputs[0].value)
    assert ("http://www.a.test/", "c", "s", 5_250) == tuple(
        record[name] for name in ("url", "crawl", "source", "submitted_at_ms")
    )
    assert work.alone
    assert not work.positions


def test_what_was_aborted_is_tried_again_by_another_producer(writer):
    """A leader that moves aborts a transaction; the producer that met it may still be about to get another epoch."""
    Producer.made[0].endings = [Verdict.ABORTED]
    writer.write([wish()])
    assert [1, 1] == [len(producer.works) for producer in Producer.made]


def test_what_is_aborted_again_is_told(writer, monkeypatch):
    """Its sender must not believe that it is there."""
    monkeypatch.setattr(Producer, "run", lambda self, work: (Verdict.ABORTED, {}))
    with pytest.raises(BrokerError, match="2 transactions, nothing was written: a record is too large"):
        writer.write([wish()])


def test_after_an_unknown_end_another_producer_is_opened(writer):
    """It ends what the first may have left open, before which nobody reads on."""
    Producer.made[0].endings = [BrokerError("no answer")]
    with pytest.raises(BrokerError, match="no answer"):
        writer.write([wish()])
    writer.write([wish()])
    assert [1, 1] == [producer.opened for producer in Producer.made]
    assert [1, 1] == [len(producer.works) for producer in Producer.made]


def test_who_was_replaced_does_not_come_back(writer):
    """Two of one name would end each other's transactions for ever."""
    Producer.made[0].endings = [ReplacedError("fenced"), ReplacedError("fenced")]
    for _ in range(2):
        with pytest.raises(ReplacedError):
            writer.write([wish()])
    assert 1 == len(Producer.made)
