from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import ssl
import time
from itertools import pairwise

import pytest
import zstandard

from pipeline import topics
from pipeline.config import ToldLimit
from pipeline.delivery.api import ParallelStage
from pipeline.errors import InputError
from pipeline.fetch.slots import Deferred
from pipeline.fetch.stage import FetchStage
from pipeline.web.url import url_key
from tests.fakes import FakeRecord
from tests.fetch_world import CODECS, PAGE, PARTITION, fetch_world, settings
from tests.jumping_clock import JumpingClock
from tests.raw_site import SITE_PEM, RawSite, redirect, response, server_tls


@pytest.fixture
def configure():
    """Fetch settings of the test; changed before the world is asked for."""
    return {}


@pytest.fixture
async def world(configure):
    """A world whose partition has just been taken over."""
    async with fetch_world(**configure) as made:
        yield made


def test_the_stage_keeps_its_runner_s_protocol():
    """The runner knows nothing else of it."""
    stage: ParallelStage = FetchStage(settings(), CODECS, membership_is_fresh=lambda: True)
    assert stage


async def test_a_page_and_its_outcome_go_out_together(world):
    """What parse needs, and what the frontier needs, of one fetch."""
    world.site.answers["/a"] = response(
        gzip.compress(PAGE), "Content-Encoding: gzip", 'ETag: "v1"', "Last-Modified: Wed, 01 May 2024 12:00:00 GMT",
        "X-Robots-Tag: noindex", "X-Robots-Tag: nofollow", content_type="text/html; charset=utf-8",
    )  # fmt: skip
    before_ms = int(time.time() * 1000)
    handled = await world.handle()
    outcome, page = handled.outcome, handled.pages[0]
    url = world.site.url("/a", "site.test")
    for record in (outcome, page):
        assert ("c", url, url_key(url), 2) == tuple(record[name] for name in ("crawl", "url", "url_key", "delivery"))
    assert ("FETCHED", "", 200, "127.0.0.1", 1, '"v1"', "Wed, 01 May 2024 12:00:00 GMT", len(PAGE), "0") == tuple(
        outcome[name]
        for name in (
            "outcome", "reason", "status", "address", "requests", "etag", "last_modified", "bytes_decoded", "worker"
        )
    )  # fmt: skip
    assert 0 < outcome["bytes_wire"] < len(PAGE)
    assert before_ms <= outcome["started_at_ms"] <= outcome["ended_at_ms"] <= time.time() * 1000
    assert outcome["retry_after_ms"] is None
    assert ("ZSTD", PAGE) == (page["body_encoding"], zstandard.decompress(page["body"]))
    assert (len(PAGE), hashlib.sha256(PAGE).digest(), None) == (
        page["body_bytes"],
        page["body_sha256"],
        page["truncated"],
    )
    assert ("text/html; charset=utf-8", "noindex\nnofollow", 1, 3, "s", 111, []) == tuple(
        page[name]
        for name in ("content_type", "robots_header", "depth", "priority", "source", "submitted_at_ms", "redirects")
    )
    assert not handled.result.urgent


async def test_a_small_body_is_not_packed(world):
    """Packing it would cost more than it saves."""
    world.site.answers["/a"] = response(b"<p>short</p>")
    page = (await world.handle()).pages[0]
    assert ("IDENTITY", b"<p>short</p>") == (page["body_encoding"], page["body"])


async def test_a_backlog_record_goes_back_unasked(world):
    """The frontier may have heard a Retry-After that the record does not know of."""
    before_ms = int(time.time() * 1000)
    handled = await world.handle(backlog=True)
    assert ("DEFERRED", "backlog") == handled.kind
    assert before_ms <= handled.outcome["not_before_ms"] <= time.time() * 1000
    assert ([], 0) == (world.site.requests, handled.outcome["requests"])


async def test_robots_are_asked_first_and_once(world):
    """No request goes out before the verdict."""
    world.site.answers["/robots.txt"] = response(b"User-agent: headrace\nDisallow: /no\nUser-agent: *\nDisallow: /")
    assert [("FETCHED", ""), ("ROBOTS_DENIED", "disallowed:2")] == [
        (await world.handle("/a")).kind,
        (await world.handle("/no/b")).kind,
    ]
    assert ["/robots.txt", "/a"] == world.site.targets


