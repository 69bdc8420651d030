from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.errors import InputError
from pipeline.frontier.records import SEEN, TABLES, WAITING
from pipeline.web.domains import PSL_VERSION
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key
from tests.fakes import MemoryView
from tests.frontier_world import CODECS, Bench, decode, make_crawl, make_links, make_stage

A = "http://a.test/"


@pytest.fixture
def bench():
    """A partition of its own."""
    return Bench(make_stage())


class CountingView(MemoryView):
    """Counts look-ups of the seen table."""

    def __init__(self):
        super().__init__(TABLES)
        self.asked = 0

    def get(self, table, key):
        self.asked += table == SEEN
        return super().get(table, key)


def test_new_links_wait_with_what_they_were_found_with(bench):
    """Depth and time of finding go with the URL; its lane is the normal one."""
    bench.links([A + "1", A + "2"], depth=3, found_at_ms=42)
    lanes = bench.emitted()
    assert [A + "1", A + "2"] == [lane["url"] for lane in lanes]
    assert {(3, 42, 3, "")} == {
        (lane["depth"], lane["submitted_at_ms"], lane["priority"], lane["source"]) for lane in lanes
    }
    assert (1, 2, 2) == tuple(bench.progress()[name] for name in ("links_received", "seen", "out"))


def test_known_links_cost_one_look_at_memory():
    """Nearly all links of a page are known: this is the hottest path of the frontier."""
    bench = Bench(make_stage(), CountingView())
    urls = [f"{A}{number}" for number in range(100)]
    bench.links(urls)
    asked = bench.view.asked
    bench.links(urls)
    bench.links(urls, depth=5)
    assert asked == bench.view.asked
    assert 100 == bench.progress()["seen"]


def test_a_url_that_stands_twice_or_in_two_spellings_is_claimed_once(bench):
    """Parse sends each page once; an older parse may have other rules."""
    bench.links([A + "x#part", A + "x", A + "x", "HTTP://A.test/x"])
    bench.links(["HTTP://a.TEST/x"])
    assert [A + "x"] == bench.urls()
    assert 1 == bench.progress()["seen"]


def test_a_link_is_known_by_its_canonical_url_and_fetched_as_it_was_first_found(bench):
    """What a site makes of a spelling is its own; that two spellings are one page is what the key is for."""
    bench.links([A + "%7ex?utm_source=1", A + "~x", A + "y"])
    bench.links([A + "~x", A + "y?utm_source=2"])
    lanes = bench.emitted()
    assert {A + "%7ex?utm_source=1": url_key(A + "~x"), A + "y": url_key(A + "y")} == {
        lane["url"]: lane["url_key"] for lane in lanes
    }
    for lane in lanes:
        bench.outcome(lane, "FETCHED")
    bench.links([A + "%7Ex", A + "y?gclid=1"])
    assert ([], 2) == (bench.urls(after_s=10), bench.progress()["seen"])


def test_spellings_are_refused_by_scope_and_traps_as_their_page_is():
    """Rules are written against canonical URLs: a tracking parameter neither opens nor closes a crawl."""
    scope = [{"action": "ALLOW", "pattern": A + "news/*"}, {"action": "DENY", "pattern": "*"}]
    bench = Bench(make_stage({"c": make_crawl("c", scope=scope)}))
    many = "&".join(f"utm_{number}=1" for number in range(100))
    bench.links([f"{A}%6eews/1?{many}", A + "other?utm_content=" + A + "news/1"], crawl="c")
    assert [f"{A}%6eews/1?{many}"] == bench.urls()
    assert {"scope": 1} == bench.progress("c")["refused"]


def test_a_spelling_that_is_too_long_finds_its_page_again(bench):
    """Who sends links may allow longer URLs; the page is known already."""
    bench.links([A + "x"], depth=5)
    bench.links([A + "x?utm_source=" + "x" * 5_000], depth=2)
    assert [2] == [lane["depth"] for lane in bench.emitted()]
    assert {} == bench.progress()["refused"]


def test_a_bad_url_inside_a_record_is_a_counted_refusal(bench):
    """One bad link must not cost the other links of its page, nor fill the dead letters."""
    bench.links(["javascript:void(0)", "http://", "http://u:p@a.test/", A, "http://a.test/" + "x" * 3_000])
    bench.links(["javascript:void(0)"])
    assert [A] == bench.urls()
    assert {"scheme": 1, "no_host": 1, "credentials": 1, "too_long": 1} == bench.progress()["refused"]


