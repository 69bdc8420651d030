"""The checker finds each fault where it is, and none where there is none: logs and records made by hand."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from pipeline import topics
from pipeline.contracts import load_codec
from pipeline.local import checker
from pipeline.local.checker import PublishedDocument, judge
from pipeline.local.expectation import Expectation, PathRule
from pipeline.local.request_log import LoggedRequest, line, prefix
from pipeline.local.site_judge import Interruption, Outcome, RobotsRead, judge_site, killed
from pipeline.local.topic_reader import ReadRecord

START_NS = 1_800_000_000 * 10**9
DELAY_S = 0.2
APEX, WWW, OTHER = "a.test:80", "www.a.test:80", "b.test:80"
EXPECTATION = Expectation(
    documents={f"http://{APEX}/1": "One", f"http://{APEX}/2": "Two", f"http://{WWW}/3": None},
    domains={"a.test": "a.test", "www.a.test": "a.test", "b.test": "b.test"},
    crawl_delay_s={"b.test": 1.0},
    rules={"a.test": (PathRule("/private/", allow=False), PathRule("/private/open/", allow=True))},
    disallowed=frozenset({f"http://{APEX}/1?print=1"}),
)


def ask(host, path, at_s, *, took_s=0.01, status=200, retry_after_s=None, late_s=0.0):
    """A logged request that began `at_s` after the start; Retry-After counts from its end."""
    end_s = at_s + took_s
    after_ns = None if retry_after_s is None else ns(end_s + retry_after_s)
    return LoggedRequest(host, path, status, ns(at_s), ns(end_s), after_ns, late_ns=round(late_s * 10**9))


def ns(at_s):
    """Wall clock of a time after the start, nanoseconds."""
    return START_NS + round(at_s * 10**9)


def outcome_of(request):
    """The committed outcome of a fetch that was this request."""
    return Outcome(request.url, request.start_ns // 10**6, request.end_ns // 10**6)


def robots_of(*hosts):
    """Requests for robots.txt, at intervals of a second, long before anything else."""
    return [ask(host, "/robots.txt", -100 + number) for number, host in enumerate(hosts)]


def why(findings):
    """What was found too close: path and reason."""
    return [(request.url.partition("test:80")[2], request.why) for request in findings.too_close]


def documents(*rows):
    """Published documents that took 0.1 s, 0.2 s and so on."""
    return [PublishedDocument(url, title, 1_000, 1_100 + 100 * n) for n, (url, title) in enumerate(rows)]


RIGHT = [(f"http://{APEX}/1", "One"), (f"http://{APEX}/2", "Two"), (f"http://{WWW}/3", "anything")]


def judged(rows, requests=()):
    """Report on documents and requests."""
    return judge(EXPECTATION, documents(*rows), judge_site(requests, EXPECTATION, DELAY_S), {})


def test_a_right_crawl_has_no_faults():
    """A checker that cries wolf is switched off."""
    requests = [
        *robots_of(APEX, WWW, OTHER),
        ask(APEX, "/1", 0.0),
        ask(WWW, "/3", 0.21),
        ask(OTHER, "/x", 0.21),  # another domain: at the same time
        ask(APEX, "/2", 0.43),
        ask(APEX, "/private/open/x", 0.65),
        ask(OTHER, "/y", 1.22),
    ]
    report = judged(RIGHT, requests)
    assert report.ok
    assert (3, 3, 9) == (report.expected, report.published, report.requests)
    assert (0.2, 0.3) == (report.latency_p50_s, report.latency_p99_s)


def test_a_missing_document_is_found():
    """Loss is the first thing that is promised not to happen."""
    report = judged(RIGHT[:2])
    assert (f"http://{WWW}/3",) == report.missing
    assert not report.ok


def test_a_doubled_document_is_found():
    """The second."""
    report = judged([*RIGHT, RIGHT[0]])
    assert {f"http://{APEX}/1": 2} == report.doubled
    assert 3 == report.published
    assert not report.ok


def test_a_document_that_should_not_be_there_is_found():
    """A forbidden page, the start of a redirect, a URL that isn't canonical."""
    report = judged([*RIGHT, (f"http://{APEX}/private/1", "x")])
    assert (f"http://{APEX}/private/1",) == report.unexpected
    assert not report.ok


