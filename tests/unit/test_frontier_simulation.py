"""The frontier in a small world: random sites, random order, random faults at any point; what it promises always holds.

What `World.given_out` checks of every lane record (one delivery at a time, window, spacing, the site's wishes) counts
for all of these tests.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.frontier.records import TABLES
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView
from pipeline.web.domains import registrable_domain
from tests.frontier_world import START, Page, World, make_crawl

NOISE = [
    [],
    [("HTTP_ERROR", {"status": 500})],
    [("RATE_LIMITED", {"status": 429, "retry_after_s": 5})],
    [("RATE_LIMITED", {"status": 429})],
    [("NETWORK_ERROR", {}), ("NETWORK_ERROR", {})],
    [("DEFERRED", {"requests": 0, "not_before_ms": int((START + 30) * 1000)})],
    [("FETCHED", {"crawl_delay_ms": 4_000})],
    [("FETCHED", {"rate_limit_remaining": 0, "rate_limit_reset_s": 9})],
    [("FETCHED", {"rate_limit_remaining": 3, "rate_limit_reset_s": 20})],
    [("HTTP_ERROR", {"status": 503})],
    [("HTTP_ERROR", {"status": 503, "retry_after_s": 50})],
]
SEED = st.integers(0, 2**32 - 1)


class Site:
    """Random pages over a few domains, with noise, redirects, dead ends and pages that never work."""

    def __init__(self, seed: int, domains: int = 5, pages: int = 8) -> None:
        chance = random.Random(seed)
        self.urls = [f"http://d{domain}.test/{page}" for domain in range(domains) for page in range(pages)]
        self.pages: dict[str, Page] = {}
        for url in self.urls:
            page = Page([chance.choice(self.urls) for _ in range(3)], list(chance.choice(NOISE)))
            ending = chance.random()
            if ending < 0.1:
                page.ends, page.target = "REDIRECTED", chance.choice(self.urls)
            elif ending < 0.15:
                page.ends = "ROBOTS_DENIED"
            elif ending < 0.2:
                page.first = [("NETWORK_ERROR", {})] * 9
            self.pages[url] = page

    def __call__(self, url: str) -> Page:
        return self.pages.get(url, Page(ends="ROBOTS_DENIED"))

    def reachable(self, starts: list[str]) -> tuple[set[str], set[str]]:
        """What a right crawl gives out, and what of it it fetches."""
        given_out: set[str] = set()
        fetched: set[str] = set()
        todo = list(starts)
        while todo:
            url = todo.pop()
            if url in given_out:
                continue
            given_out.add(url)
            page = self(url)
            if sum(kind == "NETWORK_ERROR" for kind, _ in page.first) >= 3:
                continue
            if page.ends == "FETCHED" or any(kind == "FETCHED" for kind, _ in page.first):
                fetched.add(url)
                todo += page.links
            elif page.target is not None:
                todo.append(page.target)
        return given_out, fetched


def check_settled(world: World, crawl: str = "default") -> None:
    """The end was the end: time brings nothing more, and nothing is left in the state."""
    delivered = world.delivered.copy()
    for _ in range(10):
        world.now += 100
        while world.step():
            pass
    assert delivered == world.delivered
    for part in world.parts:
        state = part._crawls.get(crawl)
        assert state is None or not state.busy


@settings(max_examples=15, deadline=None)
@given(SEED, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([1, 3, 6]), st.sampled_from([0, 0.3, 1, 7]))
def test_every_reachable_url_is_fetched_once_whatever_fails_in_between(seed, fault_rate, partitions, delay_s):
    """Records undone, rounds undone, memory thrown away: the same URLs are given out as without, and the crawl ends."""
    site = Site(seed)
    world = World(site, partitions=partitions, seed=seed, fault_rate=fault_rate, delay_s=delay_s)
    starts = site.urls[:2]
    world.submit(*starts, starts[0])
    world.submit(starts[1], priority=1)
    world.run()
    given_out, fetched = site.reachable(starts)
    assert given_out == {url for _, url in world.delivered}
    assert Counter(fetched) == Counter(url for _, url in world.fetched)
    never = {url for url in given_out if site(url).first == [("NETWORK_ERROR", {})] * 9}
    assert len(never) == len(world.dead)
    assert not world.stage.counters["stale_outcomes"]
    check_settled(world)


@settings(max_examples=15, deadline=None)
@given(
    SEED,
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([1, 3, 6]),
    st.sampled_from([1, 2, 7, 20, 33, 1_000]),
    st.sampled_from([None, None, 1, 3]),
)
def test_budgets_are_met_exactly_and_never_exceeded(seed, fault_rate, partitions, max_pages, per_domain):
    """The crawl's pages are shared between partitions by grants that may be under way at any moment."""
    site = Site(seed)
    definitions = {"c": make_crawl("c", max_pages=max_pages, max_pages_per_domain=per_domain)}
    world = World(site, partitions=partitions, seed=seed, fault_rate=fault_rate, definitions=definitions, delay_s=0.5)
    starts = site.urls[::8]
    world.submit(*starts, crawl="c")
    world.run("c")
    fetched = {url for _, url in world.fetched}
    assert len(fetched) == len(world.fetched) <= max_pages
    by_domain = Counter(registrable_domain(url.split("/")[2]) for url in fetched)
    if per_domain is None:
        assert min(max_pages, len(site.reachable(starts)[1])) == len(fetched)
    else:
        assert per_domain >= max(by_domain.values(), default=0)
    check_settled(world, "c")


