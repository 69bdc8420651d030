"""Dead letters from end to end: poison among good records, a fix, a replay; and the commands on a real broker."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from dataclasses import replace

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from pipeline import topics
from pipeline.cli import cli
from pipeline.config import Broker, Settings, Topics, client_options
from pipeline.contracts import load_codec
from pipeline.delivery.dead_letters import dead_letter
from pipeline.delivery.journal import MAX_CRASHES
from pipeline.errors import InputError
from pipeline.local.kafka import LocalBroker
from pipeline.ops import topics as ops
from pipeline.ops.dead_letter_origins import as_it_was
from pipeline.ops.dead_letter_reader import DeadLetterReader
from pipeline.ops.dead_letter_replay import DeadLetterOffice
from pipeline.ops.dead_letters import Filters, State
from tests.chaos.ledger import Reader, produce
from tests.chaos.process import until
from tests.fakes import FakeRecord
from tests.frontier_world import make_links, make_task

pytestmark = pytest.mark.broker

RECORDS = 10_000
POISON = {
    "poison": ("invalid_task", 60),
    "undecodable": ("undecodable", 60),
    "bug": ("handler_error", 60),
    "large": ("too_large", 58),
    "leak": ("handler_error", 60),
    "crash": ("crash_loop", 2),
}
"""Verb → the reason it must get, and how many there are: 3 % in all. Each crash costs some starts of the worker."""
DRAIN_S = 120.0


def strewn():
    """Values of all records, in order, and the reason of each that is poison."""
    verbs = [verb for verb, (_, count) in POISON.items() if verb != "crash" for _ in range(count)]
    verbs += ["v"] * (RECORDS - len(verbs) - POISON["crash"][1])
    random.Random(4).shuffle(verbs)
    verbs.insert(RECORDS // 3, "crash")
    verbs.insert(2 * RECORDS // 3, "crash")
    values = [f"{verb}:{number}".encode() for number, verb in enumerate(verbs)]
    reasons = {value: POISON[verb][0] for value, verb in zip(values, verbs, strict=True) if verb in POISON}
    return values, reasons


def letters_of(stage):
    """All dead letters of a stage."""
    with DeadLetterReader({"bootstrap.servers": stage.bootstrap}, [f"{stage.toy.inputs[0]}-dlq"]) as letters:
        return [letter for part in letters.parts() for letter in letters.letters(part)]


def replay(stage, restore, *, dry):
    """Replay all dead letters of a stage."""
    office = DeadLetterOffice(
        {"bootstrap.servers": stage.bootstrap},
        [f"{stage.toy.inputs[0]}-dlq"],
        by="test",
        dry=dry,
        transaction_timeout_s=10.0,
    )
    with office:
        outcome = office.replay(Filters(), RECORDS, restore, lambda letter, refusal: None)
        if not dry:
            office.settle()
    return outcome


def before_the_fix(letter):
    """Today's contract does not know some of them."""
    if letter.value.startswith(b"undecodable"):
        raise InputError("undecodable", "not a record of ours")
    return as_it_was(letter)


def test_poison_is_dead_once_with_its_reason_and_a_replay_after_the_fix_brings_exactly_it(
    stage_factory, reader, broker, offsets
):
    """The promise to the person on call: nothing good is lost or doubled, what was bad comes back, all of it, once."""
    stage = stage_factory("parallel")
    values, reasons = strewn()
    assert 300 == len(reasons)
    good = Counter(value for value in values if value not in reasons)
    topic = stage.toy.inputs[0]
    produce(broker.bootstrap, topic, [(b"k%d" % number, value) for number, value in enumerate(values)])

    worker, out = stage.worker(), reader(stage.toy.out)

    def drained():
        if not worker.running:
            worker.start()
        return len(out.read()) >= RECORDS

    until(drained, f"{RECORDS} outputs: {len(out.rows)}", DRAIN_S)
    beside = Counter(b"beside:" + value for value in reasons)
    assert good + beside == Counter(row.value for row in out.read_to_end())
    letters = letters_of(stage)
    assert Counter(reasons.items()) == Counter((letter.value, letter.reason) for letter in letters)
    assert worker.starts > MAX_CRASHES  # how many more depends on what was in hand in the same crash

    dry = replay(stage, before_the_fix, dry=True)
    assert (240, {"undecodable": 60}) == (dry.done, dry.refused)

    worker.kill()
    worker.start(toy=replace(stage.toy, forgiving=True))
    brought = replay(stage, as_it_was, dry=False)
    assert (300, {}) == (brought.done, brought.refused)
    expected = good + beside + Counter(reasons.keys())
    out.until_count(expected.total())
    again = replay(stage, as_it_was, dry=False)
    assert (0, 300) == (again.done, again.done_before)
    group, own = offsets(stage.toy.group), offsets("headrace-dlq")
    until(lambda: {0: 0, 1: 0} == group.lag(topic, 2), "no lag")
    assert expected == Counter(row.value for row in out.read_to_end())
    assert Counter({State.REPLAYED: 300}) == Counter(letter.state for letter in letters_of(stage))
    assert {0: 0, 1: 0} == own.lag(f"{topic}-dlq", 2)