async def test_what_robots_say_travels_with_the_record_that_asked(world):
    """State changes only in the transaction of a record."""
    first, second = await world.handle(), await world.handle()
    assert [1, 0] == [len(first.result.changes), len(second.result.changes)]
    assert "r" == first.result.changes[0].table


async def test_an_unreachable_robots_txt_says_when_to_come_again(world):
    """RFC 9309 2.3.1.4: nothing is asked for meanwhile."""
    world.site.answers["/robots.txt"] = response(b"", "Retry-After: 90", status="503 x")
    handled = await world.handle()
    assert ("ROBOTS_UNREACHABLE", "http_503") == handled.kind
    assert (503, 0, True) == (handled.outcome["status"], handled.outcome["requests"], handled.result.urgent)
    assert 88 < handled.outcome["not_before_ms"] / 1000 - time.time() <= 91
    assert 88 < handled.outcome["retry_after_ms"] / 1000 - time.time() <= 91
    assert ["/robots.txt"] == world.site.targets


@pytest.mark.parametrize("configure", [{"robots": False}])
async def test_robots_can_be_left_out(world):
    """A person's own test site may be crawled without."""
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nDisallow: /")
    assert ("FETCHED", "") == (await world.handle()).kind
    assert ["/a"] == world.site.targets


async def test_a_crawl_delay_is_kept_and_told(world):
    """The frontier plans by it, and the gate keeps it at once."""
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nCrawl-delay: 0.25\n")
    handled = await world.handle()
    assert 250 == handled.outcome["crawl_delay_ms"]
    first, second = world.site.requests
    assert second.at - first.at >= 0.25


@pytest.mark.parametrize("configure", [{"max_wait_s": 0.5}])
async def test_what_can_not_start_soon_goes_back_with_its_time(world):
    """The worker's places are for work that can run."""
    world.site.answers["/robots.txt"] = response(b"")
    await world.handle()
    handled = await world.handle(delay_ms=3000)
    assert ("DEFERRED", "gate") == handled.kind
    assert 2 < handled.outcome["not_before_ms"] / 1000 - time.time() <= 3.01
    later_ms = int(time.time() * 1000) + 60_000
    handled = await world.handle(not_before_ms=later_ms)
    assert abs(handled.outcome["not_before_ms"] - later_ms) <= 10
    assert 1 == world.site.targets.count("/a")


async def test_not_before_is_kept(world):
    """The frontier has its reasons."""
    await world.handle()
    at = time.time() + 0.3
    handled = await world.handle(not_before_ms=int(at * 1000))
    assert handled.outcome["started_at_ms"] >= int(at * 1000)


async def test_requests_to_a_domain_keep_their_distance(world):
    """Robots, pages and hops alike."""
    await asyncio.gather(*[world.handle(f"/a?{number}", delay_ms=100) for number in range(4)])
    times = [request.at for request in world.site.requests]
    assert 5 == len(times)
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(times))


@pytest.mark.parametrize("configure", [{"per_address": 1, "max_wait_s": 0.3, "robots": False}])
async def test_an_address_that_is_busy_is_not_asked_for_another_domain_either(world):
    """What would wait too long for its place goes back, spends nothing, and leaves its domain as it was."""
    began, answer = asyncio.Event(), asyncio.Event()

    async def slow(_, writer):
        began.set()
        await answer.wait()
        writer.write(response(PAGE))

    world.site.answers["/slow"] = slow
    first = asyncio.create_task(world.handle("/slow"))
    await began.wait()
    handled = await world.handle_url(world.site.url("/a", "other-site.test"))
    assert ("DEFERRED", "address_gate") == handled.kind
    assert 0 == handled.outcome["requests"]
    answer.set()
    assert ("FETCHED", "") == (await first).kind
    assert ("FETCHED", "") == (await world.handle(delay_ms=0)).kind
    assert ["/slow", "/a"] == world.site.targets


async def test_a_stale_member_asks_nobody(world):
    """It was stopped and continued; somebody else may own its partitions by now."""
    await world.handle()
    requests, asked = len(world.site.requests), world.freshness_asked
    world.fresh = False
    for host in ("site.test", "new.site.test"):
        assert ("DEFERRED", "stale_membership") == (await world.handle(host=host)).kind
    assert (requests, asked + 2) == (len(world.site.requests), world.freshness_asked)
    world.fresh = True
    assert ("FETCHED", "") == (await world.handle()).kind


