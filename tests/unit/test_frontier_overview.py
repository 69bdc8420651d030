from __future__ import annotations

from pipeline.frontier.answers import MAX_DOMAINS, answer_top
from pipeline.frontier.overview import MAX_TASKS
from tests.frontier_world import START, Bench, make_crawl, make_stage

START_MS = int(START * 1000)


def rows(bench: Bench, domains: int = 10) -> dict:
    """Domains by name."""
    return {row.domain: row for row in bench.frontier.overview(domains, bench.now).domains}


def test_what_is_under_way_is_summed_over_all_crawls():
    """The first question of an operator: is it working, and is there anything to do?"""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_domain=1)}, delay_s=0))
    bench.links(["http://a.test/", "http://a.test/1"], "c")
    bench.task("http://b.test/", not_before_ms=START_MS + 9_000)
    (lane,) = bench.emitted()
    totals = bench.frontier.overview(5, bench.now).totals
    assert (1, 2, 3, 1) == (totals["out"], totals["waiting"], totals["seen"], totals["held"])
    assert 1 == totals["domains"]
    bench.outcome(lane, "FETCHED", bytes_wire=700)
    totals = bench.frontier.overview(5, bench.now).totals
    assert (1, 1, 700) == (totals["done"], totals["pages_fetched"], totals["bytes_received"])


def test_the_domains_that_wait_longest_and_those_with_most_out_are_told():
    """A backlog and a slow site are what one looks for."""
    bench = Bench(make_stage())
    bench.links([f"http://old.test/{number}" for number in range(5)])
    assert 2 == len(bench.emitted() + bench.emitted())
    bench.now += 1
    for number in range(20):
        bench.task(f"http://d{number}.test/", not_before_ms=START_MS + 100_000 + number)
    found = rows(bench, 2)
    assert ["d0.test", "old.test"] == sorted(found)
    old = found["old.test"]
    assert ({"urgent": 0, "normal": 3, "bulk": 0}, 2, START_MS) == (old.waiting, old.out, old.due_ms)
    assert ("slots", 1_000, "configured") == (old.why, old.delay_ms, old.made_by)


def test_a_domain_that_is_held_is_told_with_its_time_and_why():
    """It is the answer to: why does nothing of this site come?"""
    bench = Bench(make_stage())
    bench.links(["http://a.test/", "http://a.test/1"])
    lane, _ = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=START_MS + 9_000)
    row = rows(bench)["a.test"]
    assert ("backoff", START_MS + 9_000, 1) == (row.why, row.until_ms, row.out)


def test_a_domain_with_everything_out_has_nothing_due():
    """It is there by what is out alone."""
    bench = Bench(make_stage())
    bench.task("http://a.test/")
    bench.emitted()
    row = rows(bench)["a.test"]
    assert (None, 1) == (row.due_ms, row.out)


def test_a_long_queue_is_counted_within_bounds():
    """Somebody looks every second or two, and rounds wait for it."""
    bench = Bench(make_stage())
    bench.links([f"http://a.test/{number}" for number in range(MAX_TASKS + 10)])
    assert MAX_TASKS == rows(bench)["a.test"].waiting["normal"]


def test_an_answer_is_bounded_whatever_is_asked_for():
    """It is one record of a topic."""
    bench = Bench(make_stage())
    bench.links([f"http://d{number}.test/" for number in range(MAX_DOMAINS + 50)])
    assert MAX_DOMAINS == len(answer_top(bench.frontier, {"domains": 1_000_000}, START)["domains"])
