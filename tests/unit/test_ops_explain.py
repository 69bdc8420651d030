from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.frontier.answers import explain_rows
from pipeline.frontier.insight import Insight
from pipeline.frontier.records import TABLES, WAITING
from pipeline.ops import frontier_state
from pipeline.ops.explain import _out_of, _with_letters
from pipeline.ops.frontier_state import KeptRows, rows_of_domain, rows_of_url
from pipeline.web.url import url_key
from tests.frontier_world import START, Bench, make_crawl, make_stage

A = "http://a.test/"


@pytest.fixture
def bench():
    """A partition in which something of everything has happened."""
    bench = Bench(make_stage({"c": make_crawl("c", max_depth=1, max_pages_per_domain=3)}))
    bench.links([f"{A}{number}" for number in range(4)], "c")
    bench.links([A + "deep"], "c", depth=2)
    bench.links(["http://b.test/", "http://b.test/?from=http://a.test/"], "c")
    bench.task(A + "3")
    bench.task(A + "kept", "typo")
    for lane in bench.emitted():
        if lane["url"] == A + "0":
            bench.outcome(lane, "FETCHED", crawl_delay_ms=5_000)
    return bench


def kept(bench, keep):
    """What would be kept of the partition's changelog."""
    rows = KeptRows(keep)
    changes = {(table, key): row for table in TABLES for key, row in bench.view.items(table)}
    rows.apply(changes, len(changes), START)
    return rows


def read(bench, rows, argument, *, whole):
    """What is said of the kept rows."""
    live = bench.frontier.insight()
    insight = Insight(
        rows, live.policies, live.politeness, live.frontier, _out_of(rows), live.decode_task, queue_is_whole=whole
    )  # fmt: skip
    return explain_rows(insight, argument, bench.now)


@pytest.mark.parametrize(
    "url", [A + "0", A + "1", A + "2", A + "3", A + "deep", "http://b.test/", A + "kept", A + "never"]
)
def test_the_rows_of_a_url_tell_what_the_worker_would_tell(bench, url):
    """But for its place in the queue, which the rows of one URL don't show."""
    argument = {"url": url, "domain": url.split("/")[2], "crawl": None}
    rows = kept(bench, rows_of_url(argument["domain"], url_key(url)))
    live = replace(bench.frontier.insight(), queue_is_whole=False)
    assert explain_rows(live, argument, bench.now) == read(bench, rows, argument, whole=False)


def test_the_rows_of_a_domain_tell_what_the_worker_would_tell(bench):
    """Its queue is there whole."""
    argument = {"domain": "a.test"}
    rows = kept(bench, rows_of_domain("a.test"))
    live = explain_rows(bench.frontier.insight(), argument, bench.now)
    assert live == read(bench, rows, argument, whole=True)
    assert live["domain"]["known"]


def test_a_row_that_is_gone_is_forgotten(bench):
    """A changelog holds what was, too, until it is compacted."""
    rows = kept(bench, rows_of_domain("a.test"))
    waiting = [key for key, _ in rows.items(WAITING)]
    assert waiting
    rows.apply({(WAITING, key): None for key in waiting}, 99, START)
    assert [] == list(rows.items(WAITING))


def test_memory_is_bounded_and_it_is_said_when_rows_are_missing(monkeypatch):
    """A domain with millions of waiting URLs must not bring down the machine of the person who asks."""
    monkeypatch.setattr(frontier_state, "MAX_ROWS", 3)
    rows = KeptRows(rows_of_domain("a.test"))
    changes = {(WAITING, b"a.test\0" + bytes((number,))): b"" for number in range(5)}
    rows.apply(changes, 5, START)
    assert (3, True) == (len(list(rows.items(WAITING))), rows.overflowed)


def letter(crawl="c", state="open"):
    """A dead letter of the URL."""
    return {"crawl": crawl, "state": state, "reason": "retries_exhausted"}


def test_a_url_that_died_is_told_as_a_dead_letter():
    """Its state knows the last outcome alone; the letter knows why it was given up, and is the way back."""
    failed = {"crawl": "c", "state": "done", "why": "failed", "reason": ""}
    (row,) = _with_letters([failed], [letter()])
    assert ("done", "dead_letter", "retries_exhausted") == (row["state"], row["why"], row["reason"])
    assert [failed] == _with_letters([failed], [letter(state="replayed")])
    assert [failed] == _with_letters([failed], [])


def test_a_letter_of_a_former_life_does_not_hide_what_is_now():
    """It was submitted anew, and waits or was fetched: the letter stands in its own list."""
    for row in (
        {"crawl": "c", "state": "waiting", "why": "turn", "reason": ""},
        {"crawl": "c", "state": "done", "why": "seen", "reason": ""},
    ):
        assert [row] == _with_letters([row], [letter()])


def test_a_task_that_never_got_in_is_known_by_its_letter():
    """Its crawl knows nothing of it."""
    (row,) = _with_letters([], [letter("other")])
    assert ("other", "unknown", "dead_letter") == (row["crawl"], row["state"], row["why"])