@pytest.mark.parametrize(
    ("fields", "field"), [({"crawl": ""}, "crawl"), ({"crawl": "a\0"}, "crawl"), ({"depth": -1}, "depth")]
)
def test_a_record_that_makes_no_sense_changes_nothing(bench, fields, field):
    """It becomes a dead letter as a whole."""
    with pytest.raises(InputError) as caught:
        bench.send(topics.LINKS, {**make_links([A]), **fields})
    assert ("schema_rejected", field) == (caught.value.reason, caught.value.field)
    assert not any(bench.view.rows(table) for table in TABLES)


@pytest.mark.parametrize(
    ("definition", "url", "depth", "reason"),
    [
        ({"max_depth": 2}, A, 3, "depth"),
        ({"scope": [{"action": "DENY", "pattern": "*.test/"}]}, A, 1, "scope"),
        ({}, A + "x/y/x/y/x/y/", 1, "path_repetition"),
        ({}, A + "?" + "&".join("abcdefghijklmnopqrstuvwxyzabcdefghij"), 1, "parameters"),
    ],
)
def test_a_refusal_is_counted_once_and_recorded(definition, url, depth, reason):
    """`explain` must know why a URL was not fetched, and the same link on the next page is no news."""
    bench = Bench(make_stage({"c": make_crawl("c", **definition)}))
    for _ in range(2):
        bench.links([url], crawl="c", depth=depth)
        bench.reopen()
    assert [] == bench.urls()
    assert {reason: 1} == bench.progress("c")["refused"]
    assert 1 == len(bench.view.rows(SEEN))


def test_the_configured_depth_holds_for_crawls_that_say_nothing():
    """A definition's own depth goes before it."""
    bench = Bench(make_stage({"own": make_crawl("own", max_depth=9), "silent": make_crawl("silent")}, max_depth=1))
    for crawl in ("own", "silent", "default"):
        bench.links([A], crawl=crawl, depth=2)
    assert ["own"] == [lane["crawl"] for lane in bench.emitted()]


def test_a_refusal_by_depth_is_reopened_when_the_url_is_found_nearer():
    """Pages arrive in any order: the first way to a URL need not be the shortest."""
    bench = Bench(make_stage({"c": make_crawl("c", max_depth=2)}))
    bench.links([A], crawl="c", depth=4)
    bench.links([A], crawl="c", depth=3)
    assert ({"depth": 1}, 1) == (bench.progress("c")["refused"], bench.progress("c")["seen"])
    bench.reopen()
    bench.links([A], crawl="c", depth=2)
    assert [2] == [lane["depth"] for lane in bench.emitted()]
    assert ({}, 1) == (bench.progress("c")["refused"], bench.progress("c")["seen"])


def test_a_trap_is_not_reopened(bench):
    """It is one at any depth."""
    bench.links([A + "x/x/x/"], depth=4)
    bench.links([A + "x/x/x/"], depth=1)
    assert ([], {"path_repetition": 1}) == (bench.urls(), bench.progress()["refused"])


def test_a_waiting_url_that_is_found_nearer_is_fetched_as_nearer():
    """Otherwise its own links would be refused by depth."""
    bench = Bench(make_stage({"c": make_crawl("c", max_depth=5)}))
    bench.task(A + "first", crawl="c")
    bench.links([A + "x"], crawl="c", depth=5, found_at_ms=7)
    bench.reopen()
    bench.links([A + "x"], crawl="c", depth=2)
    assert {A + "first": 0, A + "x": 2} == {lane["url"]: lane["depth"] for lane in bench.emitted()}


def test_a_url_that_is_out_remembers_that_it_was_found_nearer(bench):
    """Its lane record is gone; a second attempt carries the smaller depth."""
    bench.links([A], depth=5)
    (lane,) = bench.emitted()
    bench.links([A], depth=2)
    bench.outcome(lane, "NETWORK_ERROR")
    assert [2] == [lane["depth"] for lane in bench.emitted(after_s=1)]


def test_a_done_url_stays_done_however_near_it_is_found(bench):
    """A document is published once."""
    bench.links([A], depth=5)
    bench.outcome(bench.emitted()[0], "FETCHED")
    bench.links([A], depth=1)
    assert [] == bench.urls(after_s=10)