def test_a_document_with_another_pages_content_is_found():
    """Right URLs with swapped bodies would pass a count; white space is the parser's own affair."""
    assert judged([(f"http://{APEX}/1", " One\n"), *RIGHT[1:]]).ok
    report = judged([(f"http://{APEX}/1", "Two"), *RIGHT[1:]])
    assert (f"http://{APEX}/1",) == report.mistitled
    assert not report.ok


def test_a_request_too_early_after_the_one_before_is_found():
    """The pause counts from the end of the request before, over all hosts of the domain."""
    requests = [*robots_of(APEX, WWW), ask(APEX, "/1", 0.0, took_s=0.5), ask(WWW, "/3", 0.6)]
    findings = judge_site(requests, EXPECTATION, DELAY_S)
    assert [("/3", "delay")] == why(findings)
    assert pytest.approx(0.1) == findings.too_close[0].early_s
    assert not judged(RIGHT, requests).ok


def test_a_request_beside_a_longer_one_is_found():
    """The request before is the one that ended last, not the one that began last."""
    requests = [*robots_of(APEX), ask(APEX, "/1", 0.0, took_s=2.0), ask(APEX, "/2", 1.0), ask(APEX, "/3", 1.5)]
    assert [("/2", "delay"), ("/3", "delay")] == why(judge_site(requests, EXPECTATION, DELAY_S))


def test_robots_requests_count_as_requests():
    """A site doesn't care what a request is for."""
    requests = [ask(APEX, "/robots.txt", 0.0), ask(APEX, "/1", 0.1), ask(WWW, "/robots.txt", 0.2)]
    assert [("/1", "delay"), ("/robots.txt", "delay")] == why(judge_site(requests, EXPECTATION, DELAY_S))


def test_a_request_against_the_crawl_delay_is_found():
    """The longer of the configured and the site's own pause holds."""
    requests = [ask(OTHER, "/robots.txt", 0.0), ask(OTHER, "/x", 0.5)]
    assert [("/x", "crawl-delay")] == why(judge_site(requests, EXPECTATION, DELAY_S))
    requests = [ask(OTHER, "/robots.txt", 0.0), ask(OTHER, "/x", 1.02)]
    assert [] == why(judge_site(requests, EXPECTATION, DELAY_S))


