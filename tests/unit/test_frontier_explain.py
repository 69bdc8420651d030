from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.frontier.explain import Standing, explain
from pipeline.frontier.explain_domain import explain_domain
from pipeline.frontier.insight import MAX_COUNTED
from pipeline.web.domains import registrable_domain
from pipeline.web.url import canonicalize, url_key
from tests.frontier_world import START, Bench, make_crawl, make_stage

A = "http://a.test/"
START_MS = int(START * 1000)


def told(bench: Bench, url: str, crawl: str | None = "default") -> Standing | None:
    """What is said of a URL in a crawl."""
    canonical = canonicalize(url)
    found = explain(
        bench.frontier.insight(),
        registrable_domain(canonical.host),
        canonical.href,
        url_key(canonical.href),
        int(bench.now * 1000),
        crawl,
    )
    return found[0] if found else None


def why(bench: Bench, url: str, crawl: str = "default") -> tuple[str, str, str]:
    """State, what decided, and the reason on record."""
    standing = told(bench, url, crawl)
    return standing.state, standing.why, standing.reason


def test_a_page_that_was_brought_is_seen():
    """A link to it changes nothing any more; with what it ended is told."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    standing = told(bench, "HTTP://A.TEST:80/#x")
    assert ("done", "seen", "") == (standing.state, standing.why, standing.reason)
    assert ("FETCHED", 1) == (standing.outcome, standing.deliveries)


def test_a_page_beyond_the_horizon_is_unknown_again():
    """It would be fetched anew: to call it seen would be wrong."""
    bench = Bench(make_stage(seen_horizon_s=86_400.0 * 30))
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.now += 86_400 * 29
    assert ("seen", "2023-11-14") == (told(bench, A).why, told(bench, A).day)
    bench.now += 86_400 * 3
    assert ("unknown", "unknown", "") == why(bench, A)


def test_a_url_out_of_scope_is_told_with_the_rule():
    """A list of thirty rules is no answer."""
    scope = [
        {"action": "DENY", "pattern": "*.pdf", "source": ""},
        {"action": "ALLOW", "pattern": "http://a.test/*", "source": ""},
    ]
    bench = Bench(make_stage({"c": make_crawl("c", scope=scope)}))
    bench.links([A, A + "x.pdf", "http://b.test/"], "c")
    assert ("refused", "scope", "scope") == why(bench, A + "x.pdf", "c")
    assert "rule 1: DENY *.pdf" == told(bench, A + "x.pdf", "c").facts["detail"]
    assert "no rule allows it" == told(bench, "http://b.test/", "c").facts["detail"]
    assert ("unknown", "scope", "scope") == why(bench, A + "never-found.pdf", "c")


def test_a_rule_for_a_source_is_not_told_of_a_url_whose_source_is_not_kept():
    """A wrong rule would be worse than none."""
    scope = [{"action": "DENY", "pattern": "*", "source": "news.*"}]
    bench = Bench(make_stage({"c": make_crawl("c", scope=scope)}))
    bench.links([A], "c", source="news.desk")
    assert ("refused", "scope", "scope") == why(bench, A, "c")
    assert "a rule for its source, which is not kept" == told(bench, A, "c").facts["detail"]


def test_a_url_that_led_elsewhere_is_not_called_fetched():
    """Its page is under another URL."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "REDIRECTED", status=301, location="http://b.test/")
    assert ("done", "redirected", "") == why(bench, A)


def test_a_url_that_is_too_deep_is_told_with_limit_and_depth():
    """The number to change stands beside the one that was too large."""
    bench = Bench(make_stage({"c": make_crawl("c", max_depth=1)}))
    bench.links([A], "c", depth=3)
    assert ("refused", "depth", "depth") == why(bench, A, "c")
    assert {"limit": 1, "value": 3} == told(bench, A, "c").facts


