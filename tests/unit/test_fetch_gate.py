from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.fetch import gate as gate_module
from pipeline.fetch.gate import PUT_OFF_S, DomainGate
from pipeline.fetch.slots import Deferred, LoopClock, Slot
from tests.jumping_clock import JumpingClock, settle

DOMAIN = "site.test"
PARTITION = 3


@pytest.fixture
def clock() -> JumpingClock:
    """A clock of the test's own."""
    return JumpingClock()


@pytest.fixture
def gate(clock) -> DomainGate:
    """A gate whose partition was taken over long ago."""
    made = DomainGate(max_wait_s=10.0, per_domain=3, clock=clock)
    made.opened(PARTITION)
    clock.time += 1000
    return made


def ask(gate: DomainGate, delay_s: float = 1.0, domain: str = DOMAIN, **more) -> asyncio.Task[Slot | Deferred]:
    """Somebody who wants a slot."""
    return asyncio.create_task(gate.acquire(domain, PARTITION, delay_s=delay_s, **more))


async def granted(task: asyncio.Task[Slot | Deferred]) -> Slot:
    """The slot of one who has it by now."""
    await settle()
    assert task.done()
    slot = task.result()
    assert isinstance(slot, Slot)
    return slot


async def test_a_domain_that_rested_is_asked_at_once(gate):
    """Waiting without a reason would cost seconds on every new site."""
    await granted(ask(gate))


async def test_the_delay_runs_from_the_end_of_the_response(gate, clock):
    """A slow answer means a busy site: it is not asked again the moment it is done."""
    slot = await granted(ask(gate))
    second = ask(gate)
    await clock.advance(5)
    assert not second.done()
    slot.release()
    await clock.advance(0.99)
    assert not second.done()
    await clock.advance(0.01)
    await granted(second)


async def test_the_first_come_are_served_first(gate, clock):
    """Order is the frontier's decision; the gate keeps it."""
    slot = await granted(ask(gate))
    waiting = [ask(gate) for _ in range(4)]
    await settle()
    slot.release()
    served = []
    for _ in range(4):
        await clock.advance(1)
        for number, task in enumerate(waiting):
            if task.done() and number not in served:
                served.append(number)
                task.result().release()
    assert [0, 1, 2, 3] == served


async def test_one_domain_does_not_wait_for_another(gate):
    """Sites are asked side by side."""
    await granted(ask(gate))
    await granted(ask(gate, domain="other.test"))


async def test_without_a_delay_several_are_out_at_once(gate, clock):
    """A person's own site may be crawled at full speed, within bounds."""
    slots = [await granted(ask(gate, 0.0)) for _ in range(3)]
    fourth = ask(gate, 0.0)
    await clock.advance(5)
    assert not fourth.done()
    slots[1].release()
    await granted(fourth)


async def test_a_request_with_a_delay_has_no_company(gate, clock):
    """Crawls with different delays meet in one domain: the careful one gets what it was promised."""
    free = await granted(ask(gate, 0.0))
    careful = ask(gate, 1.0)
    late = ask(gate, 0.0)
    await clock.advance(3)
    assert not careful.done()
    free.release()
    await clock.advance(1)
    slot = await granted(careful)
    assert not late.done()
    slot.release()
    await clock.advance(1)
    await granted(late)


async def test_a_delay_that_one_host_wants_holds_for_its_whole_domain(gate, clock):
    """A record that was dealt before the crawl-delay was known must not come closer than it allows."""
    (await granted(ask(gate, 0.2, host_delay_s=1.0))).release()
    for _ in range(2):
        unaware = ask(gate, 0.2)
        await clock.advance(0.9)
        assert not unaware.done()
        await clock.advance(0.1)
        (await granted(unaware)).release()


async def test_the_longer_delay_of_two_neighbours_lies_between_them(gate, clock):
    """A crawl with a long delay is granted it before and after; one with a short delay is not slowed down for ever."""
    (await granted(ask(gate, 3.0))).release()
    for pause_s in (3.0, 0.5):
        quick = ask(gate, 0.5)
        await clock.advance(pause_s - 0.1)
        assert not quick.done()
        await clock.advance(0.1)
        (await granted(quick)).release()