@settings(max_examples=5, deadline=None)
@given(SEED)
def test_two_crawls_over_the_same_sites_do_not_disturb_each_other(seed):
    """They share domains, slots and pace, and nothing else; one of them becomes known late."""
    site = Site(seed)
    definitions = {"slow": make_crawl("slow", delay_ms=3_000)}
    world = World(site, seed=seed, fault_rate=0.05, definitions=definitions, delay_s=0.2)
    world.submit(*site.urls[:2], crawl="slow")
    world.submit(*site.urls[:2], crawl="late")
    for _ in range(50):
        world.step()
    definitions["late"] = make_crawl("late")
    world.run("late")
    world.run("slow")
    expected = Counter(site.reachable(site.urls[:2])[1])
    for crawl in ("slow", "late"):
        assert expected == Counter(url for name, url in world.fetched if name == crawl)


@settings(max_examples=5, deadline=None)
@given(SEED)
def test_depth_is_the_number_of_links_from_a_start_point(seed):
    """In a tree there is one way to each page: exactly the pages within the depth are fetched."""
    pages = {
        f"http://d{n % 4}.test/{n}": Page([f"http://d{c % 4}.test/{c}" for c in (2 * n, 2 * n + 1)])
        for n in range(1, 128)
    }
    world = World(pages.__getitem__, seed=seed, definitions={"c": make_crawl("c", max_depth=3)}, delay_s=0.1)
    world.submit("http://d1.test/1", crawl="c")
    world.run("c")
    assert {f"http://d{n % 4}.test/{n}" for n in range(1, 16)} == {url for _, url in world.fetched}
    assert 16 == sum(progress["refused"].get("depth", 0) for progress in world.progress.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_crawl_whose_budget_grew_goes_on_where_it_stopped(seed):
    """The same command with more pages resumes: what was held is fetched, nothing twice."""
    site = Site(seed)
    definitions = {"c": make_crawl("c", max_pages=5)}
    world = World(site, seed=seed, fault_rate=0.05, definitions=definitions, delay_s=0.1)
    starts = site.urls[::8]
    world.submit(*starts, crawl="c")
    world.run("c")
    assert 5 == len(world.fetched)
    definitions["c"] = make_crawl("c", max_pages=15)
    world.submit(*starts, crawl="c")
    world.run("c")
    assert 15 == len(set(world.fetched)) == len(world.fetched)


class Feeds(Site):
    """A site of pages that change now and then; some that are polled are redirected, also to other domains.

    Nothing else leads to pages that are polled: what was fetched once before may be published once more by its first
    poll.
    """

    def __init__(self, seed: int, period_s: float) -> None:
        super().__init__(seed, pages=4)
        self.period_s = period_s
        self.recurring, targets = self.urls[::4], self.urls[3::4]
        linked = [url for url in self.urls if url not in {*self.recurring, *targets}]
        chance = random.Random(seed)
        for number, (url, page) in enumerate(self.pages.items()):
            page.first = []  # noise by delivery says nothing here: deliveries go on for ever
            page.links = [chance.choice(linked) for _ in range(3)]
            page.says, page.is_validated = self.dated(number), chance.random() < 0.5
            if url in self.recurring and chance.random() < 0.4:
                page.ends, page.target = "REDIRECTED", chance.choice(targets)
            elif page.ends == "REDIRECTED":
                page.ends, page.target = "FETCHED", None

    def dated(self, number: int) -> Callable[[float], bytes]:
        return lambda at: hashlib.blake2b(f"{number} {int(at / self.period_s)}".encode(), digest_size=16).digest()


@settings(max_examples=12, deadline=None)
@given(SEED, st.sampled_from([0.0, 0.05, 0.2]), st.sampled_from([1, 3, 6]), st.sampled_from([0, 1, 7]))
def test_polls_come_one_by_one_and_publish_each_document_once(seed, fault_rate, partitions, delay_s):
    """Whatever is undone or thrown away in between: none lost, doubled or early, and the crawl still ends."""
    site = Feeds(seed, period_s=400)
    world = World(
        site, partitions=partitions, seed=seed, fault_rate=fault_rate, delay_s=delay_s, parse_pauses_s=(0.1, 90.0),
        interval_span=2,
    )  # fmt: skip
    world.submit(*site.recurring, *site.recurring[:2], interval_ms=60_000)
    world.run()
    world.run_until(START + 3_600)
    for url in site.recurring:
        polls = world.polls["default", url]
        numbers = [poll for poll, _ in polls]
        assert list(range(1, numbers[-1] + 1)) == numbers
        pauses = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(polls)]
        assert 30_000 <= min(pauses)
        assert max(pauses) <= 120_000 + 90_000 + 8_000 * (delay_s + 1)  # the parser, and others of its domain
    assert len(world.documents) == len(set(world.documents))
    assert not world.stage.counters["stale_outcomes"]
    assert not world.dead


