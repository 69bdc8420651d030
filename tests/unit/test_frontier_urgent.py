"""Urgent tasks have way in any backlog, and the backlog still moves."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline.frontier import partition as partition_module
from pipeline.frontier.turns import Turns
from pipeline.frontier.waiting import AGEING_TURNS
from tests.frontier_world import START, Bench, Page, World, make_stage

A = "http://a.test/"
URGENT, BULK = 1, 5
URGENT_LANE, BULK_LANE = "crawl.frontier.urgent.v1", "crawl.frontier.bulk.v1"


def lanes(outputs):
    """How many records each lane got."""
    return Counter(output.topic for output in outputs if output.topic.startswith("crawl.frontier."))


@pytest.fixture
def few_turns(monkeypatch):
    """A tick that gives only eight tasks out."""
    monkeypatch.setattr(partition_module, "TURNS_PER_TICK", AGEING_TURNS)


def test_an_urgent_task_of_a_domain_of_its_own_goes_before_all_that_are_ready(few_turns):
    """Its turn must not depend on how many domains became ready before it."""
    bench = Bench(make_stage())
    for number in range(100):
        bench.task(f"http://d{number}.test/", priority=BULK)
    bench.tick()
    bench.task(A, priority=URGENT)
    assert A == bench.urls()[0]


def test_an_urgent_task_does_not_wait_for_a_full_window_to_end():
    """What is out of a domain may lie in a lane for minutes: the urgent one is in its own at once."""
    bench = Bench(make_stage(delay_s=1))
    for number in range(10):
        bench.task(f"{A}{number}", priority=BULK)
    assert 2 == len(bench.emitted())
    bench.task(f"{A}news", priority=URGENT)
    assert [f"{A}news"] == bench.urls()


def test_of_a_domain_one_urgent_task_more_is_out_than_fits_its_window():
    """A domain that is asked slowly must not fill fetch's slots either with what is urgent."""
    bench = Bench(make_stage(delay_s=1))
    for number in range(10):
        bench.task(f"{A}{number}", priority=URGENT)
    assert 3 == len(bench.emitted())
    assert [] == bench.emitted(after_s=100)


def test_a_task_that_wishes_to_be_alone_waits_for_that_however_urgent_it_is():
    """Concurrency is its sender's word."""
    bench = Bench(make_stage(delay_s=1))
    bench.task(f"{A}1", priority=BULK)
    (lane,) = bench.emitted()
    bench.task(f"{A}news", priority=URGENT, concurrency=1)
    assert [] == bench.urls(after_s=1)
    bench.outcome(lane, "FETCHED")
    assert [f"{A}news"] == bench.urls(after_s=1)


def test_an_urgent_task_is_in_its_lane_before_the_pause_of_its_domain_ends():
    """Fetch is told when it may begin, so that it can be the next of its domain, and not a moment sooner."""
    bench = Bench(make_stage(delay_s=1))
    bench.task(f"{A}1", priority=BULK)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.task(f"{A}2", priority=BULK)
    bench.task(f"{A}news", priority=URGENT)
    (urgent,) = bench.emitted()
    assert (f"{A}news", int(START * 1000) + 1_000) == (urgent["url"], urgent["not_before_ms"])
    assert [f"{A}2"] == bench.urls(after_s=1)


def test_a_pause_that_is_longer_than_the_window_is_waited_for_where_it_is_kept():
    """A lane record holds a slot of fetch, and what is far ahead can still change."""
    bench = Bench(make_stage(delay_s=10))
    bench.task(f"{A}1")
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.task(f"{A}news", priority=URGENT)
    assert [] == bench.urls(after_s=7.999)
    assert [f"{A}news"] == bench.urls(after_s=0.001)


def test_a_time_that_a_site_has_named_is_not_run_ahead_of():
    """It is kept by two clocks: the frontier's must have come so far, too."""
    bench = Bench(make_stage(delay_s=1))
    bench.task(f"{A}1")
    (lane,) = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=int(START * 1000) + 30_000)
    bench.task(f"{A}news", priority=URGENT)
    assert [] == bench.urls(after_s=29.999)
    assert f"{A}news" == bench.urls(after_s=0.001)[0]


def test_bulk_moves_while_urgent_tasks_never_end(few_turns):
    """Every eighth turn is another domain's, as within a domain."""
    bench = Bench(make_stage(delay_s=0))
    for number in range(200):
        bench.task(f"http://d{number}.test/", priority=BULK)
        bench.task(f"http://u{number}.test/", priority=URGENT)
    given = sum((lanes(bench.tick()) for _ in range(20)), Counter())
    assert {URGENT_LANE: 20 * (AGEING_TURNS - 1), BULK_LANE: 20} == given


def test_turns_of_urgent_tasks_cost_bulk_nothing_where_there_is_time():
    """Urgent first is an order, not a share."""
    bench = Bench(make_stage(delay_s=0))
    for number in range(50):
        bench.task(f"http://d{number}.test/", priority=BULK)
        bench.task(f"http://u{number}.test/", priority=URGENT)
    assert {URGENT_LANE: 50, BULK_LANE: 50} == lanes(bench.tick())


@pytest.mark.parametrize("seed", range(3))
def test_urgent_tasks_begin_before_bulk_of_their_domain_that_was_claimed_earlier(seed):
    """Of what a domain has waiting when the urgent task comes, only what is out already may go first."""
    world = World(lambda _: Page(), seed=seed, fault_rate=0.1, delay_s=0.5)
    bulk = [f"http://d{domain}.test/{page}" for domain in range(6) for page in range(12)]
    world.submit(*bulk, priority=BULK)
    world.run_until(START + 1)
    before = set(world.delivered)
    urgent = [f"http://d{domain}.test/urgent" for domain in range(6)]
    world.submit(*urgent, priority=URGENT)
    world.run()
    assert {url for _, url in world.fetched} == {*bulk, *urgent}
    order = [url for _, url in world.delivered if ("default", url) not in before]
    for domain in range(6):
        of_domain = [url for url in order if url.startswith(f"http://d{domain}.test/")]
        assert of_domain.index(f"http://d{domain}.test/urgent") <= 2  # what went out while its record was on its way


def test_equal_turns_keep_their_order_and_a_later_word_replaces_an_earlier_one():
    """A domain that is touched again and again must not lose its place, nor come twice."""
    turns = Turns()
    for domain, at_ms in (("b", 1), ("a", 1), ("c", 0), ("b", 1), ("c", 2), ("d", 1), ("d", None)):
        turns.set(domain, at_ms)
    assert 1 == turns.first_ms()
    assert ["b", "a", None] == [turns.pop(1) for _ in range(3)]
    assert ["c", None] == [turns.pop(2) for _ in range(2)]
    assert turns.first_ms() is None