async def test_what_a_site_still_allows_is_shared_out_until_it_counts_anew(gate, clock):
    """What is in the lane already would spend it at once, and the rest of the window would be refusals."""
    gate.share(DOMAIN, PARTITION, 4.0, clock.now() + 6.0)
    (await granted(ask(gate, 0.0))).release()
    second, third = ask(gate, 0.0), ask(gate, 0.0)
    await clock.advance(3.9)
    assert not second.done()
    await clock.advance(0.1)
    (await granted(second)).release()
    await clock.advance(1.9)
    assert not third.done()
    await clock.advance(0.1)
    await granted(third)
    await granted(ask(gate, 0.0))


async def test_who_can_not_come_soon_is_told_at_once(gate, clock):
    """A place in the worker is not held for it, and the frontier learns when to send it again."""
    slot = await granted(ask(gate, 6.0))
    near, far = ask(gate, 6.0), ask(gate, 6.0)
    await settle()
    assert not near.done()
    assert Deferred(clock.now() + 12.0) == far.result()
    slot.release()
    await clock.advance(6)
    await granted(near)


async def test_who_waited_long_enough_is_told(gate, clock):
    """Nobody knows when a request that is out will end."""
    await granted(ask(gate, 1.0))
    task = ask(gate, 1.0)
    await clock.advance(9.9)
    assert not task.done()
    await clock.advance(0.1)
    assert isinstance(task.result(), Deferred)


async def test_a_time_before_which_nothing_may_start_is_kept(gate, clock):
    """The frontier's not-before travels in the record."""
    task = ask(gate, 1.0, not_before=clock.now() + 4.0)
    await clock.advance(3.9)
    assert not task.done()
    await clock.advance(0.1)
    await granted(task)
    far = ask(gate, 1.0, domain="far.test", not_before=clock.now() + 40.0)
    await settle()
    assert Deferred(clock.now() + 40.0) == far.result()


async def test_a_domain_that_asked_for_rest_is_left_alone(gate, clock):
    """What is in the lane already does not know of the site's wish; the gate does."""
    slot = await granted(ask(gate))
    waiting = ask(gate)
    await settle()
    gate.hold(DOMAIN, PARTITION, clock.now() + 120)
    slot.release()
    await settle()
    assert Deferred(clock.now() + 120) == waiting.result()
    gate.hold(DOMAIN, PARTITION, clock.now() + 5)
    await clock.advance(119)
    task = ask(gate)
    await clock.advance(0.9)
    assert not task.done()
    await clock.advance(0.1)
    await granted(task)


async def test_after_a_refusal_nothing_goes_out_that_was_dealt_before(gate, clock):
    """Else each task in the lane would be one more request to a site that refuses, at the pace of its shortest rest."""
    slot = await granted(ask(gate, dealt_at=clock.now() - 5))
    waiting = ask(gate, dealt_at=clock.now() - 1)
    await settle()
    gate.hold(DOMAIN, PARTITION, clock.now() + 2)
    gate.refuse(DOMAIN, PARTITION)
    slot.release()
    until = clock.now() + 2
    assert Deferred(until) == await waiting
    assert Deferred(until) == await ask(gate, dealt_at=clock.now() - 0.5)
    await clock.advance(3)
    assert Deferred(clock.now() + PUT_OFF_S) == await ask(gate, dealt_at=clock.now() - 3.5)
    await granted(ask(gate, dealt_at=clock.now() - 0.5))
    assert 0 == clock.armed


async def test_the_first_request_after_a_takeover_waits_a_full_delay(gate, clock):
    """The former owner may have asked a moment ago, and nobody can know."""
    gate.opened(7)
    first = asyncio.create_task(gate.acquire(DOMAIN, 7, delay_s=2.0))
    other = asyncio.create_task(gate.acquire("other.test", 7, delay_s=0.0))
    await clock.advance(1.9)
    assert not first.done()
    await granted(other)
    await clock.advance(0.1)
    await granted(first)


