from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from faust.types import TP

from pipeline.delivery import exits
from pipeline.delivery import transactions as module
from pipeline.delivery.api import Output
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap, encode
from pipeline.delivery.transactions import ReplacedError, TransactionalProducer, Verdict, Work
from pipeline.errors import BrokerError, BugError

IDENTITY = Identity("group", 3, "member", "instance")
WORK = Work(
    outputs=[Output("out", b"1", b"a"), Output("out", b"2", None, 5, (("h", b"v"),))],
    changes={4: [("log", b"sk", b"v"), ("log", b"sl", None)]},
    positions={TP("in", 4): OffsetMap(7, 9, (7,))},
    identity=IDENTITY,
)
WHOLE = ["begin", "produce", "produce", "produce", "produce", "offsets", "commit"]


def error(name, **flags):
    """The exception that confluent-kafka raises."""
    return KafkaException(KafkaError(getattr(KafkaError, name), name, **flags))


RETRIABLE = error("_TIMED_OUT", retriable=True)
ABORTABLE = error("_INCONSISTENT", txn_requires_abort=True)


class ScriptedProducer:
    """Notes the calls; each call raises the next error that is planned for it, None for none."""

    def __init__(self, options):
        self.options = options
        self.calls = []
        self.plan = {}
        self.reports = []
        self.loses_reports = False
        self.refused = {}

    def _note(self, name):
        self.calls.append(name)
        planned = self.plan.get(name, [])
        if planned and (problem := planned.pop(0)) is not None:
            raise problem

    def init_transactions(self, timeout_s):
        self._note("init")

    def begin_transaction(self):
        self._note("begin")

    def produce(self, *args, headers=None):
        self._note("produce")
        if args[4:] and args[4] is not None:
            self.reports.append((args[4], args[3], self.refused.get(args[0])))

    def send_offsets_to_transaction(self, positions, identity, timeout_s):
        self.sent = positions, identity
        self._note("offsets")

    def commit_transaction(self, timeout_s):
        self._note("commit")

    def abort_transaction(self, timeout_s):
        self._note("abort")

    def poll(self, timeout_s):
        for report, partition, refusal in self.reports if not self.loses_reports else []:
            report(refusal, SimpleNamespace(partition=lambda number=partition: number, offset=lambda: 41))
        self.reports = []


@pytest.fixture
def producer(monkeypatch):
    """A producer of ours over a scripted one: `.script` is that."""
    monkeypatch.setattr(module, "Producer", ScriptedProducer)
    made = TransactionalProducer({}, "stage-0", 6.0, "zstd")
    made.script = made._producer
    return made


def test_a_transaction_has_one_order(producer):
    """Outputs, changes, offsets, commit: offsets that were sent alone would be completed by another transaction."""
    verdict, high = producer.run(WORK)
    assert (Verdict.COMMITTED, {4: 42}) == (verdict, high)
    assert WHOLE == producer.script.calls
    (position,), identity = producer.script.sent
    expected = ("in", 4, 7, encode(WORK.positions["in", 4], "in", 4))
    assert expected == (position.topic, position.partition, position.offset, position.metadata)
    assert bytes(IDENTITY) == identity


def test_partitions_are_chosen_as_java_chooses_them(producer):
    """Every topic is co-partitioned by murmur2; librdkafka's default is another hash."""
    assert "murmur2_random" == producer.script.options["partitioner"]


ORIGIN = (("dlq-origin-topic", b"in"), ("dlq-origin-partition", b"4"), ("dlq-origin-offset", b"7"))


def test_a_record_that_is_refused_is_named_at_the_second_try(producer):
    """The commit says only that some delivery failed, and one record stops all partitions of the worker."""
    letter = Output("in-dlq", b"v" * 1_000, b"key", 4, ORIGIN)
    work = WORK._replace(outputs=[*WORK.outputs, letter])
    producer.script.refused = {
        "in-dlq": KafkaError(KafkaError.MSG_SIZE_TOO_LARGE),
        "out": KafkaError(KafkaError._PURGE_QUEUE),
    }
    producer.script.plan["commit"] = [ABORTABLE, ABORTABLE]
    assert Verdict.ABORTED is producer.run(work)[0]
    assert "_INCONSISTENT" in producer.trouble
    assert Verdict.ABORTED is producer.run(work)[0]
    assert "in-dlq/4 refuses the dead letter of in/4/7, " in producer.trouble
    assert "MSG_SIZE_TOO_LARGE" in producer.trouble
    producer.script.refused = {}
    assert Verdict.COMMITTED is producer.run(work)[0]
    assert "" == producer.trouble


def test_a_record_that_is_refused_at_once_is_named_at_once(producer):
    """As where its topic is not there."""
    producer.script.plan["produce"] = [error("UNKNOWN_TOPIC_OR_PART")]
    assert Verdict.ABORTED is producer.run(WORK)[0]
    assert "out/-1 refuses a record, " in producer.trouble
    assert "b'a'" in producer.trouble


def test_a_commit_that_may_be_repeated_is_repeated(producer):
    """Begin or abort in its place would leave the outcome unknown."""
    producer.script.plan["commit"] = [RETRIABLE, RETRIABLE]
    assert Verdict.COMMITTED is producer.run(WORK)[0]
    assert [*WHOLE, "commit", "commit"] == producer.script.calls


