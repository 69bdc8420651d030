"""How a worker ends, and that what it leaves behind is enough for the next one."""

from __future__ import annotations

import random
import signal
import socket
import threading

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from pipeline.delivery.broker_wait import wait_for_broker
from pipeline.delivery.exits import ExitCode
from pipeline.local.server import free_ports
from tests.chaos.ledger import produce
from tests.chaos.process import until
from tests.integration.conftest import KINDS

WATCHDOG_S = 2
END_S = 20.0


def values(count, start=0):
    """Keys and values that are all different."""
    return [(b"k%d" % number, b"v:%d" % number) for number in range(start, start + count)]


def outputs_once(kind, rows, sent):
    """Whether each value has its outputs exactly once, whatever else the output says."""
    endings = sorted(row.value.rpartition(b"v:")[2] for row in rows)
    return (
        sorted(value.rpartition(b"v:")[2] for _, value in sent for _ in range(1 if kind == "parallel" else 2))
        == endings
    )


def test_five_aborts_in_a_row_end_the_worker(stage_factory, reader, broker):
    """What fails five times will fail for ever; the outage is told by the exit status, and nothing is lost."""
    stage = stage_factory("parallel", aborts=5)
    sent = values(50)
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    worker = stage.worker().start()
    assert ExitCode.BROKER == worker.exit_status()
    worker.says("5 transactions were aborted in a row")
    out = reader(stage.toy.out)
    assert [] == out.read_to_end()
    worker.start(toy=worker.toy.without_faults())
    out.until_count(50)
    assert outputs_once("parallel", out.read_to_end(), sent)


def test_a_transaction_time_that_the_broker_does_not_take_is_the_operators_to_mend(stage_factory):
    """A restart would not help: the status says so, and the message names the setting."""
    worker = stage_factory("parallel").worker("a", delivery__transaction_timeout_s=100_000.0).start()
    assert ExitCode.CONFIGURATION == worker.exit_status()
    worker.says("delivery.transaction_timeout_s: 100000 passes the broker's transaction.max.timeout.ms")


def shrink(admin, topic, largest_bytes=1_000):
    """Let a topic take no larger record."""
    entry = ConfigEntry("max.message.bytes", str(largest_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(END_S)


def drop(admin, topic):
    """Remove a topic and wait until it is gone."""
    admin.delete_topics([topic])[topic].result(END_S)
    until(lambda: topic not in admin.list_topics(timeout=END_S).topics, "a topic gone")


@pytest.mark.parametrize(
    "case",
    [("parallel", shrink), ("ordered", shrink), ("ordered", drop)],
    ids=["parallel-too small", "ordered-too small", "missing"],
)
def test_a_dead_letter_that_can_not_be_written_is_named(stage_factory, reader, broker, admin, case):
    """It stops every partition of the worker; the last line says which record and which topic. Nothing is lost."""
    kind, spoil = case
    stage = stage_factory(kind, partitions=1)
    topic = stage.toy.inputs[0]
    letters = f"{topic}-dlq"
    poison = b"poison:" + random.Random(0).randbytes(5_000)
    spoil(admin, letters)
    produce(broker.bootstrap, topic, [(b"bad", poison), (b"good", b"v:good")])
    worker = stage.worker("a").start()
    assert ExitCode.BROKER == worker.exit_status()
    worker.says("5 transactions were aborted in a row: ")
    worker.says(f"{letters}/")
    worker.says(f"the dead letter of {topic}/0/0, ")
    out = reader(stage.toy.out)
    assert [] == out.read_to_end()
    admin.create_topics([NewTopic(letters, 1)])[letters].exception(END_S)  # it may be there
    shrink(admin, letters, 100_000)
    worker.start()
    out.until_count(1)
    assert poison == reader(letters).until_count(1)[0].value


def test_an_error_that_nobody_foresaw_ends_the_worker(stage_factory, reader, broker):
    """Nothing is repaired in place: what memory says after it is a guess."""
    stage = stage_factory("ordered", explode=1)
    sent = values(50)
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    worker = stage.worker().start()
    assert ExitCode.BUG == worker.exit_status()
    worker.says("nobody foresaw this")
    worker.start(toy=worker.toy.without_faults())
    out = reader(stage.toy.out)
    out.until_count(100)
    assert outputs_once("ordered", out.read_to_end(), sent)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gap_in_the_chain_of_positions_ends_the_worker(stage_factory, reader, broker, kind):
    """A batch that is dropped between the fetcher and the runner must not be committed past."""
    stage = stage_factory(kind, partitions=1, drop_batch=2)
    topic, sent = stage.toy.inputs[0], values(30)
    worker = stage.worker().start()
    out = reader(stage.toy.out)
    produce(broker.bootstrap, topic, sent[:10])
    out.until_count(10 if kind == "parallel" else 20)
    produce(broker.bootstrap, topic, sent[10:20])
    until(lambda: stage.journal("dropped"), "a batch dropped")
    produce(broker.bootstrap, topic, sent[20:])
    assert ExitCode.BUG == worker.exit_status()
    worker.says("expected offset 10")
    worker.start(toy=worker.toy.without_faults())
    out.until_count(30 if kind == "parallel" else 60)
    assert outputs_once(kind, out.read_to_end(), sent)


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_of_two_workers_of_one_name_the_older_is_fenced_says_so_and_ends(stage_factory, reader, broker, busy):
    """Two that do not know of each other would fence each other for ever, or worse, both publish."""
    stage = stage_factory("parallel", pause_s=0.02)
    topic, sent = stage.toy.inputs[0], values(400)
    out = reader(stage.toy.out)
    older = stage.worker("same", place="older").start()
    produce(broker.bootstrap, topic, sent[:100])
    out.until_count(100)
    younger = stage.worker("same", place="younger").start()
    if busy:
        for number in range(100, 300, 10):
            produce(broker.bootstrap, topic, sent[number : number + 10])
    assert ExitCode.REPLACED == older.exit_status()
    assert "a worker of the same name" in older.log()
    produce(broker.bootstrap, topic, sent[300 if busy else 100 :])
    out.until_count(400)
    assert outputs_once("parallel", out.read_to_end(), sent)
    assert younger.running


def test_a_second_worker_on_the_same_directory_does_not_start(stage_factory):
    """The message says which directory and what to change; the first one goes on."""
    stage = stage_factory("parallel")
    first = stage.worker("same").start()
    stage.assigned_to("same")
    second = stage.worker("same").start()
    assert second.exit_status() != 0
    second.says("is in use by another worker named toy-parallel-same")
    assert first.running


def test_a_shutdown_is_clean(stage_factory, reader, broker):
    """What has finished is committed on the way out, the slow rest is left to the next one."""
    stage = stage_factory("parallel", partitions=1)
    worker = stage.worker(delivery__commit_interval_s=600).start()
    out = reader(stage.toy.out)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"v:first")])
    out.until_count(1)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"gate:never"), *values(10)])
    until(lambda: len(stage.journal("end")) == 11, "ten records handled, which wait for their commit")
    worker.send(signal.SIGTERM)
    assert 0 == worker.exit_status()
    assert 11 == len(out.read_to_end())


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_worker_starts_with_every_log_level_of_the_configuration(stage_factory, level):
    """Faust has other words for them."""
    stage = stage_factory("parallel", partitions=1)
    stage.worker("a", worker__log_level=level).start()
    assert [0] == stage.assigned_to("a")


