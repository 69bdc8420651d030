"""A start that stands still, on a clock of the test's own, and in a runner whose steps wait for the test."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest
from faust.types import TP

from pipeline.delivery.assignment import Assignment
from pipeline.delivery.identity import Identity
from pipeline.delivery.start_watch import StartWatch
from tests.unit.test_delivery_parallel import LIMIT_S, PLACES, World, keep_alive

STALL_S = 60.0


class Clock:
    """Seconds that the test sets."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def test_a_step_without_progress_is_told_until_it_moves():
    """Progress is what counts, not age: a large state is restored for minutes."""
    clock = Clock()
    watch = StartWatch(clock)
    with watch.step("the state is restored") as moved:
        clock.now_s = STALL_S
        assert "" == watch.complaint(STALL_S)
        clock.now_s += 1.0
        assert "nothing has moved for 61 s while the state is restored" == watch.complaint(STALL_S)
        moved()
        assert "" == watch.complaint(STALL_S)
    clock.now_s += 1_000.0
    assert "" == watch.complaint(STALL_S)


def test_a_step_that_fails_is_over():
    """The error has a way of its own."""
    clock = Clock()
    watch = StartWatch(clock)
    with pytest.raises(ZeroDivisionError), watch.step("a step") as moved:
        raise ZeroDivisionError
    moved()  # its thread may still go on
    clock.now_s = 1_000.0
    assert "" == watch.complaint(STALL_S)


def test_of_two_steps_the_one_that_stands_still_is_told():
    """A restore of an earlier assignment may still run beside."""
    clock = Clock()
    watch = StartWatch(clock)
    with watch.step("one"), watch.step("other") as moved:
        clock.now_s = 61.0
        moved()
        assert watch.complaint(STALL_S).endswith("while one")


class Standing:
    """Stands in for producer, offsets and transactions: each step waits until the test lets it go on."""

    def __init__(self):
        self.gates = {name: threading.Event() for name in ("open", "group", "own", "starts")}

    def open(self):
        self.gates["open"].wait(LIMIT_S)

    def wait_for_group(self, topics, partitions, limit_s, moved):
        self.gates["group"].wait(LIMIT_S)

    async def wait_for_end(self, limit_s):
        await asyncio.to_thread(self.gates["own"].wait, LIMIT_S)

    def starts(self, partitions, wanted, limit_s, moved):
        self.gates["starts"].wait(LIMIT_S)


async def test_each_step_of_a_start_is_red_while_it_stands_still(tmp_path, monkeypatch):
    """Heartbeats go on, nothing is committed, and nothing else would tell."""
    keep_alive(monkeypatch)
    world, clock, standing = World(tmp_path), Clock(), Standing()
    runner = world.runner
    runner._start_watch = StartWatch(clock)
    runner._producer = runner._stable_offsets = runner._own_transactions = standing
    asked = asyncio.ensure_future(runner.starts(Assignment(Identity("group", 1, "member"), frozenset(PLACES), {})))
    for gate, words in [
        ("open", "the producer is opened"),
        ("group", "the group's offsets are read"),
        ("own", "the producer's earlier transactions are looked for"),
        ("starts", "the start offsets are read"),
    ]:
        while not any(step.name == words for step in runner._start_watch._steps):  # noqa: ASYNC110  # set by a thread
            await asyncio.sleep(0.001)
        clock.now_s += 61.0
        assert f"nothing has moved for 61 s while {words}" == runner.complaint()
        assert "" == runner.standstill()  # so nobody ends the worker for it
        standing.gates[gate].set()
    await asyncio.wait_for(asked, LIMIT_S)
    assert "" == runner.complaint()


def test_a_restore_moves_with_its_store(tmp_path):
    """The changelog asks between chunks whether it shall go on."""
    world, moves = World(tmp_path), []
    assignment = Assignment(Identity("group", 1, "member"), frozenset({TP("in", 0)}), {})
    world.runner._assignment = world.app.consumer.current_assignment = assignment
    store = SimpleNamespace(applied=0)
    wanted = world.runner._wanted(assignment, store, lambda: moves.append(store.applied))
    answers = [wanted()]
    for applied in (5, 5, 9):
        store.applied = applied
        answers.append(wanted())
    assert ([5, 9], {True}) == (moves, set(answers))