def test_a_successor_that_cannot_know_the_crawl_delay_may_ask_for_robots_again():
    """What a killed process read in robots.txt and had not committed is known to nobody."""
    requests = [ask(OTHER, "/robots.txt", 0.0), ask(OTHER, "/robots.txt", 0.3)]
    assert [] == why(judge_site(requests, EXPECTATION, DELAY_S))
    committed = [RobotsRead(f"http://{OTHER}", ns(0.01) // 10**6)]
    findings = judge_site(requests, EXPECTATION, DELAY_S, robots_reads=committed)
    assert [("/robots.txt", "crawl-delay")] == why(findings)


def test_a_request_before_retry_after_is_found_when_the_answer_was_committed():
    """Whoever committed the outcome can be held to it, and so can everybody after."""
    limited = ask(APEX, "/1", 0.0, status=429, retry_after_s=2.0)
    requests = [*robots_of(APEX, WWW), limited, ask(WWW, "/3", 1.0), ask(APEX, "/1", 2.02)]
    findings = judge_site(requests, EXPECTATION, DELAY_S, outcomes=[outcome_of(limited)])
    assert [("/3", "retry-after")] == why(findings)
    assert 0 == findings.excused


def test_a_request_within_the_backoff_after_a_refusal_is_found():
    """A site that names no time is left alone all the same, for as long as the crawler is bound to."""
    limited = ask(APEX, "/1", 0.0, status=429)
    requests = [*robots_of(APEX, WWW), limited, ask(WWW, "/3", 1.9), ask(APEX, "/1", 4.1)]
    findings = judge_site(requests, EXPECTATION, DELAY_S, backoff_s=2.0, outcomes=[outcome_of(limited)])
    assert [("/3", "backoff")] == why(findings)
    assert [] == why(judge_site(requests, EXPECTATION, DELAY_S, outcomes=[outcome_of(limited)]))


def test_a_request_before_retry_after_is_excused_when_the_answer_died_with_its_process():
    """Only that: the configured pause is still due, and a process must have been killed."""
    limited = ask(APEX, "/1", 0.0, status=429, retry_after_s=2.0)
    requests = [*robots_of(APEX, WWW), limited, ask(APEX, "/1", 1.0), ask(APEX, "/2", 1.1)]
    earlier = [outcome_of(ask(APEX, "/1", -50.0))]
    findings = judge_site(requests, EXPECTATION, DELAY_S, outcomes=earlier)
    assert [("/2", "delay")] == [(path, reason) for path, reason in why(findings)]
    assert 1 == findings.excused
    near, far = [killed(ns(0.2))], [killed(ns(-5.0)), killed(ns(60.0))]
    assert 1 == judge_site(requests, EXPECTATION, DELAY_S, outcomes=earlier, interruptions=near).excused
    findings = judge_site(requests, EXPECTATION, DELAY_S, outcomes=earlier, interruptions=far)
    assert [("/1", "retry-after"), ("/2", "retry-after")] == why(findings)


@pytest.mark.parametrize(
    ("interruption", "excused"),
    [
        (killed(ns(0.2), "headrace/0.1 (fetch-1)"), 1),
        (killed(ns(0.2), "headrace/0.1 (fetch-2)"), 0),  # another process was killed: this one is alive
        (Interruption(ns(-8.0), ns(-1.0)), 0),  # it was replaced before it could be told
        (Interruption(ns(-8.0), ns(5.0)), 1),  # stopped, told, continued and replaced
        (Interruption(ns(9.0), ns(15.0)), 1),  # told, then stopped before its commit
        (Interruption(ns(12.0), ns(15.0)), 0),  # it had time enough to commit
    ],
)
def test_only_the_process_that_was_told_and_interrupted_is_an_excuse(interruption, excused):
    """Where faults overlap all the time, any kill anywhere would excuse everything."""
    limited = ask(APEX, "/1", 0.0, status=429, retry_after_s=2.0)._replace(agent="headrace/0.1 (fetch-1)")
    requests = [*robots_of(APEX), limited, ask(APEX, "/1", 1.0)]
    findings = judge_site(requests, EXPECTATION, DELAY_S, interruptions=[interruption])
    assert (excused, 1 - excused) == (findings.excused, len(findings.too_close))


def test_the_closest_pair_is_told_with_what_was_allowed():
    """How much there is to spare shows a pace that is right by luck."""
    requests = [*robots_of(APEX, OTHER), ask(APEX, "/1", 0.0), ask(APEX, "/2", 0.26), ask(OTHER, "/x", 0.0)]
    requests += [ask(OTHER, "/y", 1.02)]
    closest = judge_site(requests, EXPECTATION, DELAY_S).closest
    assert (f"http://{OTHER}/y", f"http://{OTHER}/x", 1.0) == (closest.url, closest.after, closest.allowed_s)
    assert pytest.approx(0.01) == closest.spare_s
    assert judge_site([ask(APEX, "/1", 0.0)], EXPECTATION, DELAY_S).closest is None


LATE = [(0.0, 0), (0.7, 0), (1.2, 1)]
"""How late the site read the request before, and whether that excuses one which the log has about a second early."""


@pytest.mark.parametrize(("late_s", "excused"), LATE)
def test_a_pause_is_judged_by_how_late_the_site_read_the_request_before(late_s, excused):
    """A site that stood still gives requests of different times one stamp; one that was in time excuses nothing."""
    requests = [*robots_of(APEX, WWW), ask(APEX, "/1", 0.0, late_s=late_s), ask(WWW, "/3", 0.011)]
    findings = judge_site(requests, EXPECTATION, 0.9)
    assert (excused, 1 - excused, 0) == (findings.site_late, len(findings.too_close), findings.excused)
    assert [pytest.approx(0.899 - late_s)] * (1 - excused) == [found.early_s for found in findings.too_close]
    assert pytest.approx(min(late_s - 0.899, 0.09)) == findings.closest.spare_s


@pytest.mark.parametrize(("late_s", "excused"), LATE)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"host": OTHER, "path": "/robots.txt"}, {"host": OTHER, "path": "/x", "at_s": 0.02}),  # its Crawl-delay: 1 s
        ({"host": APEX, "path": "/1", "status": 429, "retry_after_s": 2.0}, {"host": WWW, "path": "/3", "at_s": 1.0}),
        ({"host": APEX, "path": "/1", "status": 429}, {"host": WWW, "path": "/3", "at_s": 1.0}),  # the backoff: 2 s
    ],
)
def test_a_sites_own_wishes_are_judged_by_it_too(before, after, late_s, excused):
    """Whoever is read late is answered late: what an answer asks for counts from a time the log can't know."""
    told = ask(**before, at_s=0.0, late_s=late_s)
    findings = judge_site([told, ask(**after)], EXPECTATION, 0.0, backoff_s=2.0, outcomes=[outcome_of(told)])
    assert (excused, 1 - excused, 0) == (findings.site_late, len(findings.too_close), findings.excused)


