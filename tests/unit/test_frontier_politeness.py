from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.frontier.politeness import (
    LONGEST_BACKOFF_MS,
    LONGEST_LEARNED_MS,
    LONGEST_WISH_MS,
    RECOVERY,
    after_outcome,
    age_ms,
    allowed_ms,
    backoff_pause_ms,
    delay_ms,
    learned_delay_ms,
    milliseconds,
    retry_pause_ms,
    window,
)
from pipeline.frontier.records import Pace

NOW_MS = 1_700_000_000_000


def outcome(**fields):
    """A good answer, but for `fields`."""
    record = {
        "outcome": "FETCHED", "status": 200, "reason": "", "requests": 1, "started_at_ms": NOW_MS,
        "ended_at_ms": NOW_MS, "retry_after_ms": None, "crawl_delay_ms": None, "rate_limit_reset_ms": None,
        "rate_limit_remaining": None,
    }  # fmt: skip
    return {**record, **fields}


def after(pace, *, incident=False, now_ms=NOW_MS, host="h.test", granted_ms=1_000, **fields):
    """The pace after an outcome."""
    return after_outcome(
        pace, "h.test", host, outcome(**fields), incident=incident, granted_ms=granted_ms, first_backoff_ms=60_000,
        now_ms=now_ms,
    )  # fmt: skip


@given(st.integers(0, 4_000_000_000_000))
def test_milliseconds_survive_the_way_through_seconds(ms):
    """A timer set for a time in milliseconds must find it due at that time, or the runner would spin."""
    assert ms == milliseconds(ms / 1000)


def test_milliseconds_are_never_rounded_up():
    """Nothing may be a millisecond early."""
    assert 1 == milliseconds(0.0019)


@pytest.mark.parametrize(
    ("configured", "crawl", "hosts", "expected"),
    [
        (1_000, None, (), 1_000),
        (1_000, 5_000, (), 5_000),
        (1_000, 0, (), 1_000),
        (1_000, None, (("a", 30_000), ("b", 2_000)), 30_000),
        (0, None, (), 0),
    ],
)
def test_the_longest_delay_holds(configured, crawl, hosts, expected):
    """Neither a crawl nor a robots.txt may make us faster than the operator has set."""
    assert expected == delay_ms(configured, crawl, Pace(crawl_delays_ms=hosts))


@pytest.mark.parametrize(
    ("pause_ms", "expected"), [(0, 256), (1, 256), (10, 200), (500, 4), (1_000, 2), (1_001, 1), (60_000, 1)]
)
def test_the_window_is_what_a_domain_can_do_in_two_seconds(pause_ms, expected):
    """More would pile up in a lane; less than one would stop the domain."""
    assert expected == window(pause_ms, 2_000, 256)


def test_the_next_request_waits_for_pause_and_hold():
    """The pause runs from the end of the last request; a hold is the site's wish."""
    assert 0 == allowed_ms(Pace(), 1_000)
    assert NOW_MS + 1_000 == allowed_ms(Pace(last_end_ms=NOW_MS), 1_000)
    assert NOW_MS + 9_000 == allowed_ms(Pace(last_end_ms=NOW_MS, hold_until_ms=NOW_MS + 9_000), 1_000)


def test_the_pause_runs_from_the_end_of_the_last_request():
    """Outcomes may come late and out of order; an end in the future is a clock that is ahead."""
    pace = after(Pace(), ended_at_ms=NOW_MS - 10)
    assert NOW_MS - 10 == pace.last_end_ms
    assert NOW_MS - 10 == after(pace, ended_at_ms=NOW_MS - 500).last_end_ms
    assert NOW_MS == after(pace, ended_at_ms=NOW_MS + 60_000).last_end_ms
    assert pace == after(pace, requests=0, ended_at_ms=NOW_MS)


def test_retry_pauses_come_in_order_and_then_the_domain_backs_off():
    """One, three, nine seconds for noise; what fails longer is no noise."""
    assert [1_000, 3_000, 9_000, None] == [retry_pause_ms([1.0, 3.0, 9.0], failures) for failures in (1, 2, 3, 4)]


@given(st.text(max_size=10), st.integers(1, 200))
def test_backoff_doubles_from_a_minute_to_a_day(domain, level):
    """The same history gives the same times, and jitter never shortens."""
    pause = backoff_pause_ms(domain, level, 60_000)
    base = min(LONGEST_BACKOFF_MS, 60_000 * 2 ** (level - 1))
    assert base <= pause <= min(LONGEST_BACKOFF_MS, base * 1.25)
    assert pause == backoff_pause_ms(domain, level, 60_000)


def test_domains_that_broke_down_together_come_back_apart():
    """Jitter exists so that they do."""
    assert 50 < len({backoff_pause_ms(f"d{n}.test", 1, 60_000) for n in range(100)})


