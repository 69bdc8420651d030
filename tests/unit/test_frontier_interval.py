"""The adaptive interval: how often a page is asked follows what asking it brings, within bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.frontier.interval import (
    DAY_MS,
    FLAT,
    HOUR_MS,
    HOURS,
    NO_HABIT,
    Bounds,
    Finding,
    adapted_ms,
    bounds,
    hour_of,
    next_start_ms,
    rates,
    with_news,
)

MINUTE_MS = 60_000
START_MS = 1_700_006_400_000  # midnight, UTC


def test_bounds_stand_around_the_wish():
    """Who wishes five minutes is never polled every second, and not once a week."""
    assert Bounds(18_750, 4_800_000) == bounds(300_000, 10_000, 16)
    assert Bounds(60_000, 4_800_000) == bounds(300_000, 60_000, 16)


def test_a_wish_below_the_floor_is_its_own_floor():
    """Somebody asked for five seconds: that holds, but nothing makes it shorter."""
    assert Bounds(5_000, 80_000) == bounds(5_000, 60_000, 16)


def test_a_span_of_one_keeps_the_wish():
    """Who wants a fixed beat gets it."""
    assert Bounds(300_000, 300_000) == bounds(300_000, 10_000, 1)


@pytest.mark.parametrize(
    ("finding", "rate", "expected"),
    [
        (Finding.NEWS, 1.0, 40_000),
        (Finding.NEWS, 0.3, 40_000),
        (Finding.NOTHING_NEW, 1.0, 90_000),
        (Finding.NOTHING_NEW, 2.0, 90_000),
        (Finding.NOTHING_NEW, 0.0, 60_000),
        (Finding.FAILURE, 0.0, 90_000),
    ],
)
def test_news_make_the_interval_shorter_and_silence_makes_it_longer(finding, rate, expected):
    """Silence in an hour that never brings news is no reason to look away by day."""
    assert expected == adapted_ms(60_000, finding, Bounds(10_000, 600_000), rate)


@given(st.lists(st.sampled_from(Finding)), st.integers(1, 10**9), st.floats(1, 100), st.floats(0, 3))
def test_the_interval_never_leaves_its_bounds(findings, wished_ms, span, rate):
    """Whatever a site does, it is neither hammered nor forgotten."""
    limits = bounds(wished_ms, 10_000, span)
    interval_ms = wished_ms
    for finding in findings:
        interval_ms = adapted_ms(interval_ms, finding, limits, rate)
        assert limits.floor_ms <= interval_ms <= limits.ceiling_ms


@given(st.lists(st.integers(0, 23), max_size=600))
def test_a_habit_moves_polls_and_makes_no_more_of_them(hours):
    """The rates of a day are 1 on average, whenever news came."""
    habit = NO_HABIT
    for hour in hours:
        habit = with_news(habit, START_MS + hour * HOUR_MS)
    assert HOURS == pytest.approx(sum(rates(habit)))
    assert min(rates(habit)) > 0.1


def test_an_old_habit_fades():
    """A site that moves its hours is followed within some hundred finds."""
    habit = NO_HABIT
    for _ in range(1_000):
        habit = with_news(habit, START_MS)
    for _ in range(500):
        habit = with_news(habit, START_MS + 12 * HOUR_MS)
    assert rates(habit)[12] > 2 * rates(habit)[0]


@given(st.integers(0, 10**13), st.integers(1, 10 * DAY_MS))
def test_without_a_habit_the_next_poll_is_one_interval_after_the_last(start_ms, interval_ms):
    """To the millisecond, over hours and days."""
    assert start_ms + interval_ms == next_start_ms(start_ms, interval_ms, Bounds(1, 20 * DAY_MS), FLAT)


@given(st.integers(0, 10**13), st.integers(1, 3 * DAY_MS), st.binary(min_size=24, max_size=24))
def test_the_next_poll_keeps_to_the_bounds_whatever_the_hours_say(start_ms, interval_ms, habit):
    """Floor and ceiling are promises to the site and to the sender."""
    limits = Bounds(interval_ms // 2, interval_ms * 2)
    start = next_start_ms(start_ms, interval_ms, limits, rates(habit))
    assert limits.floor_ms <= start - start_ms <= limits.ceiling_ms


def test_a_feed_that_sleeps_at_night_is_polled_less_at_night():
    """It publishes every ten minutes or so from 6 to 18 h; polls follow, their number stays within the bounds."""
    chance = random.Random(5)
    wished_ms, limits = 10 * MINUTE_MS, bounds(10 * MINUTE_MS, 10_000, 4)
    interval_ms, habit, at_ms = wished_ms, NO_HABIT, START_MS
    published = [
        START_MS + day * DAY_MS + 6 * HOUR_MS + chance.randrange(12 * HOUR_MS) for day in range(21) for _ in range(72)
    ]
    published.sort()
    polls = [0] * HOURS
    waits_ms, seen = [], 0
    while at_ms < START_MS + 21 * DAY_MS:
        fresh = [time for time in published[seen:] if time <= at_ms]
        seen += len(fresh)
        if at_ms >= START_MS + 7 * DAY_MS:  # a week to learn
            polls[hour_of(at_ms)] += 1
            waits_ms += [at_ms - time for time in fresh]
        finding = Finding.NEWS if fresh else Finding.NOTHING_NEW
        interval_ms = adapted_ms(interval_ms, finding, limits, rates(habit)[hour_of(at_ms)])
        habit = with_news(habit, at_ms) if fresh else habit
        at_ms = next_start_ms(at_ms, interval_ms, limits, rates(habit))
    by_day, by_night = sum(polls[6:18]), sum(polls[:5] + polls[19:])
    assert by_day / 12 > 2 * by_night / 10
    assert 14 * DAY_MS / limits.ceiling_ms <= sum(polls) <= 14 * DAY_MS / limits.floor_ms
    assert sorted(waits_ms)[len(waits_ms) // 2] <= wished_ms
