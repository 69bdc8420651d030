"""Sites with limits: what they announce is what they do, so that a crawler can be judged by it."""

from __future__ import annotations

import http.client
import time

import pytest

from pipeline.fetch.rate_limit import announced
from pipeline.fetch.retry_after import retry_after_s
from pipeline.local.request_log import read_log
from pipeline.local.simulated_limits import LIMITS, SECOND_NS, Quota
from pipeline.local.simulated_site import Limit
from pipeline.local.simulated_web import ServedWeb, SimulatedWeb

NOW_NS = 1_700_000_000_250_000_000
NOW = NOW_NS / SECOND_NS


def values(fields):
    """Look up header lines as a client does."""
    pairs = [text.partition(": ")[::2] for text in fields]
    return lambda name: [value.encode() for key, value in pairs if key.lower().encode() == name]


@pytest.mark.parametrize("style", ["structured", "ratelimit", "x-delta", "x-epoch", "x-epoch-ms"])
def test_what_is_announced_is_what_holds(style):
    """Rounded up, a reset is never before the site counts anew; a client that keeps to it is never refused."""
    quota = Quota(Limit(3, 2.5, style, 429, "seconds"))
    for remaining in (2, 1, 0):
        told = quota.ask(NOW_NS, may_refuse=True)
        limit = announced(values(told.fields), NOW).limit
        assert limit is not None
        assert remaining == limit.remaining
        assert 2.5 <= limit.reset_s <= 3.5
    assert told.not_before_ns is not None
    assert abs(told.not_before_ns / SECOND_NS - NOW - limit.reset_s) < 0.001
    assert quota.ask(NOW_NS, may_refuse=True).is_refused
    assert not quota.ask(NOW_NS, may_refuse=False).is_refused
    assert not quota.ask(told.not_before_ns, may_refuse=True).is_refused


@pytest.mark.parametrize("refusal", ["seconds", "date"])
def test_a_refusal_says_when_to_come_again(refusal):
    """In both forms, and to the second."""
    quota = Quota(Limit(0, 2.5, "silent", 429, refusal))
    told = quota.ask(NOW_NS, may_refuse=True)
    wish_s = retry_after_s([value.decode() for value in values(told.fields)(b"retry-after")], NOW)
    assert wish_s is not None
    assert told.not_before_ns is not None
    assert 2.5 <= wish_s <= 3.5
    assert abs(told.not_before_ns / SECOND_NS - NOW - wish_s) < 0.001


def test_a_silent_refusal_says_nothing():
    """Backoff is for these."""
    told = Quota(LIMITS[-1]).ask(NOW_NS, may_refuse=True)
    assert (True, (), None) == told


def test_a_web_has_every_kind_of_site():
    """Ten sites are enough to see all of it."""
    web = SimulatedWeb(1, len(LIMITS), 5, 80, plan="limits")
    assert LIMITS == tuple(site.limit for site in web.sites)
    assert 5 * len(LIMITS) == len(web.expected_documents(1))


def test_the_server_counts_and_logs_what_it_asked_for(tmp_path):
    """The log is what crawlers are judged by: with the earliest next request of every answer that named one."""
    with ServedWeb(1, 2, 5, tmp_path / "log", plan="limits") as served:
        limited = served.web.sites[1]
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        statuses, remaining = [], []
        for page in limited.articles:
            connection.request("GET", page.target, headers={"Host": f"{page.host}:{served.port}"})
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
            remaining.append(answer.getheader("RateLimit"))
        connection.close()
    assert [200, 200, 200, 200, 429] == statuses
    assert ['"default";r=3;t=3', None] == [remaining[0], remaining[-1]]
    logged = read_log(tmp_path / "log")
    assert [False, False, False, True, True] == [row.retry_after_ns is not None for row in logged]
    assert logged[-1].retry_after_ns / SECOND_NS > time.time() - 10