def test_an_incident_is_one_step_however_many_requests_were_under_way():
    """Ten requests that hit the same overload must not make the pause a thousand times longer."""
    first = after(Pace(), incident=True, outcome="RATE_LIMITED", status=429)
    assert 1 == first.backoff_level
    assert NOW_MS + 60_000 <= first.hold_until_ms
    same = after(first, incident=True, status=429, started_at_ms=NOW_MS - 5, now_ms=NOW_MS + 100)
    assert first == same
    later = first.hold_until_ms + 1
    second = after(first, incident=True, status=429, started_at_ms=later, now_ms=later)
    assert 2 == second.backoff_level
    assert later + 120_000 <= second.hold_until_ms


def test_the_first_wish_of_a_site_is_taken_at_its_word():
    """Retry-After: 5 means five seconds, not a minute; a site that keeps refusing is left alone for longer."""
    first = after(Pace(), incident=True, status=429, retry_after_ms=NOW_MS + 5_000)
    assert NOW_MS + 5_000 == first.hold_until_ms
    later = NOW_MS + 6_000
    second = after(first, incident=True, status=429, retry_after_ms=later + 5_000, started_at_ms=later, now_ms=later)
    assert later + 60_000 <= second.hold_until_ms


@given(st.lists(st.tuples(st.booleans(), st.none() | st.integers(0, 10**7), st.integers(0, 10**6)), max_size=20))
def test_a_wish_is_never_shortened(steps):
    """Whatever comes after it, a hold only moves forward."""
    pace, now = Pace(), NOW_MS
    for incident, wish, passed in steps:
        now += passed
        wish_ms = None if wish is None else now + wish
        following = after(pace, incident=incident, retry_after_ms=wish_ms, started_at_ms=now, now_ms=now)
        assert following.hold_until_ms >= pace.hold_until_ms
        assert following.hold_until_ms >= (wish_ms or 0)
        pace = following


def test_a_good_answer_ends_the_series():
    """The next trouble starts at a minute again; an answer that was under way before proves nothing."""
    held = after(Pace(), incident=True, status=429)
    assert 1 == after(held, started_at_ms=NOW_MS - 1, now_ms=NOW_MS + 1).backoff_level
    assert 1 == after(held, outcome="NETWORK_ERROR", status=None, started_at_ms=NOW_MS + 1).backoff_level
    assert 0 == after(held, started_at_ms=NOW_MS + 1, now_ms=NOW_MS + 2).backoff_level
    assert held.hold_until_ms == after(held, started_at_ms=NOW_MS + 1, now_ms=NOW_MS + 2).hold_until_ms


def test_a_window_that_is_used_up_holds_the_domain_until_it_counts_anew():
    """It comes with a good answer, so it is no incident; the next request would be a refused one."""
    pace = after(Pace(), rate_limit_remaining=0, rate_limit_reset_ms=NOW_MS + 30_000)
    assert (NOW_MS + 30_000, 0, 0) == (pace.hold_until_ms, pace.backoff_level, pace.learned_ms)


def test_what_a_window_still_allows_is_shared_out():
    """Ten requests in a minute: one every six seconds, and none of that once the minute is over."""
    pace = after(Pace(), rate_limit_remaining=10, rate_limit_reset_ms=NOW_MS + 60_000)
    assert NOW_MS + 6_000 == allowed_ms(pace, 1_000)
    assert NOW_MS + 9_000 == allowed_ms(pace, 9_000)
    late = after(pace, ended_at_ms=NOW_MS + 57_000, now_ms=NOW_MS + 57_000)
    assert NOW_MS + 60_000 == allowed_ms(late, 1_000)
    over = after(late, ended_at_ms=NOW_MS + 60_000, now_ms=NOW_MS + 60_000)
    assert (0, 0) == (over.share_ms, over.share_until_ms)


@pytest.mark.parametrize("reset_ms", [NOW_MS, NOW_MS - 1, NOW_MS + LONGEST_WISH_MS + 1, 2**62])
def test_a_window_that_is_over_or_without_end_changes_nothing(reset_ms):
    """What has passed needs no care, and what never ends would take the site out of the crawl."""
    for remaining in (0, 5):
        pace = after(Pace(), rate_limit_remaining=remaining, rate_limit_reset_ms=reset_ms)
        assert NOW_MS >= pace.hold_until_ms
        assert (0, 0) == (pace.share_ms, pace.share_until_ms)


def test_each_incident_doubles_the_pause_and_good_answers_win_it_back():
    """A site that refuses again and again at one pace is asked at a slower one, and not for ever."""
    pace, paces, now = Pace(), [], NOW_MS
    for _ in range(3):
        now = max(now, pace.hold_until_ms)
        pace = after(pace, incident=True, status=429, started_at_ms=now, now_ms=now)
        paces.append(learned_delay_ms(1_000, pace, 1.0))
    assert [2_000, 4_000, 8_000] == paces
    answers = 0
    while pace.learned_ms:
        now += pace.learned_ms
        before, pace = pace.learned_ms, after(pace, started_at_ms=now, now_ms=now)
        answers += 1
        assert 0 == pace.learned_ms or 1_000 < pace.learned_ms < before
    assert 15 < answers <= RECOVERY
    assert 1_000 == learned_delay_ms(1_000, pace, 1.0)