def test_a_depth_that_only_its_start_point_allowed_is_not_laid_to_the_crawl():
    """The crawl's own limit would be the wrong number to change."""
    bench = Bench(make_stage({"c": make_crawl("c", max_depth=9)}))
    bench.links([A], "c", depth=3, max_depth=2)
    assert {"value": 3} == told(bench, A, "c").facts


def test_a_url_held_by_its_domains_budget_is_told_with_what_is_used():
    """First it is held, while a page that is out may bring nothing; then it is refused."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_domain=1)}, delay_s=0))
    bench.links([A, A + "second"], "c")
    (lane,) = bench.emitted()
    assert ("held", "budget", "domain_budget") == why(bench, A + "second", "c")
    bench.outcome(lane, "FETCHED")
    bench.tick(1)
    assert ("refused", "budget", "domain_budget") == why(bench, A + "second", "c")
    facts = told(bench, A + "second", "c").facts
    assert (1, 1) == (facts["limit"], facts["value"])


def test_a_url_held_by_its_crawls_budget_is_told_with_the_limit():
    """It would look forgotten otherwise."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages=1)}, delay_s=0))
    bench.links([A, A + "second"], "c")
    bench.tick()
    bench.tick()
    assert ("held", "budget", "crawl_budget") == why(bench, A + "second", "c")
    assert {"limit": 1, "of_day": None, "of_bytes": None} == told(bench, A + "second", "c").facts


def test_a_task_of_a_crawl_that_nobody_has_defined_waits_for_its_definition():
    """The commonest slip: a task for a crawl whose name has a typing error."""
    definitions = {"c": make_crawl("c")}
    bench = Bench(make_stage(definitions))
    bench.task(A, "c")
    del definitions["c"]
    bench.tick()
    assert ("held", "definition", "crawl_unknown") == why(bench, A, "c")
    assert ("unknown", "definition", "crawl_unknown") == why(bench, A, "never")


def test_a_task_that_is_kept_as_it_came_waits_for_its_definition():
    """It was accepted, and stands nowhere but among the records of its crawl; whoever asks need not know which one."""
    definitions = {}
    bench = Bench(make_stage(definitions))
    bench.links(["http://b.test/linked"], "typo")
    bench.task("HTTP://B.test:80/x/../page#top", "typo", source="desk", depth=2)
    bench.task("http://b\u00fccher.test/", "typo")
    for crawl in ("typo", None):
        standing = told(bench, "http://b.test/page", crawl)
        assert ("typo", "held", "definition", "crawl_unknown") == (
            standing.crawl, standing.state, standing.why, standing.reason,
        )  # fmt: skip
        assert ("desk", 2, 3, START_MS) == (
            standing.source, standing.depth, standing.priority, standing.submitted_ms,
        )  # fmt: skip
    assert "held" == told(bench, "http://b\u00fccher.test/", "typo").state
    assert told(bench, "http://b.test/linked", None) is None
    definitions["typo"] = make_crawl("typo")
    bench.tick()
    assert "held" != told(bench, "http://b.test/page", "typo").state


@pytest.mark.parametrize(
    ("path", "reason"),
    [("x/y/x/y/x/y", "path_repetition"), ("?" + "&".join(f"p{n}=1" for n in range(40)), "parameters")],
)
def test_a_trap_is_told_by_its_kind(path, reason):
    """What looks like a trap and is none has to be allowed by somebody who knows which."""
    bench = Bench(make_stage())
    bench.links([A + path])
    assert ("refused", "trap", reason) == why(bench, A + path)
    assert "limit" in told(bench, A + path).facts


