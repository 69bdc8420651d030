"""A broker crash leaves a worker's transaction without markers: no record is lost, and the way back is a command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from pipeline.cli.doctor import doctor
from pipeline.delivery.cluster_client import ClusterClient
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.identity import Identity
from pipeline.delivery.open_transactions import OFFSETS_TOPIC
from pipeline.errors import BrokerError
from pipeline.local.kafka import LocalBroker
from pipeline.ops import topics
from pipeline.ops.findings import REAPER_PROPERTY
from pipeline.ops.lag import LagReader
from pipeline.ops.transactions import open_transactions
from pipeline.topics import DOCUMENTS, PAGES, ROBOTS, all_names, group_id
from tests.chaos.forgetful import transactions_forgotten
from tests.chaos.ledger import Reader, produce
from tests.chaos.process import Stage, until
from tests.chaos.toy import Toy
from tests.short_transactions import ShortTransactions

pytestmark = pytest.mark.broker

PARTITIONS = 2
TIMEOUT_S = 3
AWAY_S = 3.5
TRIES = 6
CALL_S = 10.0
OLD_S = 30.0
"""Longest time until what hangs is old enough to be told: its time-out and ten seconds, from its last record on."""


class World(ShortTransactions):
    """The pipeline's topics on a broker with a hasty reaper, and a toy stage in the place of parse.

    Args:
        broker: runs.
        directory: for the stage.
    """

    def __init__(self, broker, directory):
        self.broker = broker
        super().__init__(broker, PARTITIONS, TIMEOUT_S)
        topics.apply(self.options, self.settings)
        toy = Toy(
            group=group_id("parse"),
            inputs=[PAGES.name],
            out=DOCUMENTS.name,
            changelog=ROBOTS.name,
            journal=str(directory / "journal"),
            gates=str(directory / "gates"),
        )
        self.stage = Stage("parallel", toy, broker.bootstrap, directory, PARTITIONS)
        self.out = Reader(broker.bootstrap, DOCUMENTS.name)
        self.written = [Reader(broker.bootstrap, topic, "read_uncommitted") for topic in (DOCUMENTS.name, ROBOTS.name)]

    def worker(self, name):
        """Make a worker of the stage."""
        return self.stage.worker(name, delivery__transaction_timeout_s=TIMEOUT_S, delivery__stable_offsets_s=2)

    def send(self, values, partition):
        """Give the stage records to do."""
        produce(self.broker.bootstrap, PAGES.name, [(b"k", value) for value in values], partition)

    def open(self):
        """Return the open transactions."""

        async def look():
            async with ClusterClient(self.settings.broker) as client:
                return await open_transactions(client, [*(name for name, _ in all_names()), OFFSETS_TOPIC])

        return asyncio.run(look())

    def done(self):
        """Return what is open once the coordinators have done with it, in a list of its own; None before."""
        try:
            found = self.open()
        except BrokerError:  # a coordinator still reads its log
            return None
        states = {transaction.coordinated and transaction.coordinated.state for transaction in found}
        return [found] if states <= {"CompleteAbort"} else None

    def committed(self, partition):
        """Return the committed offset of an input partition, whatever is open."""
        with LagReader(self.options) as lags:
            (found,) = [
                row for row in lags.read(self.stage.toy.group, [PAGES.name], PARTITIONS) if row.partition == partition
            ]
        return found.committed

    def hanging(self):
        """Return what `headrace doctor` says hangs."""
        said = CliRunner().invoke(doctor, ["--json"], env=self.environment).stdout
        return [row for row in map(json.loads, said.splitlines()) if row["kind"] == "hanging_transaction"]

    def end(self):
        """Run the command that `headrace doctor` prints, as a shell does."""
        (action,) = {row["action"] for row in until(self.hanging, "what hangs told by the doctor", OLD_S)}
        command = action.partition("then: headrace ")[2].split()
        headrace = str(Path(sys.executable).with_name("headrace"))
        done = subprocess.run([headrace, *command], env=os.environ | self.environment, capture_output=True, check=False)
        assert 0 == done.returncode, done.stderr

    def crash(self, worker, value, *, kill_worker):
        """Let a worker's transaction stand open over a crash of the broker that is longer than its time-out.

        Returns:
            Whether the transaction hangs afterwards: it does in most tries, not in all.
        """
        self.stage.hold("before_commit", worker.name)
        self.send([value], 1)
        self.stage.stands_at("before_commit", worker.name)  # the offsets are sent, the records are on their way
        for reader in self.written:
            reader.until(lambda rows: value in {row.value for row in rows}, f"{value!r}, not committed,")
        self.broker.kill()
        away_s = time.monotonic()
        if kill_worker:
            worker.kill()
        until(lambda: time.monotonic() - away_s > AWAY_S, "an outage longer than the time-out")
        self.broker.start()
        (found,) = until(self.done, "the coordinators to be done")
        self.stage.release("before_commit", worker.name)
        hanging = {transaction.place.topic for transaction in found}
        assert hanging in (set(), {DOCUMENTS.name, ROBOTS.name, OFFSETS_TOPIC})
        return bool(hanging)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A broker that ends overdue transactions before it serves its partitions, and a stage."""
    monkeypatch.delenv("HEADRACE_TEST_BOOTSTRAP", raising=False)  # the commands take it for a key that they don't know
    with LocalBroker(tmp_path / "kafka", properties={REAPER_PROPERTY: "1000"}) as broker:
        made = World(broker, tmp_path / "stage")
        yield made
        for reader in (made.out, *made.written):
            reader.close()
        made.stage.end()