def test_the_lateness_of_a_request_is_no_excuse_for_itself():
    """One that came in earlier than it was read was even closer to the one before."""
    requests = [*robots_of(APEX), ask(APEX, "/1", 0.0), ask(APEX, "/2", 0.1, late_s=5.0)]
    findings = judge_site(requests, EXPECTATION, DELAY_S)
    assert ([("/2", "delay")], 0) == (why(findings), findings.site_late)


def test_a_late_request_does_not_hide_one_in_time_before_it():
    """The pause is still due from the last request whose end is sure."""
    requests = [*robots_of(APEX), ask(APEX, "/1", 0.0), ask(APEX, "/2", 0.3, late_s=5.0), ask(APEX, "/3", 0.35)]
    findings = judge_site(requests, EXPECTATION, 0.5)
    assert [f"http://{APEX}/1"] * 2 == [found.after for found in findings.too_close]
    assert 0 == findings.site_late


def test_a_killed_process_may_have_asked_before_the_site_read_it():
    """It was told nothing: the answer was written after its death."""
    limited = ask(APEX, "/1", 0.0, status=429, retry_after_s=60.0, late_s=3.0)
    requests = [*robots_of(APEX), limited, ask(APEX, "/1", 1.0)]
    for killed_at_s, excused in ((-2.0, 1), (-4.0, 0)):
        findings = judge_site(requests, EXPECTATION, DELAY_S, interruptions=[killed(ns(killed_at_s))])
        assert (excused, 1 - excused) == (findings.excused, len(findings.too_close))


def test_a_limit_that_is_told_binds_only_those_who_ask_afterwards():
    """A request that was under way when another one was refused could not know."""
    limited = ask(APEX, "/1", 0.0, took_s=0.3, status=503, retry_after_s=2.0)
    requests = [*robots_of(APEX), limited, ask(APEX, "/2", 0.1)]
    assert [("/2", "delay")] == why(judge_site(requests, EXPECTATION, DELAY_S, outcomes=[outcome_of(limited)]))


def test_without_a_delay_only_the_sites_wishes_count():
    """The benchmark asks as fast as it can, several requests at a time."""
    limited = ask(APEX, "/3", 1.0, status=429, retry_after_s=1.0)
    requests = [*robots_of(APEX), ask(APEX, "/1", 0.0, took_s=0.5), ask(APEX, "/2", 0.1), limited, ask(APEX, "/4", 1.5)]
    assert [("/4", "retry-after")] == why(judge_site(requests, EXPECTATION, 0.0, outcomes=[outcome_of(limited)]))


