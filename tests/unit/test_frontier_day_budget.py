from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import topics
from pipeline.frontier.days import DAY_MS, day_of, on_day
from pipeline.frontier.records import Pace
from tests.frontier_world import START, Bench, Page, World, decode, make_crawl, make_stage

A = "http://a.test/"
DAY_S = 86_400
TODAY = day_of(int(START * 1000))
TO_MIDNIGHT_S = (TODAY + 1) * DAY_S - START


def grants(outputs):
    """The grant records among outputs, without their crawl."""
    records = [decode(output) for output in outputs if output.topic == topics.GRANTS.name]
    return [tuple(record[name] for name in ("kind", "partition", "pages", "day")) for record in records]


def make_bench(**fields):
    """A partition with one crawl, `c`, which it keeps; its definition can be changed."""
    definitions = {"c": make_crawl("c", **fields)}
    bench = Bench(make_stage(definitions, delay_s=0))
    bench.definitions = definitions
    return bench


def links(bench, number, start=0, site=A):
    """Let links to pages of one site come in."""
    bench.links([f"{site}{page}" for page in range(start, start + number)], "c")


def test_a_domain_brings_its_pages_of_the_day_and_goes_on_at_the_next():
    """What is over the day's budget waits; it is refused by nobody."""
    bench = make_bench(max_pages_per_domain_per_day=2)
    links(bench, 5)
    links(bench, 1, site="http://b.test/")
    lanes = bench.emitted()
    assert 3 == len(lanes)
    for lane in lanes:
        bench.outcome(lane, "FETCHED")
    bench.reopen()
    assert [] == bench.emitted(after_s=TO_MIDNIGHT_S - 0.001)
    progress = bench.progress("c")
    assert (3, 3, {}) == tuple(progress[name] for name in ("waiting", "parked", "refused"))
    lanes = bench.emitted(after_s=10)
    assert [A + "2", A + "3"] == [lane["url"] for lane in lanes]
    for lane in lanes:
        bench.outcome(lane, "FETCHED")
    assert [] == bench.emitted(after_s=60)
    assert [A + "4"] == bench.urls(after_s=DAY_S)


def test_a_page_that_is_out_over_midnight_counts_on_the_new_day():
    """By whatever clock the site counts: neither those sent nor those received on a day are too many."""
    bench = make_bench(max_pages_per_domain_per_day=2)
    links(bench, 6)
    late = bench.emitted(after_s=TO_MIDNIGHT_S - 1)
    assert 2 == len(late)
    assert [] == bench.emitted(after_s=11)
    bench.outcome(late[0], "FETCHED")
    assert [] == bench.emitted(after_s=10)
    bench.outcome(late[1], "HTTP_ERROR", status=404)
    assert 1 == len(bench.emitted())


def test_a_clock_that_steps_back_gives_no_second_helping():
    """Neither of the day that it left nor, afterwards, of the one it comes to again."""
    bench = make_bench(max_pages_per_domain_per_day=2, max_pages_per_day=3)
    links(bench, 20)
    links(bench, 20, site="http://b.test/")
    bench.now += TO_MIDNIGHT_S + 1
    lanes = bench.emitted()
    assert 3 == len(lanes)
    for lane in lanes:
        bench.outcome(lane, "FETCHED")
    for step_s in (-2, 1, 2, 60):
        bench.reopen()
        assert [] == bench.emitted(after_s=step_s)
        assert [] == bench.emitted(after_s=10)
    assert 3 == len(bench.emitted(after_s=DAY_S))


@pytest.mark.parametrize("budget", ["max_pages_per_day", "max_pages_per_domain_per_day"])
def test_a_clock_that_was_wrong_by_years_does_not_stop_a_crawl_for_years(budget):
    """Once it is right, what was counted holds for this day, and the next one is new."""
    bench = make_bench(**{budget: 1})
    links(bench, 5)
    (lane,) = bench.emitted(after_s=3_000 * DAY_S) or bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.tick()
    bench.now -= 3_000 * DAY_S
    bench.reopen()
    assert [] == bench.emitted()
    assert [] == bench.emitted(after_s=10)
    bench.frontier._domains.set_pace("a.test", Pace())  # the wrong clock's pauses are another matter
    assert [A + "1"] == bench.urls(after_s=DAY_S) + bench.urls(after_s=10)


@given(st.lists(st.integers(-2 * DAY_MS, 2 * DAY_MS), max_size=50), st.integers(0, DAY_MS))
def test_a_day_that_counts_is_never_left_for_the_one_before(steps, start_ms):
    """Under any clock that is off by less than a day the day that counts only rises, and its count with it."""
    now_ms, day, count = 20_000 * DAY_MS + start_ms, 20_000, 0
    for step_ms in steps:
        now_ms = max(now_ms + step_ms, (day - 1) * DAY_MS)
        before = day, count
        day, count = on_day(day, count, day_of(now_ms))
        assert (day, count) >= (before[0], 0)
        assert day > before[0] or count == before[1]
        count += 1


def test_a_crawl_gives_out_its_pages_of_the_day():
    """All partitions together; here the keeper alone."""
    bench = make_bench(max_pages_per_day=3)
    links(bench, 10)
    lanes = bench.emitted()
    assert 3 == len(lanes)
    bench.outcome(lanes[0], "HTTP_ERROR", status=404)
    (fourth,) = bench.emitted()
    for lane in (*lanes[1:], fourth):
        bench.outcome(lane, "FETCHED")
    assert [] == bench.emitted(after_s=100)
    assert (6, 6) == (bench.progress("c")["waiting"], bench.progress("c")["parked"])
    assert 3 == len(bench.emitted(after_s=TO_MIDNIGHT_S))