@settings(max_examples=5, deadline=None)
@given(SEED)
def test_opening_the_partitions_anew_changes_no_time(seed):
    """When each poll is due is in the state alone."""
    site = Feeds(seed, period_s=300)
    world = World(site, seed=seed, delay_s=0.1)
    world.submit(*site.recurring, interval_ms=60_000)
    world.run_until(START + 1_000)
    before = [part._waiting.next_ms() for part in world.parts]
    for number in range(world.partitions):
        world.reopen(number)
    assert before == [part._waiting.next_ms() for part in world.parts]


class StoredView(StagedView):
    """The real view over RocksDB, committed and dropped as the runner does it."""

    def __init__(self, store: PartitionStore) -> None:
        super().__init__(store, TABLES)
        self._applied = 0

    def commit(self) -> None:
        changes = self.changes()
        self._applied += len(changes)
        self._store.apply(changes, self._applied, START)
        self.clear()

    def abort(self) -> None:
        self.clear()

    def savepoint(self) -> dict[tuple[str, bytes], bytes | None]:
        return self.changes()

    def rollback(self, mark: dict[tuple[str, bytes], bytes | None]) -> None:
        self.clear()
        for (table, key), value in mark.items():
            self._stage(table, key, value)


def test_the_same_holds_over_the_real_view(tmp_path):
    """The fake stands for the staged view: what is promised over one is promised over the other."""
    site = Site(7)
    stores = [PartitionStore(tmp_path / str(number), TABLES) for number in range(3)]
    world = World(site, seed=7, fault_rate=0.1, views=[StoredView(store) for store in stores])
    world.submit(*site.urls[:2])
    world.run()
    assert Counter(site.reachable(site.urls[:2])[1]) == Counter(url for _, url in world.fetched)
    for store in stores:
        store.close()