async def test_a_partition_that_is_gone_leaves_nobody_waiting(gate, clock):
    """A forgotten waiter would hold its record for ever."""
    slot = await granted(ask(gate))
    waiting = [ask(gate), ask(gate)]
    await settle()
    gate.closed(PARTITION)
    await settle()
    assert [Deferred(clock.now())] * 2 == [task.result() for task in waiting]
    assert 0 == len(gate)
    slot.release()
    assert 0 == clock.armed


async def test_a_cancelled_waiter_leaves_no_damage(gate, clock):
    """Partitions move in the middle of a wait; those behind go on as if it had never come."""
    slot = await granted(ask(gate))
    first, second = ask(gate), ask(gate)
    await settle()
    first.cancel()
    await settle()
    slot.release()
    await clock.advance(1)
    await granted(second)


async def test_a_cancelled_waiter_stands_before_nobody(gate):
    """Counted on, it would send those behind it away for a place that is free."""
    await granted(ask(gate, 6.0))
    gone = ask(gate, 6.0)
    await settle()
    gone.cancel()
    await settle()
    behind = ask(gate, 6.0)
    await settle()
    assert not behind.done()


async def test_a_slot_that_was_granted_to_a_cancelled_waiter_comes_back(gate, clock):
    """Between the grant and the waking a task can be cancelled: the slot must not be lost with it."""
    slot = await granted(ask(gate, 0.0))
    task = ask(gate, 1.0)
    behind = ask(gate, 1.0)
    await settle()
    slot.release()
    clock.time += 1.0
    gate.hold(DOMAIN, PARTITION, 0.0)  # serves: the slot is granted, the task not yet awake
    task.cancel()
    await settle()
    assert task.cancelled()
    await granted(behind)


async def test_a_slot_that_was_not_used_costs_no_delay(gate):
    """A request that was never made gives the site no reason for a pause."""
    slot = await granted(ask(gate))
    slot.discard()
    slot.release()
    await granted(ask(gate))


async def test_idle_domains_are_forgotten(gate, clock, monkeypatch):
    """A worker meets millions of domains; only those it could still offend are remembered."""
    for number in range(3 * gate_module.FIRST_SWEEP):
        (await gate.acquire(f"{number}.test", PARTITION, delay_s=1.0)).release()
        clock.time += 0.1
    assert len(gate) <= 2 * gate_module.FIRST_SWEEP
    slot = await granted(ask(gate, 1.0, "held.test"))
    gate.hold("held.test", PARTITION, clock.now() + 5000)
    slot.release()
    clock.time += 4000
    for number in range(3 * gate_module.FIRST_SWEEP):
        (await gate.acquire(f"again{number}.test", PARTITION, delay_s=1.0)).release()
        clock.time += 0.1
    assert isinstance(await gate.acquire("held.test", PARTITION, delay_s=1.0), Deferred)


async def test_the_real_clock_wakes_waiters():
    """The stand-in is checked against what it stands for."""
    gate = DomainGate(max_wait_s=5.0, per_domain=1, clock=LoopClock())
    gate.opened(0)
    async with asyncio.timeout(5):
        slot = await gate.acquire(DOMAIN, 0, delay_s=0.05)
        assert isinstance(slot, Slot)
        began = gate.now()
        slot.release()
        assert isinstance(await gate.acquire(DOMAIN, 0, delay_s=0.05), Slot)
    assert gate.now() - began >= 0.05


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 1), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        st.tuples(st.just("release"), st.integers(0, 9), st.none()),
        st.tuples(st.just("discard"), st.integers(0, 9), st.none()),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.none()),
        st.tuples(st.just("hold"), st.integers(0, 1), st.sampled_from([0.25, 2.0, 30.0])),
        st.tuples(st.just("share"), st.integers(0, 1), st.sampled_from([0.5, 5.0])),
        st.tuples(st.just("advance"), st.just(0), st.sampled_from([0.125, 0.5, 1.0, 4.0, 70.0])),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_no_request_starts_too_early_whatever_happens(steps):
    """A site's delay and wish hold in every order of asking, cancelling, answering and taking over."""
    asyncio.run(_play(steps))


