"""Standstills that heartbeats hide, each provoked in a worker on a real broker: they show, and they end."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from pipeline.delivery.exits import ExitCode
from tests.chaos.ledger import produce
from tests.chaos.process import until

pytestmark = pytest.mark.broker

STALL_S = 2
PATIENT = {"delivery__stall_s": STALL_S}
LOOKS = 250
"""50 a second at most."""
VALUES = [b"v:%d" % number for number in range(20)]


def health(stage):
    """Ask `/healthz` of the worker that was started last; None while it does not answer."""
    served = stage.journal("served")
    if not served:
        return None
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served[-1]['port']}/healthz", timeout=5) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return json.loads(refused.read())
    except OSError:
        return None


def becomes_red(stage):
    """Wait until `/healthz` is red; returns why."""
    return until(lambda: (state := health(stage)) and not state["ok"] and state["reason"], "a red /healthz")


def restarts_and_goes_on(stage, worker, reader, expected):
    """The worker ends by itself, says why, and its successor does what is left, once."""
    assert ExitCode.BUG == worker.exit_status()
    assert "starting it again is the cure" in worker.log()
    worker.start(worker.toy.without_faults())
    out = reader(stage.toy.out)
    out.until_count(expected)
    assert {1} == set(out.values.values())


@pytest.mark.parametrize(
    "fault", [{"drop_batch": 2}, {"agent_ends": 2}, {"deaf": 0}], ids=["dropped at the tail", "agent", "not fetched"]
)
@pytest.mark.parametrize("kind", ["parallel", "ordered"])
def test_what_does_not_arrive_is_noticed_and_read_again(stage_factory, reader, broker, kind, fault):
    """A batch dropped at a partition's tail, a dead agent, a partition that isn't fetched: only the lag tells."""
    stage = stage_factory(kind, partitions=1, served=True, timer_s=0.1, **fault)
    worker = stage.worker("a", **PATIENT).start()
    stage.assigned_to("a")
    each = 1 if kind == "parallel" else 2
    out = reader(stage.toy.out)
    if "deaf" not in fault:  # the first batch arrives
        produce(broker.bootstrap, stage.toy.inputs[0], [(b"first", b"v:first")])
        out.until_count(each)
    produce(broker.bootstrap, stage.toy.inputs[0], [(value, value) for value in VALUES])
    assert "nothing of " in becomes_red(stage)
    restarts_and_goes_on(stage, worker, reader, each * (len(VALUES) + ("deaf" not in fault)))


def test_an_idle_worker_stays_green(stage_factory, reader, broker):
    """Nothing to read is no standstill, however long; control records at the end are nothing to read."""
    stage = stage_factory("parallel", partitions=2, served=True)
    stage.worker("a", **PATIENT).start()
    produce(broker.bootstrap, stage.toy.inputs[0], [(value, value) for value in VALUES])
    reader(stage.toy.out).until_count(len(VALUES))
    looked = []
    until(lambda: looked.append(health(stage)) or len(looked) > LOOKS, "looks for longer than a standstill is allowed")
    assert {True} == {state["ok"] for state in looked if state}


def test_a_handler_that_blocks_the_loop_ends_the_worker_and_is_found_out(stage_factory, reader, broker):
    """The loop can't cancel what it does not get back from; three times the same record, and it is a dead letter."""
    stage = stage_factory("parallel", partitions=1, served=True)
    worker = stage.worker("a", **PATIENT).start()
    stage.assigned_to("a")
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"block:never"), *((value, value) for value in VALUES)])
    for _ in range(3):
        assert ExitCode.BUG == worker.exit_status()
        worker.start()
    letters = reader(f"{stage.toy.inputs[0]}-dlq")
    (letter,) = letters.until_count(1)
    assert (b"block:never", b"crash_loop") == (letter.value, letter.headers["dlq-reason"])
    out = reader(stage.toy.out)
    out.until_count(len(VALUES) + 1)
    assert {1} == set(out.values.values())


def test_a_round_that_does_not_end_is_red_and_ends_the_worker(stage_factory, reader, broker):
    """An ordered stage works in a thread, and a thread can't be cut: the record is found out by the journal."""
    stage = stage_factory("ordered", partitions=1, served=True, timer_s=0.1)
    worker = stage.worker("a", **PATIENT).start()
    stage.assigned_to("a")
    produce(broker.bootstrap, stage.toy.inputs[0], [(b"k", b"gate:never"), *((value, value) for value in VALUES)])
    assert "no commit for " in becomes_red(stage)
    for _ in range(3):
        assert ExitCode.BUG == worker.exit_status()
        worker.start()
    (letter,) = reader(f"{stage.toy.inputs[0]}-dlq").until_count(1)
    assert (b"gate:never", b"crash_loop") == (letter.value, letter.headers["dlq-reason"])
    out = reader(stage.toy.out)
    out.until_count(2 * len(VALUES))
    assert {1} == set(out.values.values())


def test_a_commit_that_stands_still_is_red_and_ends_the_worker(stage_factory, reader, broker):
    """Work at hand, heartbeats well, nothing visible: only the age of the commit tells."""
    stage = stage_factory("parallel", partitions=1, served=True)
    worker = stage.worker("a", **PATIENT).start()
    stage.assigned_to("a")
    stage.hold("before_commit", "a")
    produce(broker.bootstrap, stage.toy.inputs[0], [(value, value) for value in VALUES])
    assert "no commit for " in becomes_red(stage)
    assert worker.exit_status() in {ExitCode.BUG, ExitCode.BROKER}
    stage.release("before_commit", "a")
    worker.start()
    out = reader(stage.toy.out)
    out.until_count(len(VALUES))
    assert {1} == set(out.values.values())


@pytest.mark.parametrize(
    ("point", "words"), [("offsets_read", "the start offsets are read"), ("restore_start", "the state is restored")]
)
def test_a_start_that_stands_still_is_red_and_goes_on_when_it_can(stage_factory, reader, broker, point, words):
    """Nothing is committed yet, so no commit is missing; what it waits for is not ended by a restart."""
    stage = stage_factory("ordered", partitions=1, served=True, timer_s=0.1)
    produce(broker.bootstrap, stage.toy.inputs[0], [(value, value) for value in VALUES])
    stage.hold(point, "a")
    worker = stage.worker("a", delivery__stall_s=1).start()
    stage.stands_at(point, "a")
    assert becomes_red(stage).endswith(f"while {words}")
    stage.release(point, "a")
    reader(stage.toy.out).until_count(2 * len(VALUES))
    until(lambda: (health(stage) or {}).get("ok"), "a green /healthz")
    assert worker.running


def test_a_handler_that_never_returns_is_a_dead_letter_and_the_rest_goes_on(stage_factory, reader, broker):
    """Cancelled at `handler_s`, and given up although it does not even end then."""
    stage = stage_factory("parallel", partitions=1)
    stage.worker("a", delivery__handler_s=1).start()
    produce(
        broker.bootstrap,
        stage.toy.inputs[0],
        [(b"k", b"gate:never"), (b"k", b"stubborn:never"), *((value, value) for value in VALUES)],
    )
    letters = reader(f"{stage.toy.inputs[0]}-dlq").until_count(2)
    assert {(b"gate:never", b"deadline"), (b"stubborn:never", b"deadline")} == {
        (letter.value, letter.headers["dlq-reason"]) for letter in letters
    }
    out = reader(stage.toy.out)
    out.until_count(len(VALUES) + 2)
    assert {1} == set(out.values.values())
