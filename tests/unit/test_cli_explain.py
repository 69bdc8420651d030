from __future__ import annotations

import pytest
from click.testing import CliRunner

from pipeline.cli import explain as command
from pipeline.cli.explain import explain
from pipeline.cli.explanation import lines_of_url, verdict

NOW_MS = 1_700_000_000_000
TROUBLE = "RATE_LIMITED 200 told:mine"
DOMAIN = {
    "known": True, "waiting": {"urgent": 0, "normal": 10_000, "bulk": 2}, "next_due_ms": {}, "out": 1,
    "delays_ms": {"configured": 1_000, "crawl_delay a.test": 90_000}, "parked": False, "waits": [], "crawls": [],
}  # fmt: skip


def standing(state, why, reason="", **fields):
    """A row of a URL in a crawl."""
    return {
        "crawl": "c", "state": state, "why": why, "reason": reason, "facts": {}, "waits": [], "lane": "normal",
        "outcome": None, "status": None, "since_ms": None, "ahead": None, "submitted_ms": None, **fields,
    }  # fmt: skip


def wait(why, until_ms=None, **facts):
    """One thing that is waited for."""
    return {"why": why, "until_ms": until_ms, "facts": facts}


def told(*crawls, **fields):
    """What the explainer returns of a URL."""
    return {
        "url": "http://a.test/", "key": "00", "domain": "a.test", "partition": 3, "known": bool(crawls),
        "answered_by": "frontier-0", "as_of_ms": NOW_MS, "crawls": list(crawls), "domain_state": DOMAIN,
        "dead_letters": [], "not_kept": ["x"], **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (standing("done", "seen", outcome="FETCHED", status=200), "fetched: FETCHED 200; seen"),
        (
            standing("refused", "scope", "scope", facts={"detail": "rule 2: DENY *.pdf"}),
            "not fetched: refused by scope: rule 2: DENY *.pdf",
        ),
        (standing("done", "redirected", outcome="REDIRECTED", status=301), "led elsewhere: REDIRECTED 301; "),
        (
            standing("refused", "depth", "depth", facts={"limit": 2, "value": 3}),
            "not fetched: refused by depth: 3, at most 2",
        ),
        (standing("refused", "withdrawn", "withdrawn"), "not fetched: its task was withdrawn"),
        (standing("held", "parse", "awaits_parse"), "not polled yet: the page of its last poll is not parsed"),
        (
            standing("held", "budget", "domain_budget", facts={"limit": 5, "value": 4}),
            "not fetched: held by domain_budget: 4, at most 5",
        ),
        (
            standing("refused", "trap", "path_repetition", facts={"limit": 2, "value": 3, "detail": "x/y"}),
            "not fetched: refused by path_repetition: 3, at most 2: x/y",
        ),
        (
            standing("done", "robots", "disallowed:12", outcome="ROBOTS_DENIED"),
            "not fetched: robots.txt forbids it: ROBOTS_DENIED by line 12",
        ),
        (
            standing(
                "waiting",
                "backoff",
                waits=[
                    wait("backoff", NOW_MS + 61_500, level=2, since_ms=NOW_MS, named_by_site=False, trouble=TROUBLE)
                ],
            ),
            (
                "not fetched yet: backoff: incident 2 in a row, since 2023-11-14T22:13:20.000Z "
                "(the last: RATE_LIMITED 200 told:mine); no request before 2023-11-14T22:14:21.500Z (in 1.0 min)"
            ),
        ),
        (
            standing("waiting", "turn", waits=[wait("turn", ahead=3)]),
            "not fetched yet: it waits for its turn; tasks of its domain before it in the normal lane: 3",
        ),
        (standing("waiting", "turn", waits=[wait("turn", ahead=0)]), "not fetched yet: its turn is next"),
        (
            standing("done", "dead_letter", "retries_exhausted", outcome="HTTP_ERROR", status=503),
            "not fetched: a dead letter (retries_exhausted): HTTP_ERROR 503",
        ),
        (standing("out", "out", since_ms=NOW_MS - 2_000), "being fetched: given out 2 s ago on the normal lane"),
        (
            {"crawl": "c", "state": "unknown", "why": "dead_letter", "reason": "invalid_task"},
            "not fetched: its task is a dead letter (invalid_task)",
        ),
    ],
)
def test_the_verdict_is_a_sentence(row, expected):
    """The answer comes first, with the number that decided and the one it was compared with."""
    assert verdict(row, NOW_MS).startswith(expected)