async def test_a_takeover_delays_the_first_request_of_each_domain_alone():
    """The former owner may have asked a moment ago; once a full delay has passed, a new domain waits for nothing."""
    clock = JumpingClock()
    async with fetch_world(clock, robots=False) as world, asyncio.timeout(5):
        first = asyncio.create_task(world.handle(delay_ms=5000))
        await clock.advance(4.9)
        assert [] == world.site.requests
        await clock.advance(0.1)
        assert ("FETCHED", "") == (await first).kind
        record = world.record(world.site.url("/a", "newsite.test"), delay_ms=5000)._replace(key=b"newsite.test")
        await world.stage.handle(record, backlog=False)
        assert 2 == len(world.site.requests)


async def test_a_redirect_hands_the_whole_task_on(world):
    """The target's domain has its own frontier, robots and pace; the wish stays the same."""
    world.site.answers["/a"] = redirect("http://www.other.example/b#x")
    said = {
        "parser": "wire",
        "concurrency": 4,
        "max_depth": 2,
        "interval_ms": 60_000,
        "poll": 7,
        "render": True,
    }
    handled = await world.handle(redirects=["http://start.test/"], timeout_ms=2000, headers_ref="desk", **said)
    assert ("REDIRECTED", "") == handled.kind
    assert ("http://www.other.example/b", 302) == (handled.outcome["location"], handled.outcome["status"])
    topic, key, task = handled.tasks[0]
    assert (topics.TASKS.name, b"other.example") == (topic, key)
    assert {
        "crawl": "c",
        "url": "http://www.other.example/b",
        "priority": 3,
        "depth": 1,
        "source": "s",
        "submitted_at_ms": 111,
        "not_before_ms": 0,
        "timeout_ms": 2000,
        **said,
        "headers_ref": "",
        "redirects": ["http://start.test/", world.site.url("/a", "site.test")],
        "replay": False,
        "withdraw": False,
    } == task
    assert ["/robots.txt", "/a"] == world.site.targets


@pytest.mark.parametrize(
    ("location", "kept"),
    [("/b", "desk"), ("//site.test/b", ""), ("https://site.test/b", ""), ("//www.site.test/b", ""), ("//x.test/", "")],
)
async def test_headers_of_one_s_own_stay_with_their_origin(world, location, kept):
    """Scheme, host and port: whoever may know a password for one of them need not know it for the other."""
    world.site.answers["/a"] = redirect(location)
    handled = await world.handle(headers_ref="desk")
    assert kept == handled.tasks[0][2]["headers_ref"]


@pytest.mark.parametrize("configure", [{"resolve": {"*.test": "127.0.0.1"}}])
async def test_a_maze_over_many_domains_ends(world):
    """Each domain has a frontier of its own: only the chain that travels with the task knows how far it has come."""
    for number in range(30):
        world.site.answers[f"maze{number}.test/"] = redirect(f"http://maze{number + 1}.test:{world.site.port}/")
    handled, hops = await world.handle("/", host="maze0.test"), 0
    while handled.tasks:
        ((_, key, task),) = handled.tasks
        assert f"maze{hops + 1}.test".encode() == key
        handled = await world.handle_url(task["url"], redirects=task["redirects"])
        hops += 1
    assert (("HTTP_ERROR", "too_many_redirects"), 10) == (handled.kind, hops)


async def test_a_page_that_leads_on_by_itself_is_handed_on_like_a_redirect(world):
    """It is no page; its target is a task with the chain."""
    page = b'<meta http-equiv="refresh" content="0; url=/b">'
    world.site.answers |= {"/a": response(page, 'ETag: "v1"'), "/b": response(PAGE, "Refresh: 0; url=/c")}
    handled = await world.handle()
    assert (("REDIRECTED", "refresh"), 200, []) == (handled.kind, handled.outcome["status"], handled.pages)
    ((_, _, task),) = handled.tasks
    assert (world.site.url("/b", "site.test"), [world.site.url("/a", "site.test")]) == (task["url"], task["redirects"])
    assert ("REDIRECTED", "refresh") == (await world.handle_url(task["url"], redirects=task["redirects"])).kind


async def test_an_urgent_redirect_stays_urgent(world):
    """It must not stand behind a mass submission."""
    world.site.answers["/a"] = redirect("/b")
    handled = await world.handle(lane="urgent", priority=1)
    assert topics.TASKS_URGENT.name == handled.tasks[0][0]
    assert handled.result.urgent


