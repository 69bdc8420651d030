"""`headrace doctor` on a cluster that has everything it looks for, beside Kafka's own tool."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from faust.types import TP

from pipeline.cli.doctor import doctor
from pipeline.delivery.cluster_client import ClusterClient
from pipeline.delivery.identity import Identity
from pipeline.delivery.open_transactions import OFFSETS_TOPIC
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.delivery.stable_offsets import StableOffsets
from pipeline.errors import BrokerError
from pipeline.local import archives
from pipeline.local.kafka import LocalBroker
from pipeline.local.server import free_ports, java
from pipeline.ops import topics
from pipeline.ops.doctor import hanging_after_s
from pipeline.ops.findings import REAPER_PROPERTY
from pipeline.ops.transactions import abort, open_transactions
from pipeline.state.changelog import Changelog, PlainRows
from pipeline.state.store import PartitionStore
from pipeline.topics import (
    DOCUMENTS,
    FRONTIER_STATE,
    LANE_BULK,
    LANE_NORMAL,
    LANE_URGENT,
    LINKS,
    PAGES,
    PARSED,
    ROBOTS,
    STAGES,
    TASKS,
    all_names,
    group_id,
)
from tests.chaos.forgetful import transactions_forgotten
from tests.chaos.ledger import Reader, produce, transaction
from tests.chaos.process import until
from tests.short_transactions import ShortTransactions

pytestmark = pytest.mark.broker

PARTITIONS = 2
TIMEOUT_S = 1.0
CALL_S = 10.0
HEADRACE = str(Path(sys.executable).with_name("headrace"))
ALL = [name for name, _ in all_names()]


class Orphan(NamedTuple):
    """A transaction that hangs.

    Attributes:
        name: transactional id.
        places: topic and partition of its records.
        offset: what it would commit: group, topic and partition; None for one without.
    """

    name: str
    places: list[tuple[str, int]]
    offset: tuple[str, str, int] | None


PARSE = Orphan(
    "headrace-parse-0", [(DOCUMENTS.name, 1), (PAGES.dlq, 0), (PARSED.name, 0)], ("headrace-parse", PAGES.name, 1)
)
STORE = Orphan("headrace-store-0", [(DOCUMENTS.dlq, 0)], ("headrace-store", DOCUMENTS.name, 0))
FETCH = Orphan("headrace-fetch-0", [(PAGES.name, 0)], ("headrace-fetch", LANE_BULK.name, 1))
FRONTIER = Orphan("headrace-frontier-0", [(FRONTIER_STATE.name, 1)], None)
HALF = Orphan("headrace-parse-1", [(LINKS.name, 0)], ("half", PAGES.name, 0))
ORPHANS = [PARSE, STORE, FETCH, FRONTIER, HALF]


COMMITTED = 9
INPUT_RECORDS = 10
REAPER_MS = "11000"


def begin(producer, orphan):
    """Write what the orphan holds; every record and offset is on the broker when it returns."""
    producer.begin_transaction()
    for topic, partition in orphan.places:
        producer.produce(topic, b"orphan", b"k", partition)
    producer.flush(CALL_S)
    if orphan.offset:
        group, topic, partition = orphan.offset
        producer.send_offsets_to_transaction([TopicPartition(topic, partition, COMMITTED)], nobody(group), CALL_S)


def shell(command, environment=None):
    """Run a command and return how it ended and what it said."""
    whole = os.environ | (environment or {})
    return subprocess.run(command, env=whole, capture_output=True, text=True, check=False)


def nobody(group):
    """Return an identity that the broker does not check."""
    return bytes(Identity(group, -1, ""))


class Cluster(ShortTransactions):
    """A broker with the pipeline's topics and transactions that hang in them.

    Args:
        broker: runs.
    """

    def __init__(self, broker):
        self.bootstrap = broker.bootstrap
        super().__init__(broker, PARTITIONS, TIMEOUT_S)

    def run(self, *arguments):
        """Run `headrace doctor` as a shell does: with its status and message."""
        return shell([HEADRACE, "doctor", *arguments], self.environment)

    def findings(self, kind=""):
        """Return the findings of one kind, or all."""
        done = CliRunner().invoke(doctor, ["--json"], env=self.environment)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert bool(rows) == done.exit_code, done.output
        return [row for row in rows if kind in {"", row["kind"]}]

    def open(self, name=""):
        """Return the open transactions, of one transactional id where one is named."""

        async def look():
            async with ClusterClient(self.settings.broker) as client:
                return await open_transactions(client, [*ALL, OFFSETS_TOPIC], 0.0)

        return [found for found in asyncio.run(look()) if name in {"", found.coordinated.transactional_id}]

    def end(self, hanging):
        """End an open transaction, whatever the doctor would say to it."""

        async def write_marker():
            async with ClusterClient(self.settings.broker) as client:
                await abort(client, hanging)

        asyncio.run(write_marker())

    def kafkas_tool(self, *arguments):
        """Run `kafka-transactions.sh` and return what it prints."""
        path = os.pathsep.join([archives.class_path("kafka"), archives.class_path("tools")])
        command = [*java("-XX:TieredStopAtLevel=1", "-cp", path), "org.apache.kafka.tools.TransactionsCommand"]
        done = shell([*command, "--bootstrap-server", self.bootstrap, *arguments])
        assert 0 == done.returncode, done.stderr
        return done.stdout

    def kafkas_findings(self):
        """Return place and producer id of what Kafka's own tool finds hanging, of any age."""
        table = self.kafkas_tool("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
        names, *rows = [[cell.strip() for cell in line.split("\t")] for line in table.splitlines() if line.strip()]
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return {(row["Topic"], int(row["Partition"]), int(row["StartOffset"]), int(row["ProducerId"])) for row in found}


def values(cluster, topic, partition):
    """Return what a reader of what is committed finds in a partition."""
    reader = Reader(cluster.bootstrap, topic)
    found = [row.value for row in reader.read_to_end() if row.partition == partition]
    reader.close()
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster after a crash, with every orphan hanging and old enough to be told."""
    with LocalBroker(tmp_path_factory.mktemp("kafka"), properties={REAPER_PROPERTY: REAPER_MS}) as broker:
        made = Cluster(broker)
        topics.apply(made.options, made.settings)
        for topic, partition in {orphan.offset[1:] for orphan in ORPHANS if orphan.offset}:
            produce(broker.bootstrap, topic, [(b"k", b"input")] * INPUT_RECORDS, partition)
        producers = [Producer({**made.options, "transactional.id": orphan.name, "log_level": 2}) for orphan in ORPHANS]
        for producer in producers:
            producer.init_transactions(CALL_S)
        with transactions_forgotten(broker):
            for producer, orphan in zip(producers, ORPHANS, strict=True):
                begin(producer, orphan)
            begun_s = time.monotonic()
        del producers, producer
        old_s = hanging_after_s(made.settings) + 1.0
        until(lambda: time.monotonic() - begun_s > old_s, "what hangs to be old enough", 2 * old_s)
        yield made


@pytest.fixture(scope="module")
def told(cluster):
    """What the doctor finds before anything was ended."""
    return cluster.findings()


def test_each_transaction_that_hangs_is_named(cluster, told):
    """Whoever is on call must learn where, whose, since when, and what it holds back."""
    found = [row["details"] for row in told if row["kind"] == "hanging_transaction"]
    places = {(row["transactional_id"], (row["topic"], row["partition"])) for row in found if not row["holds_offsets"]}
    assert {(orphan.name, place) for orphan in ORPHANS for place in orphan.places} == places
    with_offsets = {row["transactional_id"] for row in found if row["holds_offsets"]}
    assert {orphan.name for orphan in ORPHANS if orphan.offset} == with_offsets
    for row in found:
        assert row["age_s"] > hanging_after_s(cluster.settings)
        assert (0, "Empty") == (row["producer_epoch"], row["coordinator_state"])
        assert row["held_back"] >= 1


def test_groups_whose_offsets_are_held_are_named(told):
    """Their workers refuse to work; the reason is not in their own topics."""
    groups = {row["place"] for row in told if row["kind"] == "unstable_offsets"}
    assert {"headrace-parse", "headrace-store", "headrace-fetch"} == groups


def test_kafkas_own_tool_finds_the_same(cluster, told):
    """Ours is built on the same questions; where the two differ, ours is wrong."""
    keys = ("topic", "partition", "start_offset", "producer_id")
    ours = {tuple(row["details"][key] for key in keys) for row in told if row["kind"] == "hanging_transaction"}
    assert ours == cluster.kafkas_findings()


def test_what_is_merely_open_is_neither_told_nor_ended(cluster):
    """An abort would tear a live transaction in two."""
    name = f"alive-{uuid.uuid4().hex}"
    with transaction(cluster.bootstrap, name) as producer:
        producer.produce(LINKS.name, b"v", b"k", 1)
        producer.flush(CALL_S)
        (alive,) = cluster.open(name)
        assert name not in {row["details"]["transactional_id"] for row in cluster.findings("hanging_transaction")}
        refused = cluster.run("--abort", str(alive.place))
        assert (2, "") == (refused.returncode, refused.stdout)
        assert f"{alive.place} does not hang: its coordinator ends it ({name}, Ongoing)" in refused.stderr
        producer.commit_transaction(CALL_S)


def test_a_place_where_nothing_is_open_is_refused(cluster):
    """A slip in the number must not go unnoticed."""
    refused = cluster.run("--abort", f"{LINKS.name}/1/99")
    assert (2, "") == (refused.returncode, refused.stdout)
    assert f"no transaction is open in {LINKS.name}/1 from 99" in refused.stderr


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("crawl.link.v1/0/1", "there is no topic crawl.link.v1; did you mean crawl.links.v1?"),
        (f"{LINKS.name}/99/1", f"{LINKS.name} has no partition 99, but 0 to "),
        (f"{LINKS.name}/1/" + "9" * 20, "is not TOPIC/PARTITION/START_OFFSET"),
    ],
)
def test_a_place_that_is_not_there_is_refused_by_what_is_wrong_with_it(cluster, place, said):
    """At three in the morning names are mistyped."""
    refused = cluster.run("--abort", place)
    assert (2, "") == (refused.returncode, refused.stdout)
    assert said in refused.stderr


def test_offsets_are_not_freed_before_what_else_hangs_of_their_producer(cluster):
    """The order is what keeps a half-done repair safe."""
    (offsets,) = [found.place for found in cluster.open(STORE.name) if found.holds_offsets]
    refused = cluster.run("--abort", str(offsets))
    assert 2 == refused.returncode
    assert f"the same producer hangs in {DOCUMENTS.dlq}/0/" in refused.stderr
    assert 2 == len(cluster.open(STORE.name))


def test_the_command_that_is_printed_ends_all_of_a_producer_and_frees_its_group(cluster):
    """Outputs stay invisible, offsets stay where they were, and both can be read again."""
    found = cluster.run()
    assert 1 == found.returncode
    (command,) = [line for line in found.stdout.splitlines() if f"--abort {PARSED.name}/0/" in line]
    ended = cluster.run(*command.partition("headrace doctor ")[2].split())
    assert 0 == ended.returncode, ended.stderr
    assert 4 == ended.stdout.count("ended: ")
    assert [] == cluster.open(PARSE.name)
    assert [] == values(cluster, DOCUMENTS.name, 1)
    starts = StableOffsets(cluster.options, "headrace-parse").starts([TP(PAGES.name, 1)], lambda: True, CALL_S)
    assert 0 == starts[TP(PAGES.name, 1)].offset_map.base


def test_what_kafkas_own_tool_has_ended_is_told_no_more(cluster):
    """Either may be used: the runbook names both."""
    for topic, partition, offset in [found.place for found in cluster.open(FETCH.name)]:
        place = ["--topic", topic, "--partition", str(partition), "--start-offset", str(offset)]
        cluster.kafkas_tool("abort", *place)
    until(lambda: not cluster.open(FETCH.name), "what the tool has ended")
    assert FETCH.name not in {row["details"]["transactional_id"] for row in cluster.findings("hanging_transaction")}
    assert [] == StableOffsets(cluster.options, "headrace-fetch").unstable([LANE_BULK.name], PARTITIONS, CALL_S)


def test_a_restore_goes_on_when_what_hangs_in_its_changelog_was_ended(cluster, tmp_path):
    """A worker that restores behind it ends, and says what to run."""
    log = Changelog(cluster.options, FRONTIER_STATE.name, PlainRows(), 3_600.0, 0.3)
    store = PartitionStore(tmp_path / "1", ("s",))
    with pytest.raises(BrokerError, match=rf"restore of {FRONTIER_STATE.name}/1 stands at 0.*`headrace doctor`"):
        log.restore(store, 1, time.time(), lambda: True)
    (found,) = cluster.open(FRONTIER.name)
    assert 0 == cluster.run("--abort", str(found.place)).returncode
    assert 0 == log.restore(store, 1, time.time(), lambda: True).records
    store.close()


def test_without_the_look_at_the_whole_group_a_hanging_transaction_loses_records(cluster):
    """What the look is for: the next commit of the same producer completes the offset that hangs, not its output."""
    group, topic, partition = STORE.offset
    offsets = StableOffsets(cluster.options, group)
    with pytest.raises(BrokerError, match=rf"offsets of {topic}/{partition} stay unstable.*`headrace doctor`"):
        offsets.wait_for_group([topic], PARTITIONS, 1.0)
    with transaction(cluster.bootstrap, STORE.name) as producer:  # the worker, come back without the look
        producer.send_offsets_to_transaction([TopicPartition(topic, 1 - partition, 0)], nobody(group), CALL_S)
        producer.commit_transaction(CALL_S)
    starts = offsets.starts([TP(topic, partition)], lambda: True, CALL_S)
    assert COMMITTED == starts[TP(topic, partition)].offset_map.base  # all up to there counts as done
    assert [] == values(cluster, DOCUMENTS.dlq, 0)  # and what was made of it is not there


def test_offsets_freed_alone_do_not_let_what_hangs_be_published(cluster):
    """The producer's next commit to the same partition would take the orphan's outputs along: none is begun."""
    ((topic, partition),) = HALF.places
    (offsets,) = [found for found in cluster.open(HALF.name) if found.holds_offsets]
    cluster.end(offsets)
    own = OwnTransactions(cluster.settings.broker, HALF.name, ALL)
    with transaction(cluster.bootstrap, HALF.name) as producer:  # the worker, come back, would do it again
        with pytest.raises(BrokerError, match=rf"open in {topic}/{partition}, .*`headrace doctor`"):
            asyncio.run(own.wait_for_end(0.1))
        (outputs,) = cluster.open(HALF.name)
        cluster.end(outputs)
        asyncio.run(own.wait_for_end(0.1))
        producer.produce(topic, b"again", b"k", partition)
        producer.flush(CALL_S)
        producer.commit_transaction(CALL_S)
    assert [b"again"] == values(cluster, topic, partition)


def test_offsets_that_no_worker_can_use_are_told(cluster):
    """A worker refuses the one and does the work of the other again; both must be known before it is started."""
    with transaction(cluster.bootstrap, "somebody") as producer:
        positions = [TopicPartition(TASKS.name, 0, 50), TopicPartition(LINKS.name, 1, 0, metadata="cp1.AAAA")]
        producer.send_offsets_to_transaction(positions, nobody("headrace-frontier"), CALL_S)
        producer.commit_transaction(CALL_S)
    (beyond,), (unreadable,) = cluster.findings("offset_beyond_end"), cluster.findings("unreadable_map")
    assert (f"{TASKS.name}/0", 50, 0) == (beyond["place"], beyond["details"]["committed"], beyond["details"]["end"])
    assert "--group headrace-frontier --topic crawl.tasks.v1 --reset-offsets" in beyond["action"]
    assert f"{LINKS.name}/1" == unreadable["place"]


def test_groups_without_members_and_a_hasty_reaper_are_told(cluster):
    """Nobody works, and the next crash may leave transactions hanging."""
    assert [group_id(stage) for stage in STAGES] == [row["place"] for row in cluster.findings("no_members")]
    (hasty,) = cluster.findings("broker_property")
    assert ("broker 1", REAPER_MS) == (hasty["place"], hasty["details"]["found"])


def test_a_member_that_lacks_partitions_is_told(cluster):
    """Partitions that nobody has are worked on by nobody, however well the group looks."""
    member = Consumer({**cluster.options, "group.id": "headrace-fetch", "session.timeout.ms": 6_000})
    member.subscribe([LANE_BULK.name])
    until(lambda: member.poll(0.05) or member.assignment(), "an assignment")
    (lacking,) = cluster.findings("unassigned_partitions")
    assert "headrace-fetch" == lacking["place"]
    lanes = {topic for topic, _ in lacking["details"]["partitions"]}
    assert {LANE_URGENT.name, LANE_NORMAL.name} == lanes
    member.close()


def test_a_missing_topic_and_a_changed_one_are_told(cluster):
    """A worker would refuse them, one after the other."""
    admin = AdminClient(cluster.options)
    for done in admin.delete_topics([ROBOTS.name]).values():
        done.result(CALL_S)
    until(lambda: ROBOTS.name not in admin.list_topics(timeout=CALL_S).topics, "a topic gone")
    (missing,) = cluster.findings("topic_missing")
    assert (ROBOTS.name, "headrace topics apply") == (missing["place"], missing["action"])
    topics.apply(cluster.options, cluster.settings)
    assert [] == cluster.findings("topic_missing")


def test_without_a_broker_the_status_says_so():
    """A script tells an outage from a finding by it."""
    (port,) = free_ports(1)
    environment = {"HEADRACE_BROKER__BOOTSTRAP": f"127.0.0.1:{port}", "HEADRACE_BROKER__WAIT_S": "1"}
    done = shell([HEADRACE, "doctor"], environment)
    assert 3 == done.returncode
    assert f"no answer from the broker 127.0.0.1:{port}" in done.stderr
