"""What a worker does with records: the rules of delivery that a single worker shows."""

from __future__ import annotations

import uuid

import pytest

from pipeline.delivery.offsets import decode
from pipeline.state.store import PartitionStore
from tests.chaos.ledger import produce, transaction
from tests.chaos.process import until
from tests.integration.conftest import KINDS

REASONS = {
    "poison": b"invalid_task",
    "undecodable": b"undecodable",
    "bug": b"handler_error",
    "large": b"too_large",
    "leak": b"handler_error",
}


def fresh(count=1, verb="v"):
    """Keys and values that no other test has."""
    return [(uuid.uuid4().hex.encode(), f"{verb}:{uuid.uuid4().hex}".encode()) for _ in range(count)]


def made_of(kind, value):
    """The endings of the outputs that a record with that value has."""
    return [value] if kind == "parallel" else [value, b"timer:" + value]


def outputs_of(rows, value):
    """Outputs whose source had the value."""
    return [row.value for row in rows if row.value.endswith(value)]


# ---- records that can't be handled


@pytest.mark.parametrize(
    ("kind", "verb"),
    [(kind, verb) for kind in KINDS for verb in REASONS if (kind, verb) != ("ordered", "leak")],
)
def test_what_can_not_be_handled_is_a_dead_letter_and_the_partition_goes_on(steady, reader, broker, kind, verb):
    """Sender's fault, our fault or too large to be sent: never an abort, never a dead agent, never a lost record."""
    stage = steady[kind]
    before, bad, after = [(b"same", value) for _, value in (*fresh(), *fresh(verb=verb), *fresh())]
    keys = iter(fresh(3)) if kind == "ordered" else None
    sent = [(next(keys)[0] if keys else key, value) for key, value in (before, bad, after)]
    produce(broker.bootstrap, stage.toy.inputs[0], sent, partition=0)
    out, letters = reader(stage.toy.out), reader(f"{stage.toy.inputs[0]}-dlq")
    out.until(lambda rows: len(outputs_of(rows, after[1])) == len(made_of(kind, after[1])), "the record behind it")
    letters.until(lambda rows: [row for row in rows if row.value == bad[1]], "the dead letter")
    (letter,) = (row for row in letters.read_to_end() if row.value == bad[1])
    assert (sent[1][0], 0, REASONS[verb]) == (letter.key, letter.partition, letter.headers["dlq-reason"])
    assert stage.toy.inputs[0].encode() == letter.headers["dlq-origin-topic"]
    beside = [b"beside:" + bad[1]] if kind == "parallel" else []
    assert beside == outputs_of(out.read_to_end(), bad[1])
    assert len(made_of(kind, before[1])) == len(outputs_of(out.rows, before[1]))
    assert [] == stage.journal("aborted")


