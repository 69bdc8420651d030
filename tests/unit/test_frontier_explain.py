from __future__ import annotations

import pytest

from pipeline.frontier.explain import explain
from pipeline.web.url import RefusedUrl
from tests.frontier_world import START, Bench, make_crawl, make_stage

A = "http://a.test/"
START_MS = int(START * 1000)


def test_each_state_of_a_url_is_explained():
    """`explain` answers why a URL was or wasn't fetched."""
    definitions = {"c": make_crawl("c", max_pages_per_domain=1, max_depth=1)}
    bench = Bench(make_stage(definitions, delay_s=0))
    view = bench.view
    assert "unknown" == explain(view, "c", A).state
    bench.links([A, A + "held"], "c")
    bench.links([A + "deep"], "c", depth=2)
    bench.task("http://b.test/", "c", not_before_ms=START_MS + 5_000)
    (lane,) = bench.emitted()
    out = explain(view, "c", A)
    assert ("out", 1, START_MS) == (out.state, out.deliveries, out.since_ms)
    assert ("held", "domain_budget") == explain(view, "c", A + "held")[2:4]
    assert ("refused", "depth", 2) == explain(view, "c", A + "deep")[2:5]
    waiting = explain(view, "c", "http://b.test")
    assert ("waiting", START_MS + 5_000) == (waiting.state, waiting.due_ms)
    bench.outcome(lane, "HTTP_ERROR", status=404, reason="gone")
    assert ("done", "HTTP_ERROR 404 gone") == explain(view, "c", "HTTP://A.TEST:80/#x")[2:4]
    assert "unknown" == explain(view, "other", A).state


def test_a_held_domain_is_explained_with_its_time():
    """A URL that waits for its domain looks idle otherwise."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=START_MS + 9_000)
    told = explain(bench.view, "default", A)
    assert ("waiting", START_MS + 9_000, "a.test") == (told.state, told.domain_hold_until_ms, told.domain)


def test_no_url_is_refused_with_its_reason():
    """There is nothing to look up."""
    with pytest.raises(RefusedUrl):
        explain(Bench(make_stage()).view, "default", "mailto:x@a.test")