def test_what_robots_txt_disallows_is_told():
    """Not a failure of ours, nor of the site's."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "ROBOTS_DENIED", reason="disallowed:12", requests=0)
    assert ("done", "robots", "disallowed:12") == why(bench, A)


def test_a_domain_that_backs_off_holds_its_urls():
    """With its time, its level, since when, and what the trouble was; a good answer ends it."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=200, reason="told:cloudflare")
    standing = told(bench, A)
    assert ("waiting", "backoff") == (standing.state, standing.why)
    trouble = "RATE_LIMITED 200 told:cloudflare"
    assert {"level": 1, "since_ms": START_MS, "named_by_site": False, "trouble": trouble} == standing.waits[0].facts
    assert START_MS + 60_000 <= standing.waits[0].until_ms <= START_MS + 75_000
    (lane,) = bench.emitted(75.0)
    bench.outcome(lane, "FETCHED")
    assert "" == bench.frontier.insight().pace("a.test").trouble


def test_a_time_that_the_site_has_named_is_told_from_a_backoff_of_our_own():
    """The one can be argued about with the site, the other with the configuration."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=START_MS + 9_000)
    wait = told(bench, A).waits[0]
    assert ("backoff", START_MS + 9_000, True) == (wait.why, wait.until_ms, wait.facts["named_by_site"])


def test_a_url_that_waits_for_its_turn_is_told_how_many_stand_before_it():
    """In its own lane: what is more urgent is no surprise."""
    bench = Bench(make_stage())
    bench.links([f"{A}{number}" for number in range(5)])
    standing = told(bench, A + "3")
    assert ("waiting", "turn", 3) == (standing.state, standing.why, standing.ahead)
    assert {"ahead": 3} == standing.waits[0].facts


def test_the_tasks_before_a_url_are_counted_within_bounds():
    """A person's question must not hold a partition up, however long the queue."""
    bench = Bench(make_stage())
    urls = [f"{A}{number}" for number in range(MAX_COUNTED + 5)]
    for at in range(0, len(urls), 1000):
        bench.links(urls[at : at + 1000])
    assert MAX_COUNTED == told(bench, urls[-1]).ahead


def test_a_url_whose_domain_was_just_asked_waits_for_the_pause():
    """And it is said who wants it so long."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED", crawl_delay_ms=7_000)
    bench.task(A + "next")
    standing = told(bench, A + "next")
    assert ("delay", START_MS + 7_000) == (standing.why, standing.waits[0].until_ms)
    assert "crawl_delay a.test" == standing.waits[0].facts["made_by"]


def test_a_url_whose_domain_has_all_out_that_may_be_waits_for_a_slot():
    """Nothing is wrong with it: an answer has to come first."""
    bench = Bench(make_stage())
    bench.links([A, A + "1", A + "2"])
    assert 2 == len(bench.urls() + bench.urls())
    standing = told(bench, A + "2")
    assert ("waiting", "slots") == (standing.state, standing.why)
    assert (2, 2) == (standing.waits[0].facts["out"], standing.waits[0].facts["window"])


@pytest.mark.parametrize(
    ("outcome", "fields", "expected"),
    [
        ("NETWORK_ERROR", {}, ("retry", 1_000)),
        ("DEFERRED", {"not_before_ms": START_MS + 4_000, "requests": 0}, ("deferred", 4_000)),
    ],
)
def test_a_url_that_was_out_waits_for_its_own_time(outcome, fields, expected):
    """A pause after a failure and a fetch that came too early are told apart."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, outcome, **fields)
    standing = told(bench, A)
    assert expected == (standing.why, standing.waits[0].until_ms - START_MS)


def test_a_url_that_may_not_go_yet_is_told_with_its_time():
    """Its sender wished it so."""
    bench = Bench(make_stage())
    bench.task(A, not_before_ms=START_MS + 5_000, source="desk", priority=1)
    standing = told(bench, A)
    assert ("not_before", START_MS + 5_000) == (standing.why, standing.due_ms)
    assert ("desk", 1, "urgent", START_MS) == (
        standing.source, standing.priority, standing.lane, standing.submitted_ms
    )  # fmt: skip


def test_a_url_that_is_out_is_told_since_when():
    """The next word is fetch's."""
    bench = Bench(make_stage())
    bench.task(A)
    bench.emitted()
    standing = told(bench, A)
    assert ("out", "out", START_MS, 1) == (standing.state, standing.why, standing.since_ms, standing.deliveries)