@pytest.mark.parametrize(
    ("changed_ms", "news"), [(None, "nothing new so far"), (NOW_MS, "the last news 2023-11-14T22:13:20.000Z")]
)
def test_of_recurring_work_the_interval_is_told_as_it_is_and_as_it_was_wished(changed_ms, news):
    """They differ, and somebody wonders why a page is asked so seldom."""
    facts = {"poll": 7, "wished_ms": 60_000, "interval_ms": 90_000, "changed_ms": changed_ms}
    row = standing("held", "parse", "awaits_parse", facts=facts)
    line = list(lines_of_url(told(row)))[2]
    assert f"    recurring: poll 7, every 1.5 min now, 1.0 min wished; {news}" == line


def test_all_of_a_url_is_told_in_lines():
    """The verdict, what comes after, its letters with the way back, its domain, and who says so."""
    row = standing(
        "waiting", "delay", source="desk", depth=1, priority=3, deliveries=2, attempts=1, submitted_ms=NOW_MS,
        waits=[
            wait("delay", NOW_MS + 500, delay_ms=1_000, made_by="configured", last_end_ms=NOW_MS),
            wait("slots", out=2, window=2, delay_ms=1_000, made_by="configured"),
            wait("turn", ahead=0),
        ],
    )  # fmt: skip
    letter = {"id": "L", "state": "open", "reason": "deadline", "message": "\x1b[31m", "time": "T", "command": "C"}
    assert [
        "http://a.test/",
        (
            "  crawl c: not fetched yet: the pause of 1 s between requests (configured) ends 2023-11-14T22:13:20.500Z"
            " (in 0.5 s)"
        ),
        (
            "    wished or found 2023-11-14T22:13:20.000Z, source desk, depth 1, priority 3, deliveries 2,"
            " failed attempts 1"
        ),
        "    then: 2 tasks of the domain are out, at most 2 may be: one has to end first",
        "  dead letter L (open, deadline), T",
        "    \\x1b[31m",
        "    bring it back: C",
        "  domain a.test: waiting: 10000 or more normal, 2 bulk; out: 1; pause 1.5 min (crawl_delay a.test)",
        "  told by frontier-0, which owns partition 3, 2023-11-14T22:13:20.000Z",
        "  not kept: x",
    ] == list(lines_of_url(told(row, dead_letters=[letter])))


def test_what_kafka_alone_says_is_said_to_be_so():
    """It is as of the last commit, and counts nothing that only a worker can count."""
    lines = list(lines_of_url(told(answered_by=None, domain_state={**DOMAIN, "waiting": None})))
    assert (
        "  unknown: nothing is known of it (yet): a task that was accepted a moment ago may not have been read" in lines
    )
    assert "  domain a.test: waiting tasks not counted; out: 1; pause 1.5 min (crawl_delay a.test)" in lines
    assert "  read from the frontier's state as of its last commit, 2023-11-14T22:13:20.000Z; partition 3" in lines


@pytest.fixture
def run(monkeypatch):
    """Run the command with an explainer that knows one URL; `run.asked` is what it was asked."""
    asked = []

    class Explainer:
        def __init__(self, settings, codecs, *, answer_s, read_s, note):
            asked.append((answer_s, read_s))

        def url(self, url, crawl):
            asked.append((url, crawl))
            return told(standing("out", "out", since_ms=0)) if "known" in url else told()

        def domain(self, name):
            asked.append(name)
            return {**told(), "known": True}

    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "nobody.test:9092")
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "Explainer", Explainer)

    def invoke(*arguments):
        return CliRunner().invoke(explain, arguments)

    invoke.asked = asked
    return invoke


def test_the_status_tells_a_script_whether_the_url_is_known(run):
    """0 known, 1 unknown."""
    assert 0 == run("http://known.test/").exit_code
    assert 1 == run("http://a.test/").exit_code
    assert 0 == run("a.test").exit_code
    assert "a.test" == run.asked[-1]


def test_nobody_is_asked_by_order(run):
    """Where workers are known to be away, waiting for them is time lost."""
    run("--no-workers", "--read-limit", "7", "--crawl", "c", "http://known.test/")
    assert [(0, 7.0), ("http://known.test/", "c")] == run.asked


def test_a_url_without_a_scheme_is_not_taken_for_its_domain(run):
    """The answer would be to another question."""
    said = run("a.test/page")
    assert (2, []) == (said.exit_code, run.asked)
    assert "a URL has a scheme" in said.output
