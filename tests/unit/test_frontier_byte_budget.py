from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.frontier.budget import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, chunk_bytes
from pipeline.frontier.ending import CrawlEnd
from tests.frontier_world import Bench, Page, World, decode, make_crawl, make_stage

A = "http://a.test/"
KIB = 1 << 10


def make_bench(**fields):
    """A partition with one crawl, `c`, which it keeps; its definition can be changed."""
    definitions = {"c": make_crawl("c", **fields)}
    bench = Bench(make_stage(definitions, delay_s=0, window_max=4))
    bench.definitions = definitions
    return bench


def links(bench, number, start=0, site=A):
    """Let links to pages of one site come in."""
    bench.links([f"{site}{page}" for page in range(start, start + number)], "c")


def bring(bench, received, most=100, after_s=0.0):
    """Fetch what is given out, up to `most` pages, each of so many bytes. Return how many there were."""
    pages = 0
    bench.now += after_s
    while pages < most and (lanes := bench.emitted() or bench.emitted()):
        for lane in lanes:
            bench.outcome(lane, "FETCHED", bytes_wire=received)
        pages += len(lanes)
    return pages


@pytest.mark.parametrize(("limit", "bytes_of_a_page"), [(100, 30), (100, 100), (100, 250), (1, 1), (1_000, 90)])
def test_a_domain_receives_more_than_its_bytes_by_no_more_than_what_was_out(limit, bytes_of_a_page):
    """A page's size is known when it has come; four are out at most here."""
    bench = make_bench(max_bytes_per_domain=limit)
    links(bench, 50)
    links(bench, 1, site="http://b.test/")
    pages = bring(bench, bytes_of_a_page) - 1
    assert limit <= pages * bytes_of_a_page < limit + 4 * bytes_of_a_page
    assert {"domain_bytes": 50 - pages} == bench.progress("c")["refused"]
    assert (0, 0) == (bench.progress("c")["waiting"], bench.progress("c")["out"])


def test_bytes_of_failed_attempts_count_too():
    """They were sent and received."""
    bench = make_bench(max_bytes_per_domain=100)
    links(bench, 5)
    lanes = bench.emitted()
    bench.outcome(lanes[0], "HTTP_ERROR", status=404, bytes_wire=60)
    bench.outcome(lanes[1], "NETWORK_ERROR", bytes_wire=60)
    bench.reopen()
    assert [] == bench.emitted()
    assert 120 == bench.progress("c")["bytes_received"]
    links(bench, 1, start=90)
    assert 2 == bench.progress("c")["refused"]["domain_bytes"]


def test_a_domain_whose_bytes_were_spent_goes_on_for_links_found_nearer_once_it_may_have_more():
    """Its refusals are judged again as those by pages are."""
    bench = make_bench(max_bytes_per_domain=100)
    links(bench, 1)
    assert 1 == bring(bench, 100)
    bench.links([A + "deep"], "c", depth=5)
    bench.definitions["c"] = make_crawl("c", max_bytes_per_domain=200)
    bench.links([A + "deep"], "c", depth=4)
    assert [A + "deep"] == bench.urls(after_s=10)


def test_a_crawl_receives_more_than_its_bytes_by_no_more_than_what_was_out():
    """And it ends: what is held then waits for nothing."""
    bench = make_bench(max_bytes=1_000)
    links(bench, 50)
    pages = bring(bench, 90)
    assert 1_000 <= pages * 90 < 1_000 + 4 * 90
    progress = bench.progress("c")
    assert (50 - pages, 50 - pages, 0) == tuple(progress[name] for name in ("waiting", "parked", "out"))
    assert [] == bench.emitted(after_s=100)


def test_a_larger_budget_of_bytes_lets_a_crawl_go_on():
    """What came over the first is part of what the second allows."""
    bench = make_bench(max_bytes=1_000)
    links(bench, 500)
    first = bring(bench, 400)
    bench.definitions["c"] = make_crawl("c", max_bytes=10_000)
    second = bring(bench, 400, after_s=10)
    assert 10_000 <= (first + second) * 400 < 10_000 + 4 * 400
    bench.definitions["c"] = make_crawl("c")
    assert 500 - first - second == bring(bench, 400, most=1_000, after_s=10)