def test_an_abort_that_may_be_repeated_is_repeated(producer):
    """A transaction is not left open while the next one begins."""
    producer.script.plan = {"offsets": [ABORTABLE], "abort": [RETRIABLE]}
    assert (Verdict.ABORTED, {}) == producer.run(WORK)
    assert ["offsets", "abort", "abort"] == producer.script.calls[-3:]


@pytest.mark.parametrize("call", ["begin", "produce", "offsets", "commit"])
def test_an_error_of_the_transaction_aborts_it(producer, call):
    """Whatever call tells of it; the same work may be tried again."""
    producer.script.plan[call] = [ABORTABLE]
    assert (Verdict.ABORTED, {}) == producer.run(WORK)
    assert "abort" == producer.script.calls[-1]


@pytest.mark.parametrize("name", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_a_member_that_lost_its_partitions_is_told_so(producer, name):
    """Its work is left to the new owner, not tried again."""
    producer.script.plan["offsets"] = [error(name, txn_requires_abort=True)]
    assert (Verdict.FENCED, {}) == producer.run(WORK)
    assert "abort" == producer.script.calls[-1]


def test_a_replaced_static_member_ends(producer):
    """Another process has its name; the open transaction is cleared away first."""
    producer.script.plan["offsets"] = [error("FENCED_INSTANCE_ID", txn_requires_abort=True)]
    with pytest.raises(ReplacedError, match="same name"):
        producer.run(WORK)
    assert "abort" == producer.script.calls[-1]


@pytest.mark.parametrize("call", ["begin", "offsets", "commit", "abort"])
@pytest.mark.parametrize("name", ["_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_fenced_producer_ends(producer, call, name):
    """At whichever call it hears of it; nothing may be tried again."""
    producer.script.plan = {"offsets": [ABORTABLE]} if call == "abort" else {}
    producer.script.plan[call] = [error(name, fatal=True)]
    with pytest.raises(ReplacedError, match="same name"):
        producer.run(WORK)


@pytest.mark.parametrize("call", ["begin", "offsets", "commit"])
def test_after_a_fatal_error_nothing_is_tried_again(producer, call):
    """The outcome is unknown; a restart reads the truth from the committed offsets."""
    producer.script.plan[call] = [error("INVALID_TXN_STATE", fatal=True)]
    with pytest.raises(BrokerError, match="stage-0"):
        producer.run(WORK)
    assert call == producer.script.calls[-1]


def test_an_abort_that_fails_ends_the_worker(producer):
    """Nobody knows what is open then; the message has both errors."""
    producer.script.plan = {"commit": [ABORTABLE], "abort": [error("_STATE")]}
    with pytest.raises(BrokerError, match=r"_INCONSISTENT.*_STATE"):
        producer.run(WORK)


def test_a_commit_is_not_repeated_for_ever(producer, monkeypatch):
    """The supervisor shall see the outage."""
    monkeypatch.setattr(module, "RETRY_LIMIT_S", -1.0)
    producer.script.plan["commit"] = [RETRIABLE] * 3
    with pytest.raises(BrokerError, match="_TIMED_OUT"):
        producer.run(WORK)


def test_a_full_local_queue_is_waited_for(producer):
    """It drains by itself; the record is not lost and not written twice."""
    producer.script.plan["produce"] = [None, BufferError(), None]
    assert Verdict.COMMITTED is producer.run(WORK)[0]
    assert 5 == producer.script.calls.count("produce")


def test_a_changelog_position_that_is_not_known_ends_the_worker(producer):
    """The store would stand for a position that is guessed."""
    producer.script.loses_reports = True
    with pytest.raises(BugError, match="delivery report"):
        producer.run(WORK)


def test_an_id_that_can_not_be_taken_over_ends_the_worker(producer):
    """In the words of the cluster, or as the one who was fenced."""
    producer.script.plan["init"] = [error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", fatal=True)]
    with pytest.raises(BrokerError, match="stage-0"):
        producer.open()
    producer.script.plan["init"] = [error("_FENCED", fatal=True)]
    with pytest.raises(ReplacedError):
        producer.open()


def test_offsets_that_are_never_sent_end_the_process(producer, monkeypatch):
    """The client ignores its time-out after a restart of the coordinator; the whole group would wait for ever."""
    ended = threading.Event()
    calls = []

    def exit_now(message, code):
        calls.append((message, code))
        ended.set()

    def hang(*args):
        assert ended.wait(10.0)

    monkeypatch.setattr(exits, "exit_now", exit_now)
    monkeypatch.setattr(module, "HANG_MARGIN_S", -5.9)
    producer.script.send_offsets_to_transaction = hang
    producer.run(WORK)
    ((message, code),) = calls
    assert "stage-0: sending offsets does not end" in message
    assert ExitCode.BROKER == code


def test_a_group_without_members_is_fenced_by_the_transactional_id_alone(producer):
    """Who says that nobody else commits for the group needs no member's identity; everybody else does."""
    nobody = WORK._replace(identity=Identity("group", -1, ""), changes={})
    assert Verdict.COMMITTED is producer.run(nobody._replace(alone=True))[0]
    with pytest.raises(BugError):
        producer.run(nobody)
