"""The simulated server knows when its loop stood still: an excuse for a crawler only then, and only for so long."""

from __future__ import annotations

import pytest

from pipeline.local.loop_watch import TICKS_KEPT, LoopWatch

MS_NS = 10**6
START_NS = 1_800_000_000 * 10**9


def at(ms):
    """Wall clock of a time after the start, nanoseconds."""
    return START_NS + ms * MS_NS


def ticked(*times_ms):
    """A watch whose loop had a turn at the start and at each of the times."""
    watch = LoopWatch(at(0))
    for ms in times_ms:
        watch.tick(at(ms))
    return watch


def test_a_loop_in_time_is_never_late():
    """Else every request would be excused a little, for nothing."""
    watch = LoopWatch(at(0))
    for ms in range(10, 1_000, 10):
        assert 0 == watch.late_ns(at(ms + 9))
        watch.tick(at(ms))


def test_a_tick_that_is_missed_by_little_is_no_standstill():
    """Timers fire late by some milliseconds on any machine."""
    assert 0 == ticked(10, 28).late_ns(at(45))


@pytest.mark.parametrize("ticks_ms", [(10, 20), (10, 20, 3_000), (10, 20, 3_000, 3_010, 3_020)])
def test_what_is_read_after_a_standstill_may_have_come_in_since_it_began(ticks_ms):
    """Sockets may be polled before the late tick or after it, and new connections are read some turns later."""
    assert 2_985 * MS_NS == ticked(*ticks_ms).late_ns(at(3_005))


def test_a_standstill_is_over_some_ticks_after_its_end():
    """By then everything that had piled up was read; what comes in later is in time."""
    settled_ms = [3_000 + 10 * number for number in range(TICKS_KEPT)]
    assert 0 < ticked(10, *settled_ms[:-1]).late_ns(at(settled_ms[-1]))
    assert 0 == ticked(10, *settled_ms).late_ns(at(settled_ms[-1]))


def test_one_standstill_after_another_does_not_add_up_for_ever():
    """A site that is always late by a tenth of a second excuses some turns of its loop, not its whole life."""
    watch = ticked(*range(100, 100_000, 100))
    assert (TICKS_KEPT - 1) * 100 * MS_NS == watch.late_ns(at(99_900))


def test_a_clock_that_is_set_back_makes_no_lateness():
    """A negative one would move requests into the future."""
    assert 0 == ticked(10, 20).late_ns(at(-5_000))