def test_a_disallowed_request_is_found():
    """By rule, with its exceptions, and by URL where a rule has wildcards."""
    asked = [ask(APEX, path, n) for n, path in enumerate(["/private/1", "/private/open/1", "/1?print=1", "/1"])]
    findings = judge_site([*robots_of(APEX), *asked], EXPECTATION, DELAY_S)
    assert (f"http://{APEX}/private/1", f"http://{APEX}/1?print=1") == findings.disallowed
    assert not judged(RIGHT, [*robots_of(APEX), *asked]).ok


def test_requests_are_judged_by_page_however_it_was_asked_for():
    """A link is asked for as it is written, with its tracking parameters; rules and outcomes are about the page."""
    asked = [
        ask(APEX, path, n) for n, path in enumerate(["/%70rivate/1", "/1?print=1&utm_source=x", "/1?utm_source=x"])
    ]
    limited = ask(APEX, "/2?utm_source=x", 4.0, status=429, retry_after_s=60)
    requests = [*robots_of(APEX), *asked, ask(APEX, "/1", 3.0), limited, ask(APEX, "/3", 5.0)]
    outcome = outcome_of(limited)._replace(url=f"http://{APEX}/2")
    findings = judge_site(requests, EXPECTATION, DELAY_S, outcomes=[outcome], interruptions=[killed(limited.end_ns)])
    assert (f"http://{APEX}/%70rivate/1", f"http://{APEX}/1?print=1&utm_source=x") == findings.disallowed
    assert (f"http://{APEX}/1",) == findings.asked_twice
    assert ([("/3", "retry-after")], 0) == (why(findings), findings.excused)


def test_a_page_asked_before_robots_of_its_host_was_answered_is_found():
    """Robots of another host of the domain doesn't help (RFC 9309 2.3), nor does an answer nobody received."""
    requests = [
        ask(APEX, "/robots.txt", 0.0),
        ask(APEX, "/1", 1.0),
        ask(WWW, "/robots.txt", 2.0, status=0),
        ask(WWW, "/3", 3.0),
        ask(WWW, "/robots.txt", 4.0, took_s=0.5),
        ask(WWW, "/4", 4.2),
        ask(WWW, "/5", 5.0),
    ]
    findings = judge_site(requests, EXPECTATION, 0.0)
    assert (f"http://{WWW}/3", f"http://{WWW}/4") == findings.before_robots
    assert not judged(RIGHT, requests).ok


def test_pages_asked_twice_are_told_and_no_fault():
    """HTTP is at least once: a kill may cost a request, never a document."""
    requests = [
        *robots_of(APEX),
        ask(APEX, "/1", 0.0),
        ask(APEX, "/1", 1.0),
        ask(APEX, "/2", 2.0, status=429),
        ask(APEX, "/2", 3.0),
    ]
    report = judged(RIGHT, requests)
    assert (f"http://{APEX}/1",) == report.asked_twice
    assert report.ok


def test_a_report_is_shown_to_people_and_to_programs():
    """The table names examples; the JSON is plain data."""
    requests = [*robots_of(APEX), ask(APEX, "/private/1", 0.0), ask(APEX, "/1", 0.1)]
    site = judge_site(requests, EXPECTATION, DELAY_S)
    report = judge(
        EXPECTATION, documents(*RIGHT[1:], RIGHT[1]), site, {"crawl.tasks.v1-dlq": {"retries_exhausted": 2}}, 1
    )
    shown = io.StringIO()
    Console(file=shown, width=200).print(report.table())
    for text in (
        "missing",
        "the site's process stood still",
        f"http://{APEX}/1",
        "(2 times)",
        "/private/1",
        "retries_exhausted",
        "0.110 s early",
    ):
        assert text in shown.getvalue()
    made = json.loads(json.dumps(report.as_json()))
    assert (False, 1, 1, 1, 1) == tuple(made[name] for name in ("ok", "missing", "doubled", "too_close", "disallowed"))
    assert 0 == made["site_late"]
    assert {"url": f"http://{APEX}/2", "times": 2} == made["examples"]["doubled"][0]
    assert {"crawl.tasks.v1-dlq": {"retries_exhausted": 2}} == made["dead_letters"]