@pytest.mark.parametrize("level", ["info", "warning"])
def test_a_worker_whose_log_can_not_be_written_goes_on(stage_factory, reader, broker, level):
    """The log's disk is full, the work's is not; Faust's banner and progress are output, too."""
    stage = stage_factory("parallel", partitions=1)
    worker = stage.worker("a", worker__log_level=level)
    worker.log_file.symlink_to("/dev/full")
    worker.start()
    worker.log_file.unlink()  # the process has it open
    produce(broker.bootstrap, stage.toy.inputs[0], values(10))
    reader(stage.toy.out).until_count(10)
    worker.send(signal.SIGTERM)
    assert 0 == worker.exit_status()


def test_a_watchdog_ends_a_shutdown_that_hangs(stage_factory):
    """A member that neither works nor leaves would let its whole group wait."""
    stage = stage_factory("parallel", hang_stop=True)
    worker = stage.worker(delivery__shutdown_s=WATCHDOG_S).start()
    worker.says("Ready")
    worker.send(signal.SIGTERM)
    worker.exit_status(limit_s=WATCHDOG_S + END_S)


def test_a_worker_waits_for_the_brokers_port(stage_factory):
    """One that died of an outage would add its restart back-off to it."""
    (port,) = free_ports(1)
    stage = stage_factory("parallel")
    worker = stage.worker(broker__bootstrap=f"127.0.0.1:{port}").start()
    worker.says(f"no broker answers at 127.0.0.1:{port}")
    assert worker.running


def test_a_broker_that_goes_away_during_the_start_is_told_from_a_fault(stage_factory):
    """The port answered, and then nobody: the supervisor starts the worker again, and nobody looks for a bug."""
    stage = stage_factory("parallel")
    with socket.create_server(("127.0.0.1", 0)) as server:
        worker = stage.worker(broker__bootstrap=f"127.0.0.1:{server.getsockname()[1]}")
        hang_up = threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(3)], daemon=True)
        hang_up.start()
        worker.start()
        assert ExitCode.BROKER == worker.exit_status()


def test_waiting_ends_when_a_server_listens():
    """Any of the named servers will do."""
    closed, port = free_ports(2)
    waiting = threading.Thread(target=wait_for_broker, args=(f"127.0.0.1:{closed},127.0.0.1:{port}",))
    waiting.start()
    with socket.create_server(("127.0.0.1", port)):
        waiting.join(END_S)
    assert not waiting.is_alive()
