"""What is pending: right while much is finished ahead, readable without a worker; orders reach who can obey."""

from __future__ import annotations

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.delivery.offsets import MAX_METADATA_CHARACTERS, MAX_UNFINISHED
from pipeline.ops.control import ControlClient
from pipeline.ops.lag import LagReader
from pipeline.ops.pending import combine, oldest_unfinished_ms
from tests.chaos.ledger import produce
from tests.chaos.process import until

pytestmark = pytest.mark.broker

WAIT_S = 5.0
STUCK = 1_000
FINISHED = 50_000
NO_PLACE = ("", 0, 0)


@pytest.fixture
def options(broker):
    """Of the broker."""
    return {"bootstrap.servers": broker.bootstrap}


def client(stage, options):
    """Ask the workers of a toy stage."""
    return ControlClient(
        options, load_codec(), control=f"{stage.toy.group}-control", answers=f"{stage.toy.group}-answers"
    )


def lags_of(stage, options):
    """Read what the broker knows."""
    with LagReader(options) as lags:
        return lags.read(stage.toy.group, stage.toy.inputs, stage.partitions)


def ordered(stage, options, command, *place):
    """Give an order; returns the worker that obeyed, None where none did."""
    answers = client(stage, options).ask(command, f"toy-{stage.kind}", (stage.toy.inputs[0], *place), WAIT_S)
    return next((answer["worker"] for answer in answers if answer["done"]), None)


def test_what_is_no_answer_is_passed_over(stage_factory, broker, options):
    """Whoever writes to the topic of the answers keeps nobody from getting theirs."""
    stage = stage_factory("parallel", partitions=1, served=True)
    stage.worker("a").start()
    stage.assigned_to("a")
    asked = []

    def first_answer():
        asked.append(client(stage, options).ask("PENDING", "toy-parallel", NO_PLACE, WAIT_S))
        return next(asked[-1], None)

    assert "toy-parallel-a" == until(first_answer, "an answer: the worker listens a moment after it works")["worker"]
    produce(broker.bootstrap, f"{stage.toy.group}-answers", [(b"", b"junk")], partition=0)
    assert [] == list(asked[-1])


def test_pending_is_right_while_a_thousand_are_unfinished_and_fifty_thousand_finished_ahead(
    stage_factory, reader, broker, options
):
    """The map names each unfinished record, fits the commit, needs no worker, and survives its worker's death."""
    stage = stage_factory("parallel", partitions=1, slots=2 * MAX_UNFINISHED, served=True)
    worker = stage.worker("a", delivery__queue_records=10_000).start()
    apart = FINISHED // STUCK + 2
    rows = [
        (b"k", b"gate:later:%d" % number if number % apart == 0 else b"v:%d" % number)
        for number in range(STUCK * apart)
    ]
    produce(broker.bootstrap, stage.toy.inputs[0], rows, partition=0)
    expected = [number * apart for number in range(STUCK)]
    (lag,) = until(
        lambda: (
            (lags := lags_of(stage, options))[0].offset_map and list(lags[0].offset_map.unfinished) == expected and lags
        ),
        "the thousand unfinished",
    )
    assert (0, True) == (lag.committed, lag.finished_ahead >= FINISHED)
    answers = [next(client(stage, options).ask("PENDING", "toy-parallel", NO_PLACE, WAIT_S))]
    (row,) = combine([lag], answers, oldest_unfinished_ms(options, [lag]))
    assert 0 < row.map_characters <= MAX_METADATA_CHARACTERS
    assert "toy-parallel-a" == row.owner
    assert expected[:20] == [record["offset"] for record in row.at_hand["records"]]
    assert row.oldest_ms is not None
    worker.kill()
    (after,) = lags_of(stage, options)
    assert (0, expected) == (after.committed, list(after.offset_map.unfinished))
    stage.open_gate("later")
    worker.start()
    out = reader(stage.toy.out)
    out.until_count(len(rows))
    assert {1} == set(out.values.values())
    assert len(rows) <= len(stage.journal("begin")) <= len(rows) + STUCK + apart


def test_a_stuck_record_is_handed_back(stage_factory, reader, broker, options):
    """By the worker that has it, which begins it anew; the first handling, should it end, counts for nothing."""
    stage = stage_factory("parallel", partitions=2, served=True)
    stage.worker("a").start()
    stage.worker("b").start()
    stage.assigned_to("a")
    stage.assigned_to("b")
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"stubborn:gate")], partition=1)
    stage.until_begun(b"stubborn:gate")
    owner = until(lambda: ordered(stage, options, "RELEASE", 1, 0), "somebody who obeys")
    stage.until_begun(b"stubborn:gate", 2)
    answers = list(client(stage, options).ask("PENDING", "toy-parallel", NO_PLACE, 2.0))
    assert {(owner, 0, 2)} == {
        (answer["worker"], record["offset"], record["attempts"])
        for answer in answers
        for row in answer["partitions"]
        for record in row["records"]
    }
    assert {"toy-parallel-a", "toy-parallel-b"} == {answer["worker"] for answer in answers}
    stage.open_gate("gate")
    stage.open_gate("gate.after")
    out = reader(stage.toy.out)
    out.until_count(1)
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"v:last")], partition=1)
    out.until_count(2)
    assert {b"stubborn:gate": 1, b"v:last": 1} == out.values


def test_a_stuck_record_is_given_up(stage_factory, reader, broker, options):
    """It becomes a dead letter at once, which can be replayed when its cause is mended."""
    stage = stage_factory("parallel", partitions=1, served=True)
    stage.worker("a").start()
    stage.assigned_to("a")
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"gate:never")])
    stage.until_begun(b"gate:never")
    assert "toy-parallel-a" == until(lambda: ordered(stage, options, "GIVE_UP", 0, 0), "somebody who obeys")
    (letter,) = reader(f"{stage.toy.inputs[0]}-dlq").until_count(1)
    assert (b"gate:never", b"policy") == (letter.value, letter.headers["dlq-reason"])


@pytest.mark.parametrize("kind", ["parallel", "ordered"])
def test_a_partition_that_its_breaker_has_stopped_is_resumed(stage_factory, reader, broker, options, kind):
    """Without a restart, which would stop the other partitions too."""
    stage = stage_factory(kind, partitions=1, served=True)
    stage.worker("a", delivery__breaker_records=5).start()
    stage.assigned_to("a")
    bad = [(b"bad%d" % number, b"poison:%d" % number) for number in range(5)]
    produce(broker.bootstrap, stage.toy.inputs[0], [*bad, (b"good", b"v:good")])
    paused = until(
        lambda: [
            row["paused"]
            for answer in client(stage, options).ask("PENDING", f"toy-{kind}", NO_PLACE, 1.0)
            for row in answer["partitions"]
            if row["paused"]
        ],
        "a partition that stands still",
    )
    assert ["breaker: too much of it went to the dead letters"] == paused
    assert f"toy-{kind}-a" == ordered(stage, options, "RESUME", 0, 0)
    reader(stage.toy.out).until(lambda rows: any((row.value or b"").endswith(b"v:good") for row in rows), "v:good")