def test_a_report_without_documents_has_no_latency():
    """Nothing published is the worst case, not a crash."""
    report = judged([])
    assert (None, None, 0) == (report.latency_p50_s, report.latency_p99_s, report.published)
    assert 3 == len(report.missing)


DOCUMENT = {
    "id": b"0" * 16, "crawl": "c", "url": f"http://{APEX}/1", "domain": "a.test", "source": "", "depth": 0,
    "title": "One", "text": "", "authors": [], "encoding": "utf-8", "content_hash": b"0" * 16,
    "links": 0, "redirects": [], "submitted_at_ms": 5_000, "fetched_at_ms": 5_100, "parsed_at_ms": 5_200,
}  # fmt: skip
FETCH = {
    "crawl": "c", "url": f"http://{APEX}/2", "url_key": b"0" * 16, "delivery": 1,
    "outcome": "RATE_LIMITED", "started_at_ms": ns(0) // 10**6, "ended_at_ms": ns(0.02) // 10**6, "worker": "0",
}  # fmt: skip
READ = {
    "origin": f"http://{OTHER}", "state": "RULES", "status": 200, "body": b"",
    "fetched_at_ms": ns(0.01) // 10**6, "expires_at_ms": 0,
}  # fmt: skip


def test_a_check_reads_what_the_topics_hold_and_survives_what_it_cannot_read(monkeypatch, tmp_path):
    """Fault tests put garbage on every topic; the count must go on, and say so."""
    codecs = load_codec()

    def encoded(topic, *records):
        return [codecs.encode(topic.subject, record) for record in records]

    held = {
        topics.DOCUMENTS.name: [*encoded(topics.DOCUMENTS, DOCUMENT, DOCUMENT | {"crawl": "another"}), b"garbage"],
        topics.FETCHES.name: encoded(topics.FETCHES, FETCH),
        topics.ROBOTS.name: [*encoded(topics.ROBOTS, READ), None],
        topics.PAGES.dlq: [b"garbage"],
    }
    headers = (("dlq-reason", b"undecodable"),)

    def read_all(bootstrap, topic, *, options, timeout_s):
        assert ("broker:1", {"security.protocol": "ssl"}, 60.0) == (bootstrap, options, timeout_s)
        marker = ReadRecord(topic, 0, 9, 5_700, None, None, (("dlq-marker", b"purged"),))
        rows = [ReadRecord(topic, 0, n, 5_700, None, value, headers) for n, value in enumerate(held.get(topic, []))]
        return [*rows, marker] if topic.endswith("-dlq") else rows

    monkeypatch.setattr(checker, "read_all", read_all)
    log = tmp_path / "log"
    requests = [
        *robots_of(APEX),
        ask(APEX, "/2", 0.0, status=429, retry_after_s=5.0),
        ask(APEX, "/2", 1.0),
        ask(OTHER, "/robots.txt", 0.0),
        ask(OTHER, "/robots.txt", 0.3),
    ]
    log.write_bytes(b"".join(line(prefix(r.host.encode(), r.path.encode()), (*r[2:6], 1, 0)) for r in requests))
    report = checker.check("broker:1", EXPECTATION, log, DELAY_S, crawl="c", options={"security.protocol": "ssl"})
    assert (1, {}, 0.7) == (report.published, report.doubled, report.latency_p50_s)
    assert {"retry-after", "crawl-delay"} == {request.why for request in report.too_close}
    assert {topics.PAGES.dlq: {"undecodable": 1}} == report.dead_letters
    assert 1 == report.undecodable
