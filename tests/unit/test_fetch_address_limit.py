from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fetch import address_limit
from pipeline.fetch.address_limit import AddressBusy, AddressLimiter
from pipeline.fetch.slots import Slot
from tests.jumping_clock import JumpingClock, settle

ONE, OTHER = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def clock() -> JumpingClock:
    """A clock of the test's own."""
    return JumpingClock()


def make(clock, in_flight=2, interval_s=0.0):
    """A limiter whose waits are at most ten seconds."""
    return AddressLimiter(in_flight=in_flight, interval_s=interval_s, max_wait_s=10.0, clock=clock)


def ask(limiter, *addresses) -> asyncio.Task[Slot]:
    """Somebody who wants a slot."""
    return asyncio.create_task(limiter.acquire(addresses or (ONE,)))


async def test_an_address_has_only_so_many_requests_in_flight(clock):
    """Two thousand domains on one machine are polite one by one, and too many together."""
    limiter = make(clock)
    first, second, third, other = ask(limiter), ask(limiter), ask(limiter), ask(limiter, OTHER)
    await settle()
    assert [True, True, False, True] == [task.done() for task in (first, second, third, other)]
    second.result().release()
    await settle()
    assert third.done()


async def test_starts_are_kept_apart(clock):
    """The interval runs from start to start: how long an answer takes does not matter."""
    limiter = make(clock, in_flight=9, interval_s=2.0)
    tasks = [ask(limiter) for _ in range(3)]
    for done in (1, 1, 2, 2, 3):
        await settle()
        assert done == sum(task.done() for task in tasks)
        await clock.advance(1)


async def test_who_can_not_start_soon_is_told_at_once(clock):
    """Its place in the worker is for work that can run."""
    limiter = make(clock, in_flight=99, interval_s=4.0)
    tasks = [ask(limiter) for _ in range(4)]
    await settle()
    with pytest.raises(AddressBusy) as caught:
        await tasks[3]
    assert clock.now() + 12 == caught.value.not_before


async def test_who_waited_long_enough_is_told(clock):
    """Nobody knows when a request in flight will end."""
    limiter = make(clock, in_flight=1)
    await ask(limiter)
    task = ask(limiter)
    await clock.advance(9.9)
    assert not task.done()
    await clock.advance(0.1)
    with pytest.raises(AddressBusy) as caught:
        await task
    assert clock.now() == caught.value.not_before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((ONE, OTHER), (OTHER, ONE)),
        (("2001:db8::1",), ("2001:db8::ffff:1",)),
        (("fe80::1%eth0",), ("fe80::1",)),
    ],
)
async def test_names_that_lead_to_one_place_share_its_limit(clock, one, other):
    """Names of a pool come in any order, and a machine has a whole IPv6 network."""
    limiter = make(clock, in_flight=1)
    await ask(limiter, *one)
    task = ask(limiter, *other)
    await settle()
    assert not task.done()


async def test_a_cancelled_waiter_leaves_no_damage(clock):
    """Partitions move in the middle of a wait."""
    limiter = make(clock, in_flight=1)
    slot = await ask(limiter)
    gone, behind = ask(limiter), ask(limiter)
    await settle()
    gone.cancel()
    slot.release()
    await settle()
    assert isinstance(behind.result(), Slot)
    behind.result().release()
    late = ask(limiter)
    slot = await late
    waiting = ask(limiter)
    await settle()
    slot.release()
    waiting.cancel()  # granted, and not yet awake
    await settle()
    assert isinstance(await ask(limiter), Slot)
    assert 0 == clock.armed


async def test_idle_addresses_are_forgotten(clock):
    """A worker meets a million of them."""
    limiter = make(clock, interval_s=1.0)
    for number in range(3 * address_limit.FIRST_SWEEP):
        (await ask(limiter, f"198.51.{number // 250}.{number % 250}")).release()
        await clock.advance(0.01)
    assert len(limiter) <= 2 * address_limit.FIRST_SWEEP


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["ask", "release", "cancel", "wait"]), st.integers(0, 9)), max_size=40),
    st.sampled_from([0.0, 0.5, 3.0]),
)
def test_the_limits_hold_whatever_happens(steps, interval_s):
    """Asking, answering and cancelling in any order; nobody waits for ever."""
    asyncio.run(_play(steps, interval_s))


async def _play(steps, interval_s) -> None:
    clock = JumpingClock()
    limiter = make(clock, in_flight=2, interval_s=interval_s)
    tasks: list[asyncio.Task[Slot]] = []
    out: list[Slot] = []
    last_start = -1e9

    def collect() -> None:
        nonlocal last_start
        for task in [task for task in tasks if task.done()]:
            tasks.remove(task)
            if task.cancelled() or task.exception() is not None:
                continue
            out.append(task.result())
            assert len(out) <= 2
            assert clock.now() >= last_start + interval_s
            last_start = clock.now()

    for kind, number in steps:
        if kind == "ask":
            tasks.append(ask(limiter))
        elif kind == "cancel" and tasks:
            tasks[number % len(tasks)].cancel()
        elif kind == "release" and out:
            out.pop(number % len(out)).release()
        elif kind == "wait":
            await clock.advance(number / 4, collect)
        await settle()
        collect()
    await clock.advance(20, collect)
    assert [] == tasks
    assert 0 == clock.armed