def test_a_budget_that_is_set_later_counts_what_has_come():
    """Bytes are counted from a crawl's first page on, whether they are limited or not."""
    bench = make_bench()
    links(bench, 20)
    assert 8 == bring(bench, 100, most=8)
    bench.definitions["c"] = make_crawl("c", max_bytes=1_000)
    pages = 8 + bring(bench, 100)
    assert 1_000 <= pages * 100 < 1_400


def test_shares_are_large_enough_to_work_with_and_small_enough_to_share():
    """A partition asks for a quarter of its even share, within bounds."""
    assert MIN_CHUNK_BYTES == chunk_bytes(1, 6)
    assert MAX_CHUNK_BYTES == chunk_bytes(1 << 40, 6)
    assert 100 * KIB == chunk_bytes(400 * 6 * KIB, 6)


def test_unused_bytes_go_back_to_those_who_can_use_them():
    """Otherwise a partition that has run out of links keeps the others waiting for ever."""
    bench = Bench(make_stage({"c": make_crawl("c", max_bytes=1 << 30)}, 4, delay_s=0))
    bench.partition = (bench.frontier._budget.keeper("c") + 1) % 4
    bench.reopen()
    site = next(f"http://d{n}.test/" for n in range(99) if not _is_foreign(bench, f"http://d{n}.test/"))
    give = {"crawl": "c", "kind": "GIVE", "partition": bench.partition, "pages": 0, "bytes": 900, "day": 0}
    bench.send(topics.GRANTS, give)
    (lane,) = bench.emitted()
    assert site == lane["url"]
    bench.outcome(lane, "FETCHED", bytes_wire=300)
    outputs = [output for output in bench.tick(60) if output.topic == topics.GRANTS.name]
    (back,) = [decode(output) for output in outputs]
    assert ("RETURN", 0, 600) == (back["kind"], back["pages"], back["bytes"])


def _is_foreign(bench, url):
    return any(output.topic == topics.LINKS.name for output in bench.links([url], "c"))


@pytest.mark.parametrize("seed", range(4))
def test_a_crawl_over_many_partitions_ends_at_its_bytes_whatever_is_repeated_or_undone(seed):
    """Its overshoot is what was out at each partition when its share was spent; none of the budget is left over."""

    def site(url: str) -> Page:
        number = int(url.rpartition("/")[2] or 0)
        return Page(links=[f"/{number * 2 + 1}", f"/{number * 2 + 2}", f"http://s{number % 9}.test/"])

    limit, received = 150_000, 1_000
    definitions = {"c": make_crawl("c", max_bytes=limit)}
    world = World(site, seed=seed, fault_rate=0.05, definitions=definitions, delay_s=1, page_bytes=received)
    world.submit("http://s0.test/", crawl="c")
    world.run("c")
    came = sum(row["bytes_received"] for row in world.progress.values())
    assert len(world.fetched) * received == came
    # Two tasks of a domain are out at a delay of a second; ten domains.
    assert limit <= came < limit + 10 * 2 * received
    assert CrawlEnd(3, None, limit)._is_spent(world.progress.values())


@pytest.mark.parametrize("seed", range(3))
def test_all_budgets_at_once_are_kept(seed):
    """They share one record between the partitions, and must not wait for each other for ever."""

    def site(url: str) -> Page:
        number = int(url.rpartition("/")[2] or 0)
        return Page(links=[f"/{number * 2 + 1}", f"/{number * 2 + 2}", f"http://s{number % 9}.test/"])

    limits = {"max_pages": 60, "max_bytes": 1 << 20, "max_pages_per_domain": 15, "max_bytes_per_domain": 9_000}
    definitions = {"c": make_crawl("c", **limits)}
    world = World(site, seed=seed, fault_rate=0.05, definitions=definitions, delay_s=1, page_bytes=1_000)
    world.submit("http://s0.test/", crawl="c")
    world.run("c")
    assert 60 == len(world.fetched)
    by_domain = [sum(1 for _, url in world.fetched if f"//s{number}." in url) for number in range(10)]
    assert 9 + 1 >= max(by_domain)