def test_urls_of_other_partitions_go_on_in_one_record_each():
    """Dealt by another list of public suffixes; only the owner may handle a domain, and the counts must agree."""
    bench = Bench(make_stage(partitions=4), partition=1)
    by_owner = {}
    for number in range(60):
        url = f"http://d{number}.test/"
        by_owner.setdefault(partition_for(f"d{number}.test".encode(), 4), []).append(url)
    outputs = bench.links(
        [url for urls in zip(*by_owner.values(), strict=False) for url in urls], depth=3, found_at_ms=5,
        psl_version="older",
    )  # fmt: skip
    assert {0, 2, 3} == {output.partition for output in outputs}
    for output in outputs:
        batch = decode(output)
        assert (topics.LINKS.name, None) == (output.topic, output.key)
        assert (3, 5, PSL_VERSION) == (batch["depth"], batch["found_at_ms"], batch["psl_version"])
        assert set(batch["urls"]) <= set(by_owner[output.partition])
    assert [1, 0, 1, 1] == bench.progress()["links_sent"]
    assert set(bench.urls()) <= set(by_owner[1])


def test_links_of_an_unknown_crawl_wait_for_the_definition():
    """Without its scope nothing can be judged."""
    definitions = {}
    bench = Bench(make_stage(definitions))
    bench.links([A, "http://b.test/"], crawl="late")
    assert (1, 1, 1) == tuple(bench.progress("late")[name] for name in ("links_received", "waiting", "parked"))
    assert not bench.view.rows(WAITING)
    definitions["late"] = make_crawl("late", scope=[{"action": "DENY", "pattern": "*b.test*"}])
    assert [A] == bench.urls(after_s=1)
    assert (1, 0, {"scope": 1}) == tuple(
        bench.progress("late")[name] for name in ("links_received", "parked", "refused")
    )


def test_a_link_record_is_handled_the_same_when_it_comes_again_after_an_undo(bench):
    """A record whose transaction was undone is handled again: the claim must neither be lost nor doubled."""
    bench.view.commit()
    mark = bench.view.savepoint()
    bench.links([A, "http://b.test/"])
    bench.view.rollback(mark)
    bench.reopen()
    assert bench.frontier.due() is None
    bench.links([A, "http://b.test/"])
    assert sorted([A, "http://b.test/"]) == sorted(bench.urls())
    assert 2 == bench.progress()["seen"]


def test_the_value_of_a_link_record_may_hold_anything_the_schema_allows(bench):
    """Text from the web is strange; nothing in it may stop a partition."""
    strange = [
        "", "\0", "http://[", "//x", "http://a.test/\u202e", "http://ä.test/ö?ü=\U0001f600", "%", "http://a.test:99999/",
    ]  # fmt: skip
    value = CODECS.encode(topics.LINKS.subject, make_links(strange))
    bench.send(topics.LINKS, value)
    assert len(strange) == bench.progress()["seen"]


def test_links_are_as_pressing_as_their_record_says_and_keep_its_source(bench):
    """What an urgent feed announces must not stand in the bulk lane, and its source's rules hold for it."""
    bench.links([A], source="news.wire", priority=1)
    (output,) = [output for output in bench.tick() if output.topic == topics.LANE_URGENT.name]
    lane = decode(output)
    assert ("news.wire", 1) == (lane["source"], lane["priority"])


def test_a_task_s_depth_limit_holds_for_its_links_and_travels_on(bench):
    """Who asks for two levels below a page gets no third one, whatever the crawl allows."""
    bench.links([A], depth=2, max_depth=2)
    bench.links([A + "deeper"], depth=3, max_depth=2)
    assert [(A, 2)] == [(lane["url"], lane["max_depth"]) for lane in bench.emitted()]
    assert {"depth": 1} == bench.progress()["refused"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"priority": 0}, "priority"),
        ({"max_depth": -1}, "max_depth"),
        ({"found_at_ms": -1}, "found_at_ms"),
        ({"found_at_ms": 253_402_300_800_000}, "found_at_ms"),
        ({"source": "s" * 256}, "source"),
    ],
)
def test_a_link_record_that_makes_no_sense_is_refused_as_a_whole(bench, fields, field):
    """Nothing of it may be half taken in."""
    with pytest.raises(InputError) as caught:
        bench.links([A], **fields)
    assert ("schema_rejected", field) == (caught.value.reason, caught.value.field)