def test_requests_that_were_under_way_teach_nothing_more():
    """One overload is one lesson, however many it hit, and what was answered before it takes none of it back."""
    first = after(Pace(), incident=True, status=429)
    assert first == after(first, incident=True, status=429, started_at_ms=NOW_MS - 5, now_ms=NOW_MS + 9)
    assert first.learned_ms == after(first, started_at_ms=NOW_MS - 5, now_ms=NOW_MS + 9).learned_ms


def test_a_site_that_answers_ever_more_slowly_is_asked_ever_more_slowly():
    """The pause follows the smoothed response time; one slow answer means little, and quick ones win it back."""
    pace = after(Pace(), started_at_ms=NOW_MS - 8_000)
    assert 1_000 == pace.response_ms
    for _ in range(40):
        pace = after(pace, started_at_ms=NOW_MS - 8_000)
    assert 7_500 < pace.response_ms <= 8_000
    assert pace.response_ms == learned_delay_ms(1_000, pace, 1.0)
    assert 5 * pace.response_ms == learned_delay_ms(1_000, pace, 5.0)
    assert 1_000 == learned_delay_ms(1_000, pace, 0.0)
    assert 0 == learned_delay_ms(0, pace, 1.0)
    for _ in range(40):
        pace = after(pace)
    assert 1_000 == learned_delay_ms(1_000, pace, 1.0)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 10**9), st.integers(0, 10**7)), max_size=40), st.integers(0, 10**6)
)
def test_what_is_learned_is_never_less_than_granted_and_never_without_bound(steps, granted_ms):
    """Learning may only slow down, and no history may take a site out of the crawl."""
    pace, now = Pace(), NOW_MS
    for incident, took_ms, passed_ms in steps:
        now += passed_ms
        pace = after(
            pace, incident=incident, started_at_ms=now - took_ms, ended_at_ms=now, granted_ms=granted_ms, now_ms=now
        )
        assert granted_ms <= learned_delay_ms(granted_ms, pace, 1.0) <= max(granted_ms, LONGEST_LEARNED_MS)


def test_long_pauses_that_a_site_asked_for_do_not_age_its_tasks():
    """A site that asks for five days must find its tasks alive; short pauses are not kept apart."""
    day = 86_400_000
    pace = after(Pace(), incident=True, status=503, retry_after_ms=NOW_MS + 5 * day)
    pace = after(pace, incident=True, status=503, retry_after_ms=NOW_MS + 6 * day, now_ms=NOW_MS + day)
    assert ((NOW_MS, NOW_MS + 6 * day),) == pace.asked
    assert 2 * day == age_ms(pace, NOW_MS - day, NOW_MS + 7 * day)
    assert day == age_ms(pace, NOW_MS - day, NOW_MS + 3 * day)
    assert day == age_ms(pace, NOW_MS + 2 * day, NOW_MS + 7 * day)
    short = after(Pace(), incident=True, status=429, retry_after_ms=NOW_MS + 60_000)
    assert 60_000 == age_ms(short, NOW_MS, NOW_MS + 60_000)


def test_only_the_last_long_pauses_are_remembered():
    """The row stays bounded; a site that asks for an hour again and again wears its tasks out at last."""
    pace = Pace()
    for number in range(20):
        now = NOW_MS + number * 10_000_000
        pace = after(pace, incident=True, status=429, retry_after_ms=now + 3_600_000, started_at_ms=now, now_ms=now)
    assert 8 == len(pace.asked)
    assert NOW_MS + 190_000_000 == pace.asked[-1][0]


def test_each_host_of_a_domain_keeps_its_crawl_delay_until_it_takes_it_back():
    """The longest holds for the domain; one host's file says nothing about another's."""
    pace = after(Pace(), host="a.h.test", crawl_delay_ms=120_000)
    pace = after(pace, host="b.h.test", crawl_delay_ms=2_000)
    pace = after(pace, host="c.h.test")
    assert 120_000 == delay_ms(1_000, None, pace)
    assert pace == after(pace, host="a.h.test", outcome="NETWORK_ERROR", status=None)
    pace = after(pace, host="a.h.test", crawl_delay_ms=10_000)
    assert 10_000 == delay_ms(1_000, None, pace)
    assert 2_000 == delay_ms(1_000, None, after(pace, host="a.h.test"))


def test_a_domain_with_countless_hosts_keeps_a_bounded_row():
    """A wildcard name with a delay on every host must not grow its row without end; the longest delays stay."""
    pace = Pace()
    for number in range(100):
        pace = after(pace, host=f"{number}.h.test", crawl_delay_ms=1_000 + number)
    assert 32 == len(pace.crawl_delays_ms)
    assert 1_099 == delay_ms(0, None, pace)


def test_a_crawl_delay_of_years_is_taken_for_a_day():
    """A slip of the pen must not take a site out of the crawl for good."""
    assert 86_400_000 == delay_ms(0, None, after(Pace(), crawl_delay_ms=10**12))