@pytest.mark.parametrize("configure", [{"max_redirects": 3}])
async def test_loops_and_endless_chains_end(world):
    """They are told over the chain that travels with the task."""
    world.site.answers["/a"] = redirect("/b")
    loop = await world.handle(redirects=[world.site.url("/b", "site.test")])
    assert ("HTTP_ERROR", "redirect_loop") == loop.kind
    long = await world.handle(redirects=["http://x.test/1", "http://x.test/2", "http://x.test/3"])
    assert ("HTTP_ERROR", "too_many_redirects") == long.kind
    world.site.answers["/a"] = redirect("/a")
    assert ("HTTP_ERROR", "redirect_loop") == (await world.handle()).kind
    assert 3 == world.site.targets.count("/a")


async def test_a_cookie_gate_is_passed_within_one_fetch(world):
    """The same key cannot be handed on: it would be the same task."""

    async def gate(request, writer):
        if request.headers.get("cookie") == "pass=yes":
            writer.write(response(PAGE))
        else:
            writer.write(redirect("/a", "Set-Cookie: pass=yes; Path=/"))

    world.site.answers["/a"] = gate
    handled = await world.handle(delay_ms=100)
    assert (("FETCHED", ""), 2) == (handled.kind, handled.outcome["requests"])
    first, second = world.site.requests[-2:]
    assert second.at - first.at >= 0.1
    assert "cookie" not in (await world.handle()).outcome
    assert "cookie" not in world.site.requests[3].headers


@pytest.mark.parametrize(("asked", "spelling"), [("/a", "/a?utm_source=rss"), ("/~u", "/%7Eu"), ("/a?gclid=1", "/a")])
async def test_a_redirect_to_another_spelling_of_the_page_is_followed_within_the_fetch(world, asked, spelling):
    """The same key cannot be handed on: without this the page would end as a loop, though its site has it."""
    world.site.answers |= {asked: redirect(spelling), spelling: response(PAGE)}
    handled = await world.handle(asked, delay_ms=100)
    assert (("FETCHED", ""), 2) == (handled.kind, handled.outcome["requests"])
    assert ["/robots.txt", asked, spelling] == world.site.targets
    first, second = world.site.requests[-2:]
    assert second.at - first.at >= 0.1
    assert world.site.url(asked, "site.test") == handled.pages[0]["url"]


async def test_spellings_that_lead_to_each_other_are_a_loop(world):
    """Each is asked for once: the answers would be the same again."""
    world.site.answers |= {"/a": redirect("/a?utm_source=rss"), "/a?utm_source=rss": redirect("/a")}
    handled = await world.handle()
    assert (("HTTP_ERROR", "redirect_loop"), 2) == (handled.kind, handled.outcome["requests"])
    world.site.answers["/b"] = redirect("/a?utm_source=again")
    handled = await world.handle("/b", redirects=[world.site.url("/a?utm_source=rss", "site.test")])
    assert ("HTTP_ERROR", "redirect_loop") == handled.kind


@pytest.mark.parametrize("configure", [{"max_redirects": 3}])
async def test_spellings_without_end_end(world):
    """A site may add another parameter at each turn."""
    count = iter(range(100))

    async def turn(_, writer):
        writer.write(redirect(f"/a?utm_term={next(count)}"))

    world.site.answers |= {"/a": turn, **{f"/a?utm_term={number}": turn for number in range(100)}}
    handled = await world.handle()
    assert (("HTTP_ERROR", "redirect_loop"), 4) == (handled.kind, handled.outcome["requests"])


async def test_a_url_is_asked_for_as_it_was_found(world):
    """That a parameter does not choose the page is a guess; so is that the site's robots.txt minds it."""
    world.site.answers |= {
        "/robots.txt": response(b"User-agent: *\nDisallow: /*?utm_source=x", content_type="text/plain"),
        "/%7ea?utm_source=y": redirect("/%7eb?fbclid=1"),
    }
    handled = await world.handle("/%7ea?utm_source=y")
    assert ["/robots.txt", "/%7ea?utm_source=y"] == world.site.targets
    (task,) = (record for _, _, record in handled.tasks)
    found, target = (world.site.url(path, "site.test") for path in ("/%7ea?utm_source=y", "/%7eb?fbclid=1"))
    assert (target, [found], target) == (task["url"], task["redirects"], handled.outcome["location"])