def test_a_url_that_ended_without_a_page_has_failed():
    """Whether a dead letter was written is for the dead letters to say."""
    bench = Bench(make_stage(max_attempts=1))
    bench.links([A, "http://b.test/"])
    for lane in bench.emitted():
        bench.outcome(lane, "HTTP_ERROR", status=404 if lane["url"] == A else 503)
    assert ("done", "failed", "") == why(bench, A)
    assert 404 == told(bench, A).status
    assert ("done", "failed", "retries_exhausted") == why(bench, "http://b.test/")


def test_a_url_is_told_for_each_crawl_that_knows_it():
    """The same page may be wanted by many, and out of the scope of some."""
    definitions = {name: make_crawl(name) for name in ("c1", "c10", "c2")}
    bench = Bench(make_stage(definitions))
    for name in ("c1", "c10"):
        bench.task(A, name)
    bench.task("http://b.test/", "c2")
    insight = bench.frontier.insight()
    found = explain(insight, "a.test", A, url_key(A), START_MS)
    assert ["c1", "c10"] == [standing.crawl for standing in found]
    assert [] == explain(insight, "c.test", "http://c.test/", url_key("http://c.test/"), START_MS)


def test_a_question_changes_nothing():
    """It is put to a partition that is at work."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages=1)}))
    bench.links([A, A + "1"], "c")
    bench.tick()
    bench.view.commit()
    told(bench, A, "c")
    told(bench, "http://never.test/", "c")
    explain_domain(bench.frontier.insight(), "never.test", START_MS)
    assert 0 == bench.view.commit()
    assert "never.test" not in bench.frontier._domains._domains


def test_without_the_queue_a_waiting_url_has_no_place_in_it():
    """What is read from the changelog holds the rows of one URL alone; a wrong count is worse than none."""
    bench = Bench(make_stage())
    bench.links([A, A + "1"])
    insight = replace(bench.frontier.insight(), queue_is_whole=False)
    (standing,) = explain(insight, "a.test", A + "1", url_key(A + "1"), START_MS)
    assert ("waiting", None) == (standing.state, standing.ahead)


def test_a_domain_is_told_with_its_queue_its_pace_and_its_budgets():
    """All that a person would ask next."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_domain=2)}))
    bench.links([f"{A}{number}" for number in range(4)], "c")
    bench.task(A + "urgent", "c", priority=1, not_before_ms=START_MS + 9_000)
    lanes = bench.emitted() + bench.emitted()
    bench.outcome(lanes[0], "FETCHED", crawl_delay_ms=3_000)
    bench.tick(4)
    standing = explain_domain(bench.frontier.insight(), "a.test", START_MS + 4_000)
    assert standing.known
    assert {"urgent": 1, "normal": 0, "bulk": 0} == {**standing.waiting, "normal": 0}
    assert START_MS + 9_000 == standing.next_due_ms["urgent"]
    assert 1 == standing.out
    assert {"configured": 1_000, "crawl_delay a.test": 3_000} == standing.delays_ms
    assert [("c", 2, 1, 2)] == [row[:4] for row in standing.crawls]


def test_a_domain_is_parked_while_it_must_not_be_asked_for_long():
    """It would look forgotten."""
    bench = Bench(make_stage())
    bench.links([A, A + "1"])
    lane, _ = bench.emitted()
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=START_MS + 3_600_000)
    assert explain_domain(bench.frontier.insight(), "a.test", START_MS).parked
    assert not explain_domain(bench.frontier.insight(), "a.test", START_MS + 3_599_000).parked


def test_a_domain_that_nobody_has_heard_of_is_unknown():
    """A typing error must not look like an idle domain."""
    assert not explain_domain(Bench(make_stage()).frontier.insight(), "a.test", START_MS).known