# ---- the commands

PARTITIONS = 2
CODECS = load_codec()
TASK = CODECS.encode(topics.TASKS.subject, make_task("http://a.test/"))
LINKS = CODECS.encode(topics.LINKS.subject, make_links(["http://b.test/"]))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker with every topic of the table; names are fixed, so it is shared with nobody. Returns its address."""
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as local:
        settings = Settings(broker=Broker(bootstrap=local.bootstrap), topics=Topics(partitions=PARTITIONS))
        ops.apply(client_options(settings.broker), settings)
        yield local.bootstrap


def write_letters(bootstrap):
    """Write a letter each of a task that is fine now, of links, and of bytes that nobody can read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic, value, key, reason, offset in (
        (topics.TASKS, TASK, b"a.test", "invalid_task", 40),
        (topics.LINKS, LINKS, None, "handler_error", 7),
        (topics.TASKS, b"junk", b"b.test", "undecodable", 41),
    ):
        source = FakeRecord(topic.name, value, key, 1, offset)
        made = dead_letter(source, InputError(reason, "why"), group="headrace-frontier", stage="frontier")
        producer.produce(made.topic, made.value, made.key, made.partition, headers=list(made.headers))
    assert 0 == producer.flush(10)


def test_the_commands_from_the_alert_to_an_empty_queue(cluster, tmp_path):
    """Look, try, replay, purge, delete: as the page about dead letters has it."""
    environ = {
        "HEADRACE_CONFIG": os.devnull,
        "HEADRACE_BROKER__BOOTSTRAP": cluster,
        "HEADRACE_TOPICS__PARTITIONS": str(PARTITIONS),
        "HEADRACE_WORKER__DATA_DIR": str(tmp_path),
    }

    def run(*arguments, status=0):
        answer = CliRunner(env=environ).invoke(cli, ["dlq", *arguments])
        assert status == answer.exit_code, (answer.output, answer.exception)
        return answer.stdout

    def listed(*arguments):
        return [json.loads(line) for line in run("list", "--json", *arguments).splitlines()]

    write_letters(cluster)
    assert {"invalid_task", "handler_error", "undecodable"} == {row["reason"] for row in listed()}
    (task,) = listed("--reason", "invalid_task", "--domain", "a.test", "--since", "1h", "--stage", "frontier")
    assert [task] == listed("--origin", "crawl.tasks.v1/1/40", "--topic", "crawl.tasks.v1", "--id", task["id"])
    assert '"url": "http://a.test/"' in run("show", task["id"])
    run("export", "--to", str(tmp_path / "letters.jsonl"))
    assert 3 == len((tmp_path / "letters.jsonl").read_text(encoding="utf-8").splitlines())

    assert "2 would be replayed, 1 refused (undecodable 1)" in run("replay")
    said = run("replay", "--yes")
    assert f"replayed: {task['id']}  replayed  invalid_task" in said
    assert "2 replayed, 1 refused (undecodable 1)" in said
    for topic, value, key in ((topics.TASKS, TASK, b"a.test"), (topics.LINKS, LINKS, None)):
        came_back = Reader(cluster, topic.name)
        (row,) = came_back.read_to_end()
        came_back.close()
        assert (1, key, value, b"1") == (row.partition, row.key, row.value, row.headers["dlq-replays"])
    (left,) = listed()
    run("replay", "--id", left["id"], status=2)
    assert "0 replayed, 1 refused (undecodable 1), 0 beyond --limit, 2 done before" in run("replay", "--yes")

    assert "1 purged" in run("purge", "--yes")
    assert [] == listed()
    assert ["purged", "replayed", "replayed"] == sorted(row["state"] for row in listed("--all"))
    assert "deleted from the beginning of 2 partitions" in run("purge", "--yes", "--delete-records")
    assert [] == listed("--all")