async def test_robots_that_forbid_a_spelling_leave_the_page(world):
    """A rule against tracking links means the links: the page is asked for without them, where that is allowed."""
    rules = b"User-agent: *\nDisallow: /*?utm_source\nDisallow: /b"
    world.site.answers["/robots.txt"] = response(rules, content_type="text/plain")
    assert ("FETCHED", "") == (await world.handle("/a?utm_source=x")).kind
    assert ["/robots.txt", "/a"] == world.site.targets
    assert ("ROBOTS_DENIED", "disallowed:3") == (await world.handle("/b?gclid=x")).kind
    world.site.answers["/a"] = redirect("/a?utm_source=rss")
    handled = await world.handle()
    assert (("ROBOTS_DENIED", "disallowed:2"), 1) == (handled.kind, handled.outcome["requests"])
    assert ["/robots.txt", "/a", "/a"] == world.site.targets


@pytest.mark.parametrize("configure", [{"max_redirects": 3}])
async def test_a_gate_that_never_opens_ends(world):
    """A cookie that changes each time looks like progress for ever."""
    count = iter(range(100))

    async def gate(_, writer):
        writer.write(redirect("/a", f"Set-Cookie: n={next(count)}"))

    world.site.answers["/a"] = gate
    handled = await world.handle()
    assert (("HTTP_ERROR", "cookie_gate"), 4) == (handled.kind, handled.outcome["requests"])


async def test_a_downgrade_is_counted(world, tmp_path):
    """A hop from https to http is a task as any other, but anybody on its way may have changed what it brings."""
    trusting = ssl.create_default_context(cadata=SITE_PEM[SITE_PEM.index("-----BEGIN CERT") :])
    site = RawSite({"/a": redirect("http://site.test/a"), "/b": redirect("/c")})
    site.tls = server_tls(tmp_path)
    async with site, fetch_world(tls=trusting, robots=False) as secure:
        assert ("REDIRECTED", "") == (await secure.handle_url(site.url("/a", "site.test"))).kind
        assert ("REDIRECTED", "") == (await secure.handle_url(site.url("/b", "site.test"))).kind
        assert 1 == secure.stage.counters["https_downgrades"]
    await world.handle("/a")
    assert 0 == world.stage.counters["https_downgrades"]


async def test_a_gate_behind_a_long_delay_is_not_asked_for_ever(world, monkeypatch):
    """Deferred, it would start anew each time, without its cookie."""
    world.site.answers["/a"] = redirect("/a", "Set-Cookie: pass=yes")
    acquire = world.stage._gate.acquire

    async def acquire_until_the_gate(*place, **given):
        if "/a" in world.site.targets:
            return Deferred(world.stage._gate.now() + 20)
        return await acquire(*place, **given)

    monkeypatch.setattr(world.stage._gate, "acquire", acquire_until_the_gate)
    assert ("NETWORK_ERROR", "hop_deferred") == (await world.handle()).kind


async def test_a_site_that_asks_for_rest_gets_it_at_once(world):
    """Other tasks of the domain are in the lane already, and know nothing of it."""
    world.site.answers["/limited"] = response(b"", "Retry-After: 120", status="429 Too Many")
    handled = await world.handle("/limited")
    assert ("RATE_LIMITED", "http_429") == handled.kind
    assert handled.result.urgent
    assert 118 < handled.outcome["retry_after_ms"] / 1000 - time.time() <= 121
    after = await world.handle()
    assert ("DEFERRED", "gate") == after.kind
    assert 118 < after.outcome["not_before_ms"] / 1000 - time.time() <= 121
    assert "/a" not in world.site.targets


async def test_what_a_site_asked_for_is_known_to_the_next_owner_of_its_partition(world):
    """The frontier may have sent a task before it heard of the wish; the outcome that brought it is committed."""
    world.site.answers["/limited"] = response(b"", "Retry-After: 120", status="429 Too Many")
    for change in (await world.handle("/limited")).result.changes:
        world.view.put(change.table, change.key, change.value)
    async with fetch_world() as successor:
        successor.stage.closed(PARTITION)
        successor.stage.opened(PARTITION, world.view)
        after = await successor.handle()
        assert ("DEFERRED", "robots_gate") == after.kind
        assert 118 < after.outcome["not_before_ms"] / 1000 - time.time() <= 121
        assert [] == successor.site.targets


