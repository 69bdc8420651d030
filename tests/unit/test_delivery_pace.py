from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from pipeline.delivery.pace import LINGER_S, Pace

INTERVAL_S = 0.5


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while there is work and jumps to the next timer when there is none."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:
            self.now_s = max(self.now_s, self._scheduled[0]._when)
        super()._run_once()


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a test on the jumping loop."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(story)


def clock_s() -> float:
    """The time of the loop that runs the test."""
    return asyncio.get_running_loop().time()


async def waited_s(pace: Pace, timeout_s: float | None = None) -> float:
    """How long one wait took."""
    began_s = clock_s()
    await pace.wait(timeout_s)
    return clock_s() - began_s


def about(seconds: float) -> Any:
    """Equal but for rounding."""
    return pytest.approx(seconds, abs=1e-6)


def test_the_first_record_is_committed_at_once():
    """Idle latency is that of one transaction, not of an interval."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.work()
        assert about(LINGER_S) == await waited_s(pace)

    run(story())


def test_a_record_right_after_a_commit_waits_for_the_rest_of_the_interval():
    """Leading edge: one transaction at once, the neighbours together in the next."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.committed()
        await asyncio.sleep(0.2)
        pace.work()
        assert about(0.3) == await waited_s(pace)

    run(story())


def test_a_record_after_a_quiet_interval_waits_for_nobody():
    """Also after the first one: the interval counts from the last commit, not in fixed ticks."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.committed()
        await asyncio.sleep(INTERVAL_S)
        pace.work()
        assert about(LINGER_S) == await waited_s(pace)

    run(story())


def test_something_urgent_ends_the_waiting():
    """A site's 429, or enough bytes for a transaction of their own."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.committed()
        pace.work()
        asyncio.get_running_loop().call_later(0.1, lambda: pace.work(at_once=True))
        assert about(0.1) == await waited_s(pace)

    run(story())


def test_under_load_there_are_no_more_commits_than_intervals():
    """Each costs the broker milliseconds; a worker that is always busy may not pay for each record."""

    async def story() -> None:
        pace, commits, began_s = Pace(INTERVAL_S, clock_s), 0, clock_s()
        while clock_s() - began_s < 10.0:
            pace.work()
            await pace.wait()
            pace.committed()
            commits += 1
        assert 20 <= commits <= 21

    run(story())


def test_work_that_comes_during_a_commit_is_not_forgotten():
    """It belongs to the next transaction, which must come by itself."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.work()
        await pace.wait()
        pace.work()  # while the transaction is on its way
        pace.committed()
        assert about(INTERVAL_S) == await waited_s(pace)

    run(story())


def test_a_timer_wakes_the_loop_without_work():
    """An ordered stage has work by the clock alone."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        assert about(3.0) == await waited_s(pace, timeout_s=3.0)

    run(story())


def test_one_wait_uses_up_one_call():
    """After a commit with nothing new the loop rests."""

    async def story() -> None:
        pace = Pace(INTERVAL_S, clock_s)
        pace.work(at_once=True)
        await pace.wait()
        assert about(7.0) == await waited_s(pace, timeout_s=7.0)

    run(story())