def test_a_page_given_back_on_another_day_is_not_given_out_once_more():
    """It was of yesterday's budget: today has its own, and only the total gets it back."""
    bench = make_bench(max_pages_per_day=2, max_pages=4)
    bench.now += TO_MIDNIGHT_S - 20
    links(bench, 10)
    late = bench.emitted()
    assert 2 == len(late)
    today = bench.emitted(after_s=31)
    assert 2 == len(today)
    bench.outcome(late[0], "HTTP_ERROR", status=404)
    bench.outcome(late[1], "FETCHED")
    for lane in today:
        bench.outcome(lane, "FETCHED")
    assert [] == bench.emitted(after_s=11)
    assert 1 == len(bench.emitted(after_s=DAY_S))


def test_pages_of_a_day_that_is_over_go_back_and_are_asked_for_anew():
    """A partition must not spend on a day what was counted on the one before."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_day=50)}, 4, delay_s=0), partition=0)
    keeper = bench.frontier._budget.keeper("c")
    bench.partition = other = (keeper + 1) % 4
    bench.reopen()
    site = next(f"d{n}.test" for n in range(99) if not bench.links([f"http://d{n}.test/"], "c") or n > 90)
    bench.tick()
    give = {"crawl": "c", "kind": "GIVE", "partition": other, "pages": 20, "bytes": 0, "day": TODAY}
    bench.send(topics.GRANTS, give)
    bench.tick()
    bench.now += TO_MIDNIGHT_S
    outputs = bench.links([f"http://{site}/late"], "c")
    kinds = [(kind, day) for kind, _, _, day in grants(outputs)]
    assert ("RETURN", TODAY) in kinds
    assert ("ASK", TODAY + 1) in kinds


def test_an_ask_for_a_day_that_has_not_begun_waits_for_it():
    """A partition whose clock is ahead would return what it gets and ask again, without end."""
    bench = make_bench(max_pages_per_day=10)
    ask = {"crawl": "c", "kind": "ASK", "partition": 0, "pages": 5, "bytes": 0, "day": TODAY + 1}
    bench.send(topics.GRANTS, ask)
    assert 0 == bench.frontier._crawls.change("c").grant
    bench.tick(after_s=TO_MIDNIGHT_S)
    assert 5 == bench.frontier._crawls.change("c").grant


def test_a_wider_budget_of_the_day_lets_held_tasks_go_on():
    """The same definition with another number: nobody waits for midnight."""
    bench = make_bench(max_pages_per_domain_per_day=1)
    links(bench, 5)
    assert 1 == len(bench.emitted())
    bench.definitions["c"] = make_crawl("c", max_pages_per_domain_per_day=3)
    assert 2 == len(bench.emitted(after_s=10))
    bench.definitions["c"] = make_crawl("c")
    assert 2 == len(bench.emitted(after_s=10))


def test_configured_budgets_hold_for_crawls_that_say_nothing():
    """A definition's own number goes before it."""
    own = {"own": make_crawl("own", max_pages_per_domain_per_day=3)}
    bench = Bench(make_stage(own, delay_s=0, max_pages_per_domain_per_day=1))
    for crawl in ("own", "default"):
        bench.links([f"{A}{number}" for number in range(5)], crawl)
    assert ["default", "own", "own", "own"] == sorted(lane["crawl"] for lane in bench.emitted())


@pytest.mark.parametrize("seed", range(4))
def test_no_day_has_too_many_pages_whatever_is_repeated_or_undone(seed):
    """Counted at the sites: of each domain by the moment a page came, of the crawl by the day it was given out."""

    def site(url: str) -> Page:
        number = int(url.rpartition("/")[2] or 0)
        first = [("NETWORK_ERROR", {})] if number % 5 == 0 else []
        return Page(links=[f"/{number * 2 + 1}", f"/{number * 2 + 2}"] if number < 20 else [], first=first)

    definitions = {"c": make_crawl("c", max_pages_per_day=25, max_pages_per_domain_per_day=11)}
    world = World(site, seed=seed, fault_rate=0.05, definitions=definitions, delay_s=0.1)
    given_out: dict[str, int] = {}
    came: Counter[tuple[str, int]] = Counter()
    plain_given_out, plain_fetch = world.given_out, world.fetch

    def note_given_out(lane, output):
        given_out[lane["url"]] = day_of(lane["emitted_at_ms"])
        plain_given_out(lane, output)

    def note_fetch(lane, begin, end):
        before = len(world.fetched)
        plain_fetch(lane, begin, end)
        came[lane["url"].split("/")[2], day_of(int(end * 1000))] += len(world.fetched) - before

    world.given_out, world.fetch = note_given_out, note_fetch
    world.submit(*(f"http://s{number}.test/" for number in range(4)), crawl="c")
    for _ in range(100_000):
        if world.step():
            continue
        if len(world.fetched) == 4 * 41:
            break
        # Nothing but looks every ten seconds is left of a day: it may end.
        moment = world.next_moment()
        idle = not world.work and (moment is None or moment > world.now + 5)
        world.now = (
            (day_of(int(world.now * 1000)) + 1) * DAY_S - 1 if idle and world.now % DAY_S < DAY_S - 60 else moment
        )
    assert 4 * 41 == len(set(world.fetched))
    days = Counter(given_out[url] for _, url in world.fetched)
    assert 25 == max(days.values())
    assert 11 == max(came.values())
