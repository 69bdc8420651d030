from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Frontier
from pipeline.frontier.policy import CrawlPolicy, why
from pipeline.frontier.scope import Scope
from pipeline.web.patterns import source_matcher
from tests.frontier_world import Bench, make_crawl, make_stage


def allows(scope, url, source=""):
    """Whether a URL belongs to a scope."""
    return scope.refusal(url, source) is None


def allow(pattern):
    """A rule that allows."""
    return {"action": "ALLOW", "pattern": pattern}


def deny(pattern):
    """A rule that denies."""
    return {"action": "DENY", "pattern": pattern}


@pytest.mark.parametrize(
    ("rules", "url", "allowed"),
    [
        ([], "http://a.test/", True),
        ([deny("*/private/*")], "http://a.test/x", True),
        ([deny("*/private/*")], "http://a.test/private/x", False),
        ([allow("http://a.test/*")], "http://a.test/x", True),
        ([allow("http://a.test/*")], "http://b.test/x", False),
        ([deny("*.pdf"), allow("http://a.test/*")], "http://a.test/x.pdf", False),
        ([allow("http://a.test/*"), deny("*.pdf")], "http://a.test/x.pdf", True),
        ([allow("http://a.test/")], "http://a.test/x", False),
        ([allow("http://a.test/?q=*")], "http://a.test/?q=1", True),
        ([allow("http://a.test/?q=*")], "http://a.test/xq=1", False),
        ([{"action": "UNKNOWN", "pattern": "*x*"}], "http://a.test/x", False),
    ],
)
def test_the_first_rule_that_matches_decides(rules, url, allowed):
    """Order is the operator's; nothing matching denies where anything is allowed explicitly."""
    assert allowed == allows(Scope(rules), url)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_star_stands_for_any_run_of_characters(pattern, url):
    """The linear matcher answers as the regular expression would that it replaces."""
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), url) is not None
    assert expected == allows(Scope([allow(pattern)]), url)


def test_a_pattern_with_many_stars_costs_no_more_than_the_url_is_long():
    """A definition comes from outside: one pattern must not stop a partition."""
    scope = Scope([allow("*a" * 50 + "*b")])
    begin = time.process_time()
    assert not allows(scope, "http://h.test/" + "a" * 2_000)
    assert time.process_time() - begin < 0.1


@pytest.mark.parametrize(
    ("pattern", "source", "matches"),
    [
        ("news", "news", True),
        ("news", "news.reuters", False),
        ("news.*", "news.reuters", True),
        ("news.*", "news", False),
        ("news.*", "news.reuters.markets", False),
        ("news.*", "news.", False),
        ("*.markets", "reuters.markets", True),
        ("exchange.>", "exchange.nyse", True),
        ("exchange.>", "exchange.nyse.halts.today", True),
        ("exchange.>", "exchange", False),
        ("exchange.*.>", "exchange.nyse", False),
        (">", "anything.at.all", True),
        (">", "", True),
        ("*", "", False),
        ("News", "news", False),
    ],
)
def test_a_source_pattern_speaks_of_whole_words(pattern, source, matches):
    """A star is one word, > one or more at the end, as in NATS subjects."""
    assert matches == source_matcher(pattern)(source)


def test_a_rule_of_a_source_holds_for_what_this_source_found():
    """The exchange's own feed may be followed where a newspaper's links may not."""
    scope = Scope([
        {**allow("http://a.test/halts/*"), "source": "exchange.>"},
        deny("http://a.test/halts/*"),
        allow("http://a.test/*"),
    ])  # fmt: skip
    assert scope.by_source
    assert allows(scope, "http://a.test/halts/1", "exchange.nyse")
    assert not allows(scope, "http://a.test/halts/1", "news.reuters")
    assert not allows(scope, "http://a.test/halts/1")
    assert allows(scope, "http://a.test/", "news.reuters")
    assert not Scope([allow("*")]).by_source


@pytest.mark.parametrize("source", ["news..x", ">.x", "new*", ".", "*>"])
def test_a_source_pattern_of_unknown_form_on_the_topic_denies_and_takes_nothing_down(source):
    """What a newer release may forbid is not fetched, and no definition stops a worker."""
    assert not allows(Scope([{**deny("*"), "source": source}]), "http://a.test/", "news.x")
    assert not allows(Scope([{**allow("*"), "source": source}]), "http://a.test/", "news.x")


@pytest.mark.parametrize(
    ("rules", "source", "said"),
    [
        ([deny("*.pdf"), allow("*")], "", "scope: rule 1: DENY *.pdf"),
        ([{**deny("*"), "source": "news.>"}], "news.x", "scope: rule 1: DENY * for source news.>"),
        ([allow("http://b.test/*")], "", "scope: no rule allows it"),
    ],
)
def test_a_refusal_says_which_rule_it_was(rules, source, said):
    """Of a hundred rules a person wants to know which."""
    assert said == str(Scope(rules).refusal("http://a.test/x.pdf", source))
    assert None is Scope([]).refusal("http://a.test/x.pdf", source)


def test_a_url_that_one_source_may_not_bring_another_may():
    """The refusal of the first must not stand in the way of the second; nor is it counted twice."""
    rules = [{**allow("*"), "source": "exchange.>"}]
    bench = Bench(make_stage({"c": make_crawl("c", scope=rules)}, delay_s=0))
    for source in ("news.x", "news.x", "news.y"):
        bench.links(["http://a.test/"], "c", source=source)
    assert [] == bench.urls()
    assert (1, {"scope": 1}) == (bench.progress("c")["seen"], bench.progress("c")["refused"])
    bench.links(["http://a.test/"], "c", depth=9, source="exchange.nyse")
    assert ["http://a.test/"] == bench.urls()
    assert (1, {}) == (bench.progress("c")["seen"], bench.progress("c")["refused"])
    bench.links(["http://a.test/"], "c", source="news.x")
    assert [] == bench.urls()


def test_a_definition_that_makes_no_sense_takes_no_partition_down():
    """It is on the topic and comes back at every start."""
    wrong = {"max_pages": -1, "max_bytes": -5, "max_pages_per_domain": -1, "max_bytes_per_domain": -1, "max_depth": -1}
    for field, value in wrong.items():
        bench = Bench(make_stage({"c": make_crawl("c", **{field: value})}, delay_s=0))
        bench.task("http://a.test/", "c")
        bench.links(["http://a.test/1"], "c")
        bench.tick(10)
        assert [] == [url for url in bench.urls(100) if url.endswith("1")]


def test_why_tells_the_first_thing_that_refuses_a_link():
    """The same function decides and explains."""
    policy = CrawlPolicy(make_crawl("c", max_depth=3, scope=[deny("*.pdf")]), Frontier())
    assert "path_repetition" == why(policy, "http://a.test/x/x/x/y.pdf", "", 9, 0).reason
    assert "depth: 4, at most 3" == str(why(policy, "http://a.test/y.pdf", "", 4, 0))
    assert "depth: 4, at most 2" == str(why(policy, "http://a.test/y.pdf", "", 4, 0, max_depth=2))
    assert "scope: rule 1: DENY *.pdf" == str(why(policy, "http://a.test/y.pdf", "", None, 0))
    assert None is why(policy, "http://a.test/y", "", 3, 0)