async def test_a_wish_that_has_passed_is_forgotten(world):
    """The table holds who wants rest now, not who ever did."""
    world.site.answers["/limited"] = response(b"", "Retry-After: 0", status="429 Too Many")
    (kept,) = [c for c in (await world.handle("/limited")).result.changes if c.table == "h"]
    assert b"site.test" == kept.key
    (gone,) = [c for c in (await world.handle()).result.changes if c.table == "h"]
    assert (b"site.test", None) == (gone.key, gone.value)
    assert [] == [c for c in (await world.handle()).result.changes if c.table == "h"]


async def test_a_429_without_a_time_rests_too(world):
    """The frontier backs off by a minute; what is in the lane must not undo that."""
    world.site.answers["/limited"] = response(b"", status="429 Too Many")
    handled = await world.handle("/limited")
    assert (None, True) == (handled.outcome["retry_after_ms"], handled.result.urgent)
    assert ("DEFERRED", "gate") == (await world.handle()).kind


async def test_nobody_slips_through_between_a_refusal_and_the_rest_after_it(world):
    """Without a delay whoever waits for the slot is let in the moment it is given back."""
    for number in range(20):
        world.site.answers[f"/limited?{number}"] = response(b"", status="503 x")
    await world.handle("/a")
    handled = await asyncio.gather(*[world.handle(f"/limited?{number}") for number in range(20)])
    kinds = [each.kind for each in handled]
    refused = kinds.count(("HTTP_ERROR", "http_503"))
    assert 1 <= refused <= 8
    assert 20 - refused == kinds.count(("DEFERRED", "gate"))


async def test_a_window_that_is_used_up_is_waited_for(world):
    """The page is a page; the next would be refused."""
    world.site.answers["/a"] = response(PAGE, 'RateLimit: "default";r=0;t=120')
    handled = await world.handle()
    assert (("FETCHED", ""), True) == (handled.kind, handled.result.urgent)
    assert (0, None) == (handled.outcome["rate_limit_remaining"], handled.outcome["retry_after_ms"])
    assert 118 < handled.outcome["rate_limit_reset_ms"] / 1000 - time.time() <= 121
    assert ["h"] == [change.table for change in handled.result.changes if change.key == b"site.test"]
    assert ("DEFERRED", "gate") == (await world.handle()).kind


async def test_what_a_window_still_allows_is_told_and_shared_out(world):
    """The frontier plans by it; what is in the lane already keeps the pace at once."""
    await world.handle("/robots")
    world.site.answers["/a"] = response(PAGE, "X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 1")
    began = time.time()
    handled = await world.handle()
    assert 4 == handled.outcome["rate_limit_remaining"]
    assert 0.9 < handled.outcome["rate_limit_reset_ms"] / 1000 - began <= 2
    await world.handle("/b")
    first, second = world.site.requests[-2:]
    assert second.at - first.at >= 0.25