def test_a_record_that_fails_half_way_is_undone_alone(steady, reader, broker):
    """Its writes and what memory made of them are gone; its neighbours of the same transaction are not."""
    stage = steady["ordered"]
    (key, _), (one, first), (two, second), (_, third) = fresh(4)
    sent = [(one, first), (key, b"poison:x"), (key, b"bug:y"), (two, second), (key, third)]
    produce(broker.bootstrap, stage.toy.inputs[0], sent, partition=1)
    out = reader(stage.toy.out)
    out.until(lambda rows: outputs_of(rows, b":" + third), "the record with the key of those that failed")
    firsts = [row.value for row in out.read_to_end() if row.key in {one, two, key} and row.value.startswith(b"first:")]
    numbers = {value.split(b":", 2)[2]: int(value.split(b":")[1]) for value in firsts}
    assert [1, 2] == [numbers[value] - numbers[first] for value in (second, third)]
    assert 3 == len(firsts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_deploy_does_not_drain_the_topic_into_the_dead_letters(stage_factory, reader, broker, kind):
    """After a row of dead letters the partition stands still and says so; the others go on."""
    stage = stage_factory(kind, slots=10)
    topic = stage.toy.inputs[0]
    bad = fresh(300, verb="poison")
    produce(broker.bootstrap, topic, bad, partition=0)
    worker = stage.worker(delivery__breaker_records=20).start()
    worker.says(f"{topic}/0 stands still")
    good = fresh(30)
    produce(broker.bootstrap, topic, good, partition=1)
    reader(stage.toy.out).until(
        lambda rows: {value for _, value in good} <= {row.value[-len(good[0][1]) :] for row in rows},
        "the other partition",
    )
    letters = reader(f"{topic}-dlq").read_to_end()
    assert 20 <= len(letters) <= 25  # what was in flight when it tripped may end too


# ---- what is read


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_aborted_is_never_read(steady, reader, broker, kind):
    """A sender's transaction that failed did not happen."""
    stage = steady[kind]
    aborted, committed = fresh(5), fresh(5)
    for rows, ending in ((aborted, "abort_transaction"), (committed, "commit_transaction")):
        with transaction(broker.bootstrap, f"sender-{uuid.uuid4()}") as sender:
            for key, value in rows:
                sender.produce(stage.toy.inputs[0], value, key, 0)
            sender.flush(10)
            getattr(sender, ending)(10)
    out = reader(stage.toy.out)
    out.until(lambda rows: all(outputs_of(rows, value) for _, value in committed), "what was committed")
    assert [] == [row for row in out.read_to_end() if any(row.value.endswith(value) for _, value in aborted)]
    assert [] == [row for row in stage.journal("begin") if row["value"].encode() in {value for _, value in aborted}]


@pytest.mark.parametrize("kind", KINDS)
def test_the_lag_of_an_idle_group_is_nought(steady, reader, offsets, broker, kind):
    """Markers and aborted records take offsets too: a scaler would see work where there is none."""
    stage = steady[kind]
    topic = stage.toy.inputs[0]
    kept = fresh(4)
    for rows, ending in ((kept, "commit_transaction"), (fresh(4), "abort_transaction")):
        with transaction(broker.bootstrap, f"sender-{uuid.uuid4()}") as sender:
            for number, (key, value) in enumerate(rows):
                sender.produce(topic, value, key, number % 2)
            sender.flush(10)
            getattr(sender, ending)(10)
    reader(stage.toy.out).until(lambda rows: all(outputs_of(rows, value) for _, value in kept), "the outputs")
    group = offsets(stage.toy.group)
    until(lambda: {0: 0, 1: 0} == group.lag(topic, 2), "no lag")


# ---- when to commit


def test_a_commit_comes_at_the_leading_edge(stage_factory, reader, broker):
    """At once after a quiet time, then not before the interval has passed, unless something urgent has finished."""
    stage = stage_factory("parallel", partitions=1)
    stage.worker(delivery__commit_interval_s=600).start()
    topic, out = stage.toy.inputs[0], reader(stage.toy.out)
    produce(broker.bootstrap, topic, [(b"k", b"first")])
    out.until(lambda rows: rows, "the first record, at once")
    produce(broker.bootstrap, topic, [(b"k", b"second")])
    until(lambda: stage.journal("end", value="second"), "the second record handled")
    assert 1 == len(out.read_to_end())
    produce(broker.bootstrap, topic, [(b"k", b"urgent:third")])
    out.until(lambda rows: {b"first", b"second", b"urgent:third"} == {row.value for row in rows}, "all of them")


def test_a_batch_of_many_bytes_does_not_wait_for_the_interval(stage_factory, reader, broker):
    """What waits for its commit is held in memory."""
    stage = stage_factory("parallel", partitions=1)
    stage.worker(delivery__commit_interval_s=600, delivery__commit_bytes=20_000).start()
    out = reader(stage.toy.out)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"first")])
    out.until(lambda rows: rows, "the first record, at once")
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"%d:" % n + bytes(900)) for n in range(40)])
    out.until(lambda rows: len(rows) > 20, "more than one commit")


# ---- what is in flight


def test_submit_never_waits(stage_factory, reader, broker):
    """A stuck partition and a full lane delay nobody else, and nothing of what was held back is lost."""
    stage = stage_factory("parallel", inputs=2, slots=4)
    urgent, bulk = stage.toy.inputs
    stuck = [(b"s%d" % number, b"gate:stuck:%d" % number) for number in range(1_500)]
    produce(broker.bootstrap, bulk, stuck, partition=0)
    stage.worker(delivery__queue_records=50).start()
    stage.until_begun(b"gate:stuck:1")
    passed = {(urgent, 0): fresh(300), (urgent, 1): fresh(300), (bulk, 1): fresh(300)}
    for (topic, partition), sent in passed.items():
        produce(broker.bootstrap, topic, sent, partition)
    out = reader(stage.toy.out)
    out.until_count(900)
    begun = stage.journal("begin", topic=bulk, partition=0)
    assert 2 == len(begun)  # its share of four slots for two partitions
    stage.open_gate("stuck")
    out.until_count(2_400)
    expected = {value for _, value in stuck} | {value for sent in passed.values() for _, value in sent}
    assert dict.fromkeys(expected, 1) == dict(out.values)