async def _play(steps) -> None:
    clock = JumpingClock()
    gate = DomainGate(max_wait_s=10.0, per_domain=2, clock=clock)
    gate._sweep_at = 1
    gate.opened(PARTITION)
    last_end = {0: clock.now(), 1: clock.now()}
    last_delay_s = {0: 0.0, 1: 0.0}
    shared = {0: (0.0, 0.0), 1: (0.0, 0.0)}
    held_until = {0: 0.0, 1: 0.0}
    out: dict[int, list[tuple[float, Slot]]] = {0: [], 1: []}
    tasks: list[tuple[int, float, float, asyncio.Task[Slot | Deferred]]] = []

    def collect() -> None:
        for entry in list(tasks):
            domain, delay_s, asked, task = entry
            if not task.done():
                continue
            tasks.remove(entry)
            if task.cancelled():
                continue
            answer = task.result()
            assert clock.now() - asked <= 10.0
            if isinstance(answer, Deferred):
                assert answer.not_before >= asked
                continue
            assert clock.now() >= last_end[domain] + max(delay_s, last_delay_s[domain])
            pause_s, until = shared[domain]
            assert clock.now() >= min(until, last_end[domain] + pause_s)
            assert clock.now() >= held_until[domain]
            if delay_s or any(delay for delay, _ in out[domain]):
                assert [] == out[domain]
            out[domain].append((delay_s, answer))
            assert len(out[domain]) <= 2

    async def play_one(kind: str, number: int, value: float | None) -> None:
        if kind == "ask":
            tasks.append((number, value, clock.now(), ask(gate, value, str(number))))
        elif kind == "hold":
            held_until[number] = max(held_until[number], clock.now() + value)
            gate.hold(str(number), PARTITION, clock.now() + value)
        elif kind == "share":
            shared[number] = value, clock.now() + 3 * value
            gate.share(str(number), PARTITION, *shared[number])
        elif kind == "advance":
            await clock.advance(value, collect)
        elif kind == "cancel" and tasks:
            tasks[number % len(tasks)][3].cancel()
        elif kind in {"release", "discard"} and (busy := [domain for domain in out if out[domain]]):
            domain = busy[number % len(busy)]
            delay_s, slot = out[domain].pop()
            if kind == "release":
                last_end[domain], last_delay_s[domain] = clock.now(), delay_s
                slot.release()
            else:
                slot.discard()
        await settle()
        collect()

    for step in steps:
        await play_one(*step)
    await clock.advance(60, collect)
    while tasks or any(out.values()):
        await play_one("release", 0, None)
        await clock.advance(4, collect)
    for domain in last_end:
        assert isinstance(await gate.acquire(str(domain), PARTITION, delay_s=1.0), Slot)
    assert 0 == clock.armed


async def test_an_urgent_request_passes_those_that_wait(gate, clock):
    """What the frontier has dealt before may be minutes of a slow domain's work."""
    slot = await granted(ask(gate))
    waiting = [ask(gate) for _ in range(2)]
    await settle()
    urgent = [ask(gate, urgent=True) for _ in range(2)]
    await settle()
    slot.release()
    for task in (*urgent, *waiting):
        await clock.advance(0.99)
        assert not task.done()
        await clock.advance(0.01)
        (await granted(task)).release()


async def test_a_request_is_passed_seven_times_and_then_has_its_turn(gate, clock):
    """A flood of urgent tasks of one domain slows the others down; it must not stop them."""
    slot = await granted(ask(gate, 0.5))
    other = ask(gate, 0.5)
    await settle()
    urgent = [ask(gate, 0.5, urgent=True) for _ in range(9)]
    await settle()
    slot.release()
    order = []
    for _ in range(10):
        await clock.advance(0.5)
        for task in (other, *urgent):
            if task.done() and task not in order:
                order.append(task)
                (await granted(task)).release()
    assert 7 == order.index(other)


async def test_an_urgent_request_is_put_off_only_for_those_before_it(gate):
    """Whether it can start in time is reckoned from its own place in the line."""
    await granted(ask(gate, 4.0))
    waiting = [ask(gate, 4.0) for _ in range(2)]
    late = ask(gate, 4.0)
    await settle()
    assert isinstance(late.result(), Deferred)
    urgent = ask(gate, 4.0, urgent=True)
    await settle()
    assert not urgent.done()
    assert not any(task.done() for task in waiting)