async def test_a_limit_that_can_not_be_believed_is_counted(world):
    """An operator can see which sites say nonsense."""
    world.site.answers["/a"] = response(PAGE, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999999999999")
    handled = await world.handle()
    assert (None, None) == (handled.outcome["rate_limit_reset_ms"], handled.outcome["rate_limit_remaining"])
    assert 1 == world.stage.counters["rate_limits_ignored"]


async def test_what_came_with_robots_txt_is_heeded_and_told(world):
    """It is a request as any other: a window may end with it."""
    world.site.answers["/robots.txt"] = response(b"", 'RateLimit: "default";r=0;t=120')
    handled = await world.handle()
    assert ("DEFERRED", "gate") == handled.kind
    for name in ("retry_after_ms", "not_before_ms"):
        assert 118 < handled.outcome[name] / 1000 - time.time() <= 121
    assert "h" in [change.table for change in handled.result.changes]
    assert ["/robots.txt"] == world.site.targets


async def test_a_retry_after_is_heard_on_any_answer(world):
    """RFC 9110 10.2.3: also on 503 and on redirects; and a page with one is a page all the same."""
    world.site.answers["/a"] = response(PAGE, "Retry-After: 0")
    handled = await world.handle()
    assert ("FETCHED", True) == (handled.outcome["outcome"], handled.result.urgent)
    world.site.answers["/a"] = response(b"", "Retry-After: 30", status="503 x")
    handled = await world.handle()
    assert (("HTTP_ERROR", "http_503"), True) == (handled.kind, handled.result.urgent)
    assert handled.outcome["retry_after_ms"] is not None


TOLD = {
    "told_limits": {
        "humans": ToldLimit(statuses=[200, 403], contains=["are you human"], within_bytes=1000),
        "wire": ToldLimit(statuses=[302], headers={"location": "/captcha"}, sources="wire"),
    }
}


@pytest.mark.parametrize("configure", [TOLD])
@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
async def test_a_limit_that_is_told_in_a_page_is_one(world, status):
    """It is no page, costs no attempt, and the site has rest: what is in the lane already goes back."""
    world.site.answers["/a"] = response(b"<title>Are you human?</title>", 'ETag: "v1"', status=status)
    handled = await world.handle()
    assert (("RATE_LIMITED", "told:humans"), int(status[:3])) == (handled.kind, handled.outcome["status"])
    assert ([], True, 1) == (handled.pages, handled.result.urgent, world.stage.counters["told_limit:humans"])
    assert "h" in [change.table for change in handled.result.changes]
    assert ("DEFERRED", "gate") == (await world.handle("/b")).kind


@pytest.mark.parametrize("configure", [TOLD])
async def test_rules_hold_for_their_sources_and_statuses(world):
    """Of an error page no more is read than they look at, and a page that meets none is as it was."""
    world.site.answers |= {
        "/gate": redirect("/captcha"),
        "/a": response(b"<p>Are you human? " + PAGE, status="404 Not Found"),
        "/b": response(PAGE * 20, status="403 Forbidden"),
    }
    assert ("REDIRECTED", "") == (await world.handle("/gate", source="feed")).kind
    assert (("HTTP_ERROR", "http_404"), 0) == (
        (handled := await world.handle("/a")).kind,
        handled.outcome["bytes_wire"],
    )
    handled = await world.handle("/b")
    assert (("HTTP_ERROR", "http_403"), 1000) == (handled.kind, handled.outcome["bytes_decoded"])
    assert ("RATE_LIMITED", "told:wire") == (await world.handle("/gate", source="wire")).kind


@pytest.mark.parametrize("configure", [TOLD])
async def test_a_site_that_names_a_time_in_its_refusal_gets_it(world):
    """As with a 429."""
    world.site.answers["/a"] = response(b"<p>Are you human?", "Retry-After: 120")
    handled = await world.handle()
    assert ("RATE_LIMITED", "told:humans") == handled.kind
    assert 118 < handled.outcome["retry_after_ms"] / 1000 - time.time() <= 121


async def test_validators_are_sent_and_304_is_an_ending(world):
    """The stored copy stands; nothing is downloaded, nothing published."""
    world.site.answers["/a"] = b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\n\r\n'
    handled = await world.handle(etag='"v1"', last_modified="Wed, 01 May 2024 12:00:00 GMT")
    assert (("NOT_MODIFIED", ""), 304, '"v1"') == (handled.kind, handled.outcome["status"], handled.outcome["etag"])
    headers = world.site.requests[-1].headers
    assert ('"v1"', "Wed, 01 May 2024 12:00:00 GMT") == (headers["if-none-match"], headers["if-modified-since"])


async def test_a_validator_that_is_no_header_is_not_sent(world):
    """A site's own nonsense must not break the next request to it."""
    world.site.answers["/a"] = response(PAGE)
    assert ("FETCHED", "") == (await world.handle(etag='"é\r\nX: 1"')).kind
    assert "if-none-match" not in world.site.requests[-1].headers


async def test_a_page_that_is_not_whole_is_tried_once_more(world):
    """Then it goes out with its mark."""
    world.site.answers["/a"] = response(PAGE, "Connection: close", length=len(PAGE) + 10)

    async def cut(_, writer):
        writer.write(response(PAGE, 'ETag: "v1"', length=len(PAGE) + 10))
        writer.close()

    world.site.answers["/a"] = cut
    assert ("NETWORK_ERROR", "truncated:content_length") == (await world.handle(attempt=0)).kind
    handled = await world.handle(attempt=1)
    assert ("FETCHED", "content_length") == (handled.outcome["outcome"], handled.pages[0]["truncated"])
    assert handled.outcome["etag"] is None  # else a poll would be told that it had the whole page


@pytest.mark.parametrize("configure", [{"max_inline_bytes": 20_000, "max_decoded_bytes": 100_000}])
async def test_what_is_too_large_ends_as_that(world):
    """A record that its topic does not take would abort the transaction."""
    world.site.answers["/a"] = response(os.urandom(30_000))
    handled = await world.handle()
    assert (("TOO_LARGE", "inline_bytes"), 200) == (handled.kind, handled.outcome["status"])
    world.site.answers["/a"] = response(gzip.compress(bytes(200_000)), "Content-Encoding: gzip")
    assert ("TOO_LARGE", "decoded_bytes") == (await world.handle()).kind
    world.site.answers["/a"] = response(gzip.compress(bytes(90_000)), "Content-Encoding: gzip")
    assert ("FETCHED", "") == (await world.handle()).kind


async def test_headers_can_not_fill_a_record(world):
    """A site sends megabytes of them as easily as a body."""
    long = "a" * 30_000
    robots = [f"X-Robots-Tag: bot{number}: {long[:3000]}" for number in range(100)]
    world.site.answers["/a"] = response(PAGE, f"ETag: {long}", *robots, content_type=f"text/html; charset={long}")
    handled = await world.handle()
    assert ("FETCHED", "") == handled.kind
    assert handled.outcome["etag"] is None
    assert handled.pages[0]["robots_header"].startswith("bot0: a")
    assert sum(len(output.value) for output in handled.result.outputs) < 30_000
    world.site.answers["/a"] = response(PAGE, *[f"X-{number}: {long}" for number in range(30)])
    assert ("TOO_LARGE", "head_bytes") == (await world.handle()).kind


async def test_a_task_has_its_own_time(world):
    """The sender's timeout is for the whole fetch, and shorter than the configured one here."""

    async def slow(_, writer):
        writer.write(response(b"", length=100))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    world.site.answers["/a"] = slow
    began = time.monotonic()
    handled = await world.handle(timeout_ms=200)
    assert (("NETWORK_ERROR", "total_timeout"), 200) == (handled.kind, handled.outcome["status"])
    assert time.monotonic() - began < 2


async def test_failures_are_outcomes(world):
    """Nothing a site does makes a dead letter."""

    async def drop(_, writer):
        writer.transport.abort()

    world.site.answers["/drop"] = drop
    world.site.answers["/pdf"] = response(b"%PDF", content_type="application/pdf")
    assert [("NETWORK_ERROR", "reset"), ("REFUSED", "content_type"), ("HTTP_ERROR", "http_404")] == [
        (await world.handle(target)).kind for target in ("/drop", "/pdf", "/missing")
    ]


@pytest.mark.parametrize("configure", [{"resolve": {"*site.test": "127.0.0.2"}, "robots": False}])
async def test_a_refused_address_is_an_outcome_without_a_request(world):
    """It is final, and counted by itself."""
    handled = await world.handle()
    assert (("REFUSED", "blocked_address"), 0) == (handled.kind, handled.outcome["requests"])
    assert 0 == world.site.connections


async def test_the_urgent_lane_is_committed_at_once(world):
    """Seconds count there."""
    assert (await world.handle(lane="urgent")).result.urgent
    assert not (await world.handle(lane="bulk")).result.urgent


async def test_a_record_that_can_not_be_read_is_the_sender_s_fault(world):
    """The runner makes a dead letter of it."""
    record = FakeRecord(topics.LANE_NORMAL.name, b"rubbish", b"site.test", PARTITION)
    with pytest.raises(InputError):
        await world.stage.handle(record, backlog=False)
    assert [] == await world.stage.dead_letter_outputs(record, "undecodable")
    with pytest.raises(InputError, match="url"):
        await world.handle_url("nonsense")


async def test_a_dead_letter_ends_its_task(world):
    """Else it would stay out for ever, and its domain wait for it."""
    (output,) = await world.stage.dead_letter_outputs(world.record("http://site.test/"), "handler_error")
    outcome = CODECS.decode(topics.FETCHES.subject, output.value)
    assert (topics.FETCHES.name, b"site.test", PARTITION) == (output.topic, output.key, output.partition)
    assert ("DEAD_LETTER", "handler_error", 2) == (outcome["outcome"], outcome["reason"], outcome["delivery"])


async def test_a_cancelled_record_frees_its_domain(world):
    """A partition is taken away in the middle of a request; others of the domain go on if it comes back."""
    begun = asyncio.Event()

    async def silent(_, writer):
        del writer
        begun.set()
        await asyncio.sleep(30)

    world.site.answers["/silent"] = silent
    task = asyncio.create_task(world.handle("/silent", delay_ms=1))
    async with asyncio.timeout(5):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ("FETCHED", "") == (await world.handle(delay_ms=1)).kind
    world.stage.closed(PARTITION)
    world.stage.opened(PARTITION, world.view)
    assert ("FETCHED", "") == (await world.handle()).kind