def test_a_restart_redoes_only_what_was_in_flight(stage_factory, reader, offsets, broker):
    """The offset map of the commit: what has overtaken a slow record is not handled a second time."""
    stage = stage_factory("parallel", partitions=1)
    topic = stage.toy.inputs[0]
    quick = fresh(50)
    produce(broker.bootstrap, topic, [(b"k", b"gate:slow"), *quick])
    worker = stage.worker().start()
    out, group = reader(stage.toy.out), offsets(stage.toy.group)
    out.until_count(50)
    until(lambda: len(decode(group.metadata(topic, 0), 0, topic, 0).done) == 50, "the map of all fifty")
    assert {0: 0} == group.committed(topic, 1)
    worker.kill()
    worker.start()
    stage.until_begun(b"gate:slow", times=2)
    stage.open_gate("slow")
    out.until_count(51)
    until(lambda: {0: 51} == group.committed(topic, 1), "everything committed")
    assert {1} == {stage.begun(value) for _, value in quick}
    assert 51 == len(out.read_to_end())


# ---- what an abort undoes


@pytest.mark.parametrize("kind", KINDS)
def test_an_abort_rolls_everything_back(stage_factory, reader, broker, kind):
    """Staged state, memory and finished set go back to the last commit: the same records, the same outputs, once."""
    stage = stage_factory(kind, aborts=4)
    sent = fresh(100)
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    worker = stage.worker().start()
    out = reader(stage.toy.out)
    rows = out.until_count(100 if kind == "parallel" else 200)
    seen = reader(stage.toy.out, "read_uncommitted").read_to_end()
    assert len(seen) > len(rows)  # something was aborted
    if kind == "parallel":
        assert dict.fromkeys([value for _, value in sent], 1) == dict(out.values)
    else:
        assert stage.journal("aborted")
        assert_each_key_once(out.rows, sent)
    assert worker.running


def assert_each_key_once(rows, sent):
    """Each key's first record is passed on once, numbered without a gap, and so is its timer."""
    value_of = dict(sent)
    firsts = [row for row in rows if row.value.startswith(b"first:")]
    for partition in {row.partition for row in firsts}:
        numbers = [int(row.value.split(b":")[1]) for row in firsts if row.partition == partition]
        assert list(range(1, len(numbers) + 1)) == sorted(numbers)
    assert sorted(value_of.items()) == sorted((row.key, row.value.split(b":", 2)[2]) for row in firsts)
    timers = [row for row in rows if row.value.startswith(b"timer:")]
    assert sorted(value_of.items()) == sorted((row.key, row.value.split(b":", 1)[1]) for row in timers)


def test_what_the_broker_refuses_is_undone_and_done_again(stage_factory, reader, broker):
    """An abort as the broker gives it: a record larger than its topic takes, which the second try makes smaller."""
    stage = stage_factory("ordered", partitions=1, out_config={"max.message.bytes": "100000"})
    sent = [*fresh(10), *fresh(1, verb="refused"), *fresh(10)]
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    stage.worker().start()
    assert_each_key_once(reader(stage.toy.out).until_count(42), sent)
    assert stage.journal("aborted")


def test_state_is_applied_only_after_the_commit(stage_factory, reader, broker):
    """A store that leads its changelog would take a record for seen whose output nobody will ever read."""
    stage = stage_factory("ordered", partitions=1)
    worker = stage.worker()
    stage.hold("before_commit", "a")
    sent = fresh(20)
    produce(broker.bootstrap, stage.toy.inputs[0], sent)
    worker.start()
    stage.stands_at("before_commit", "a")
    worker.kill()
    store = PartitionStore(worker.state_dir / "0", ("s", "t"))
    assert (0, []) == (store.applied, list(store.items("s")))
    store.close()
    stage.release("before_commit", "a")
    worker.start()
    assert_each_key_once(reader(stage.toy.out).until_count(40), sent)