@pytest.mark.parametrize("kill_worker", [True, pytest.param(False, marks=pytest.mark.chaos)], ids=["killed", "alive"])
def test_a_transaction_that_a_crash_leaves_hanging_costs_no_record(world, kill_worker):
    """The worker refuses to work, nothing counts as done that is not there, and one command brings everything back.

    Also where the worker outlives the crash: it must not go on with the same producer.
    """
    worker = world.worker("a").start()
    world.send([b"v:first"], 1)
    world.out.until_count(1)
    values = [b"v:%d" % number for number in range(TRIES)]
    for number, value in enumerate(values, 1):
        if world.crash(worker, value, kill_worker=kill_worker):
            break
        if worker.running:
            worker.kill()
        worker.start()
        world.out.until_count(1 + number)
    else:
        pytest.fail(f"no transaction hung in {TRIES} crashes")
    if not kill_worker:
        assert worker.exit_status() in {ExitCode.BROKER, ExitCode.REPLACED}
    assert number == len(world.out.read_to_end())
    before = world.committed(1)

    worker.start()
    assert ExitCode.BROKER == worker.exit_status()
    worker.says(f"offsets of {PAGES.name}/1 stay unstable")
    worker.says("`headrace doctor`")
    assert before == world.committed(1)
    assert number == len(world.out.read_to_end())

    world.end()
    assert [] == world.open()
    assert before == world.committed(1)
    worker.start()
    world.out.until_count(1 + number)
    world.send([b"v:last"], 1)
    world.out.until_count(2 + number)
    world.out.read_to_end()
    assert Counter([b"v:first", *values[:number], b"v:last"]) == world.out.values


@pytest.mark.chaos
def test_a_worker_that_comes_back_to_other_partitions_does_not_complete_what_hangs(world):
    """The one way to lose a record: its own partition is in order, what hangs is of one that is now another's.

    Its next commit would complete the offset that hangs there, which carries its producer id, and not the output.
    """
    stays, back = world.worker("stays").start(), world.worker("back").start()
    until(lambda: len(world.stage.assigned_to("stays")) == len(world.stage.assigned_to("back")) == 1, "one each")
    (own,), (others,) = world.stage.assigned_to("back"), world.stage.assigned_to("stays")
    world.send([b"v:first"], own)
    world.out.until_count(1)
    back.kill()
    producer = Producer({**world.options, "transactional.id": f"{world.stage.toy.group}-back", "log_level": 2})
    producer.init_transactions(CALL_S)
    with transactions_forgotten(world.broker):  # begun before the group was dealt anew
        producer.begin_transaction()
        producer.produce(DOCUMENTS.name, b"v:hangs", b"k", others)
        producer.flush(CALL_S)
        nobody = bytes(Identity(world.stage.toy.group, -1, ""))
        producer.send_offsets_to_transaction([TopicPartition(PAGES.name, others, 1)], nobody, CALL_S)
    del producer
    world.send([b"v:own"], own)
    back.start()
    assert ExitCode.BROKER == back.exit_status()
    back.says(f"offsets of {PAGES.name}/{others} stay unstable")
    assert 1 == len(world.out.read_to_end())
    stays.kill()
    world.send([b"v:hangs"], others)
    world.end()
    back.start()
    stays.start()
    world.out.until_count(3)
    world.out.read_to_end()
    assert Counter([b"v:first", b"v:own", b"v:hangs"]) == world.out.values


def test_outputs_that_hang_alone_are_not_published(world):
    """The group's offsets are in order and don't tell: the next commit would publish what hangs beside its repeat."""
    worker = world.worker("a").start()
    world.send([b"v:first"], 1)
    (first,) = world.out.until_count(1)
    worker.kill()
    producer = Producer({**world.options, "transactional.id": f"{world.stage.toy.group}-a", "log_level": 2})
    producer.init_transactions(CALL_S)
    with transactions_forgotten(world.broker):
        producer.begin_transaction()
        producer.produce(DOCUMENTS.name, b"v:again", b"k", first.partition)
        producer.flush(CALL_S)
    del producer
    world.send([b"v:again"], 1)
    worker.start()
    assert ExitCode.BROKER == worker.exit_status()
    worker.says(f"open in {DOCUMENTS.name}/{first.partition}, ")
    worker.says("`headrace doctor`")
    assert 1 == len(world.out.read_to_end())
    world.end()
    worker.start()
    world.out.until_count(2)
    world.out.read_to_end()
    assert Counter([b"v:first", b"v:again"]) == world.out.values
