from __future__ import annotations

import threading

import pytest

from pipeline.api.acceptor import Acceptor
from pipeline.delivery.transactions import ReplacedError
from pipeline.errors import BrokerError

LIMIT_S = 10.0


class Writer:
    """Writes when it is let to."""

    def __init__(self):
        self.calls = []
        self.errors = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def write(self, wishes):
        self.entered.release()
        assert self.gate.acquire(timeout=LIMIT_S)
        if self.errors:
            raise self.errors.pop(0)
        self.calls.append(list(wishes))


class World:
    """An acceptor, its writer and a clock."""

    def __init__(self):
        self.writer = Writer()
        self.replaced = []
        self.now_s = 0.0
        self.acceptor = Acceptor(self.writer, self.replaced.append, 60.0, lambda: self.now_s)
        self.acceptor.start()


@pytest.fixture
def world():
    """Ended after the test."""
    made = World()
    yield made
    made.writer.gate.release(1_000)
    made.acceptor.stop(LIMIT_S)
    assert not made.acceptor._thread.is_alive()


def test_what_comes_during_a_transaction_shares_the_next(world):
    """A transaction each would be some fifty requests a second for all users together."""
    first = world.acceptor.accept(["a"])
    assert world.writer.entered.acquire(timeout=LIMIT_S)
    others = [world.acceptor.accept([name]) for name in "bc"]
    assert not first.done()
    world.writer.gate.release(2)
    for future in (first, *others):
        assert None is future.result(LIMIT_S)
    assert [["a"], ["b", "c"]] == world.writer.calls


def test_nobody_is_told_of_success_before_it_is_there(world):
    """202 is a promise; an error is told to all whom it concerns, and the next ones are tried again."""
    world.writer.errors = [BrokerError("no answer"), RuntimeError("a fault of ours")]
    world.writer.gate.release(3)
    with pytest.raises(BrokerError):
        world.acceptor.accept(["a"]).result(LIMIT_S)
    with pytest.raises(RuntimeError):
        world.acceptor.accept(["b"]).result(LIMIT_S)
    assert None is world.acceptor.accept(["c"]).result(LIMIT_S)
    assert [["c"]] == world.writer.calls
    assert [] == world.replaced


def test_a_request_that_gave_up_while_it_waited_is_not_carried_out(world):
    """Its client was told that it was not."""
    world.acceptor.accept(["a"])
    assert world.writer.entered.acquire(timeout=LIMIT_S)
    given_up = world.acceptor.accept(["b"])
    assert given_up.cancel()
    last = world.acceptor.accept(["c"])
    world.writer.gate.release(2)
    last.result(LIMIT_S)
    assert [["a"], ["c"]] == world.writer.calls


def test_who_was_replaced_says_so(world):
    """The process must end, or two of one name would fence each other for ever."""
    error = ReplacedError("fenced")
    world.writer.errors = [error]
    world.writer.gate.release()
    with pytest.raises(ReplacedError):
        world.acceptor.accept(["a"]).result(LIMIT_S)
    world.acceptor.stop(LIMIT_S)
    assert [error] == world.replaced


def test_its_health_turns_red_when_a_transaction_does_not_end(world):
    """A new process is the cure then; that a broker refuses is none of its faults."""
    assert world.acceptor.health().ok
    future = world.acceptor.accept(["a"])
    assert world.writer.entered.acquire(timeout=LIMIT_S)
    world.now_s = 60.0
    assert world.acceptor.health().ok
    world.now_s = 61.0
    assert (False, "a transaction has been under way for 61 s") == world.acceptor.health()
    world.writer.gate.release()
    future.result(LIMIT_S)
    world.acceptor.stop(LIMIT_S)
    assert not world.acceptor.health().ok
