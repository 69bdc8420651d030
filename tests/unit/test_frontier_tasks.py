from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.errors import InputError
from pipeline.frontier.records import OUT, SEEN, TABLES, WAITING
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key
from tests.frontier_world import CODECS, LANES, START, Bench, decode, make_crawl, make_stage, make_task

A = "http://a.test/"
START_MS = int(START * 1000)


@pytest.fixture
def bench():
    """A partition of its own."""
    return Bench(make_stage())


def nothing_changed(bench):
    """Whether the state is still empty."""
    return not any(bench.view.rows(table) for table in TABLES)


def test_a_task_is_given_out_with_all_that_fetch_must_know(bench):
    """What fetch must know travels in the lane record."""
    said = {"parser": "wire", "concurrency": 4, "max_depth": 2, "render": True, "headers_ref": "desk"}
    bench.task(
        "HTTP://A.test:80/x#part", priority=2, depth=1, source="desk", submitted_at_ms=7, timeout_ms=5_000,
        redirects=["http://b.test/"], **said,
    )  # fmt: skip
    (output,) = [output for output in bench.tick() if output.topic == topics.LANE_NORMAL.name]
    assert (b"a.test", 0) == (output.key, output.partition)
    assert {
        "crawl": "default", "url": "http://a.test/x", "url_key": url_key("http://a.test/x"), "delivery": 1,
        "attempt": 0, "priority": 2, "depth": 1, "source": "desk", "submitted_at_ms": 7, "emitted_at_ms": START_MS,
        "not_before_ms": START_MS, "delay_ms": 1_000, "timeout_ms": 5_000, "redirects": ["http://b.test/"],
        "etag": None, "last_modified": None, "interval_ms": 0, "poll": 0, "known_content_hashes": [], **said,
    } == decode(output)  # fmt: skip


@pytest.mark.parametrize(
    ("priority", "lane"),
    [
        (1, topics.LANE_URGENT), (2, topics.LANE_NORMAL), (3, topics.LANE_NORMAL), (4, topics.LANE_BULK),
        (5, topics.LANE_BULK),
    ],
)  # fmt: skip
def test_a_task_goes_to_the_lane_of_its_priority(bench, priority, lane):
    """Fetch keeps slots by lane: an urgent task in the wrong one waits behind a backlog."""
    bench.task(A, priority=priority)
    assert [lane.name] == [output.topic for output in bench.tick() if "frontier" in output.topic]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "not a url"}, "url"),
        ({"url": "ftp://a.test/"}, "url"),
        ({"url": "http://u:p@a.test/"}, "url"),
        ({"url": "http://a.test/" + "x" * 3_000}, "url"),
        ({"crawl": ""}, "crawl"),
        ({"crawl": "a\0b"}, "crawl"),
        ({"crawl": "x" * 256}, "crawl"),
        ({"priority": 0}, "priority"),
        ({"priority": 6}, "priority"),
        ({"depth": -1}, "depth"),
        ({"submitted_at_ms": -1}, "submitted_at_ms"),
        ({"not_before_ms": -1}, "not_before_ms"),
        ({"not_before_ms": 253_402_300_800_000}, "not_before_ms"),
        ({"submitted_at_ms": 253_402_300_800_000}, "submitted_at_ms"),
        ({"poll": 1 << 32}, "poll"),
        ({"timeout_ms": -1}, "timeout_ms"),
        ({"source": "x" * 256}, "source"),
        ({"redirects": [A] * 101}, "redirects"),
        ({"redirects": [A + "x" * 3_000]}, "redirects"),
    ],
)
def test_an_unusable_task_is_refused_with_its_field_and_changes_nothing(bench, fields, field):
    """The sender must learn what to mend; a refusal that leaves something behind could not be replayed."""
    with pytest.raises(InputError) as caught:
        bench.send(topics.TASKS, {**make_task(A), **fields})
    assert ("invalid_task", field) == (caught.value.reason, caught.value.field)
    assert nothing_changed(bench)
    assert bench.frontier.due() is None


@pytest.mark.parametrize("topic", topics.INPUTS["frontier"], ids=lambda topic: topic.name)
def test_undecodable_bytes_change_nothing_on_any_input(bench, topic):
    """One foreign record must cost itself only."""
    with pytest.raises(InputError) as caught:
        bench.send(topic, b"no record")
    assert "undecodable" == caught.value.reason
    assert nothing_changed(bench)


@pytest.mark.parametrize("topic", topics.INPUTS["frontier"], ids=lambda topic: topic.name)
def test_a_record_without_value_is_undecodable(bench, topic):
    """Nobody deletes by key on an input topic: who sends no value has made a mistake, and learns of it."""
    with pytest.raises(InputError) as caught:
        bench.send(topic, None)
    assert "undecodable" == caught.value.reason
    assert nothing_changed(bench)


def test_the_same_task_twice_is_one(bench):
    """Senders repeat themselves, in other spellings too; a page is asked for once."""
    bench.task(A)
    bench.task("http://A.test")
    (lane,) = bench.emitted()
    bench.task(A)
    bench.outcome(lane, "FETCHED")
    bench.task(A)
    assert [] == bench.emitted(after_s=100)
    progress = bench.progress()
    assert (4, 1, 1) == tuple(progress[name] for name in ("tasks_received", "seen", "done"))
    assert 3 == bench.stage.counters["tasks_known"]


def test_a_task_is_fetched_as_it_was_wished_and_known_by_its_canonical_url(bench):
    """A person's spelling may be the only one that brings the page."""
    bench.task(A + "%7ex?utm_source=1")
    bench.task(A + "~x")
    (lane,) = bench.emitted()
    assert (A + "%7ex?utm_source=1", url_key(A + "~x")) == (lane["url"], lane["url_key"])
    bench.outcome(lane, "FETCHED")
    bench.task(A + "~x?gclid=1", redirects=[A])
    bench.task(A + "~x?gclid=1", replay=True)
    assert [(A + "~x?gclid=1", 2)] == [(lane["url"], lane["delivery"]) for lane in bench.emitted(after_s=10)]


def test_the_same_url_in_two_crawls_is_two_tasks():
    """Crawls are apart: each has its own idea of what is new."""
    bench = Bench(make_stage({"other": make_crawl("other")}))
    bench.task(A)
    bench.task(A, crawl="other")
    assert {"default", "other"} == {lane["crawl"] for lane in bench.emitted()}


def test_a_task_waits_for_its_time(bench):
    """`not_before_ms` is the sender's wish."""
    bench.task(A, not_before_ms=START_MS + 5_000)
    assert [] == bench.urls(after_s=1)
    assert START + 5 == bench.frontier.due()
    assert [] == bench.urls(after_s=3.999)
    assert [A] == bench.urls(after_s=0.001)


def test_a_known_url_that_is_wished_with_more_haste_moves_up(bench):
    """A story found in a bulk crawl and then wished urgently must not wait in the bulk lane."""
    bench.task(A, priority=5, not_before_ms=START_MS + 60_000, depth=4)
    bench.task(A, priority=1, depth=0)
    (lane,) = bench.emitted()
    assert (1, 0, 1) == (lane["priority"], lane["depth"], lane["delivery"])
    assert not bench.view.rows(WAITING)


def test_haste_does_not_shorten_the_pause_after_a_failure(bench):
    """A sender that repeats its task must not become a way around the retry pauses."""
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    bench.task(A, priority=1)
    assert [] == bench.urls(after_s=0.999)
    assert [1] == [lane["priority"] for lane in bench.emitted(after_s=0.001)]


def test_a_task_for_a_url_that_is_out_changes_nothing_but_what_follows(bench):
    """The delivery that is out stays the only one; after a failure the more pressing wish holds."""
    bench.task(A, priority=5)
    (lane,) = bench.emitted()
    bench.task(A, priority=1)
    assert [] == bench.urls(after_s=50)
    bench.outcome(lane, "NETWORK_ERROR")
    assert [(1, 2)] == [(lane["priority"], lane["delivery"]) for lane in bench.emitted(after_s=1)]


def test_a_replay_passes_the_seen_check_and_starts_attempts_anew():
    """A dead letter that is replayed must be fetched although its URL is done; deliveries count on."""
    bench = Bench(make_stage(max_attempts=1))
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    assert (1, 1) == (bench.progress()["done"], bench.progress()["failed"])
    bench.task(A)
    assert [] == bench.urls(after_s=10)
    bench.task(A, replay=True)
    assert [(2, 0)] == [(lane["delivery"], lane["attempt"]) for lane in bench.emitted(after_s=10)]
    assert (0, 0, 1) == tuple(bench.progress()[name] for name in ("done", "failed", "seen"))


REPLAYED = (("dlq-replays", b"1"),)


@pytest.mark.parametrize("topic", [topics.TASKS, topics.TASKS_URGENT], ids=lambda topic: topic.name)
def test_a_record_that_comes_back_from_the_dead_letters_is_a_replay(topic):
    """The tool that replays leaves the value as its sender wrote it: the header has to do."""
    bench = Bench(make_stage(max_attempts=1))
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    bench.send(topic, make_task(A), headers=REPLAYED)
    assert [(2, 0)] == [(lane["delivery"], lane["attempt"]) for lane in bench.emitted(after_s=10)]
    assert (0, 0, 1) == tuple(bench.progress()[name] for name in ("done", "failed", "seen"))


def test_each_replay_passes_the_seen_check_once(bench):
    """A replay is one wish: what comes later without the header is known, and a second replay is a second wish."""
    bench.task(A)
    for _ in range(2):
        (lane,) = bench.emitted(after_s=10)
        bench.outcome(lane, "HTTP_ERROR", status=404)
        bench.task(A)
        assert [] == bench.emitted(after_s=10)
        bench.send(topics.TASKS, make_task(A), headers=REPLAYED)
        bench.send(topics.TASKS, make_task(A), headers=REPLAYED)  # waits already: no second copy
    assert 1 == len(bench.emitted(after_s=10))


@pytest.mark.parametrize("headers", [(("dlq-replays", b"0"),), (("dlq-replays", b"x"),), (("trace", b"1"),)])
def test_a_record_that_never_was_a_dead_letter_is_no_replay(bench, headers):
    """Headers are the sender's; a foreign or damaged one must not pass the seen check."""
    bench.task(A)
    bench.outcome(bench.emitted()[0], "FETCHED")
    bench.send(topics.TASKS, make_task(A), headers=headers)
    assert [] == bench.emitted(after_s=10)


def test_how_often_a_task_came_back_travels_with_it():
    """Dead letters of fetch and the task's own count on from there: what was replayed twice is refused."""
    definitions = {}
    bench = Bench(make_stage(definitions, max_attempts=1))
    bench.send(topics.TASKS, make_task(A, crawl="late"), headers=(("dlq-replays", b"2"),))
    bench.reopen()
    definitions["late"] = make_crawl("late")
    (output,) = (output for output in bench.tick(1) if output.topic in LANES)
    assert (("dlq-replays", b"2"),) == output.headers
    (dead,) = bench.outcome(decode(output), "NETWORK_ERROR")
    assert b"2" == dict(dead.headers)["dlq-replays"]


def test_a_lane_record_of_a_task_that_never_came_back_has_no_headers(bench):
    """They would cost bytes in every record."""
    bench.task(A)
    assert [()] == [output.headers for output in bench.tick() if output.topic in LANES]


def test_a_replay_of_a_url_that_waits_or_is_out_makes_no_second_copy(bench):
    """At most one delivery of a URL is out, whoever asks."""
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    bench.task(A, replay=True)
    (lane,) = bench.emitted(after_s=1)
    assert (2, 0) == (lane["delivery"], lane["attempt"])
    bench.task(A, replay=True)
    assert [] == bench.emitted(after_s=100)
    assert 1 == len(bench.view.rows(OUT))


def test_a_task_of_an_unknown_crawl_waits_for_the_definition():
    """Definition and tasks travel on different topics: their order is nobody's promise."""
    definitions = {}
    bench = Bench(make_stage(definitions))
    bench.task(A, crawl="late")
    assert [] == bench.emitted(after_s=5)
    progress = bench.progress("late")
    assert (1, 1, 1) == tuple(progress[name] for name in ("tasks_received", "waiting", "parked"))
    bench.reopen()
    definitions["late"] = make_crawl("late", delay_ms=7_000)
    bench.now += 1
    assert bench.now >= (bench.frontier.due() or 0)
    assert [(A, 7_000)] == [(lane["url"], lane["delay_ms"]) for lane in bench.emitted()]
    progress = bench.progress("late")
    assert (1, 0, 0, 1) == tuple(progress[name] for name in ("tasks_received", "waiting", "parked", "out"))


def test_the_default_crawl_is_always_known_and_may_be_defined():
    """Tasks that name no crawl must work on a fresh cluster."""
    definitions = {}
    bench = Bench(make_stage(definitions))
    bench.task(A)
    assert [1_000] == [lane["delay_ms"] for lane in bench.emitted()]
    definitions["default"] = make_crawl("default", delay_ms=9_000)
    bench.task("http://b.test/")
    assert [9_000] == [lane["delay_ms"] for lane in bench.emitted()]


def test_a_definition_that_vanishes_sets_its_tasks_aside_and_blocks_nobody():
    """Tasks of other crawls for the same domain must not wait behind a crawl that was deleted."""
    definitions = {"gone": make_crawl("gone")}
    bench = Bench(make_stage(definitions))
    bench.task(A + "1", crawl="gone")
    bench.task(A + "2")
    del definitions["gone"]
    assert [A + "2"] == bench.urls()
    assert 1 == bench.progress("gone")["parked"]
    definitions["gone"] = make_crawl("gone")
    assert [A + "1"] == bench.urls(after_s=10)


def domain_of_partition(partition, partitions):
    """A domain that a partition owns."""
    return next(
        name for number in range(100) if partition_for((name := f"d{number}.test").encode(), partitions) == partition
    )


@pytest.mark.parametrize("topic", [topics.TASKS, topics.TASKS_URGENT], ids=lambda topic: topic.name)
def test_a_task_of_another_partition_is_forwarded_untouched(topic):
    """A sender with another list of public suffixes gets the key wrong; only the owner may handle a domain."""
    bench = Bench(make_stage(partitions=4), partition=1)
    url = f"http://www.{domain_of_partition(3, 4)}/"
    value = CODECS.encode(topics.TASKS.subject, make_task(url))
    headers = (("dlq-replays", b"1"),)
    (output,) = bench.send(topic, value, headers=headers)
    assert (topic.name, value, registrable_domain(url.split("/")[2]).encode(), 3, headers) == output
    assert nothing_changed(bench)
    assert 1 == bench.stage.counters["tasks_forwarded"]


def test_a_redirect_claims_its_target_like_any_task(bench):
    """A page is published under one URL, whoever led to it: a known target is dropped, and counted as received."""
    bench.task(A)
    bench.emitted()
    bench.task(A, redirects=["http://b.test/"])
    bench.task("http://a.test/new", redirects=["http://b.test/other"], depth=3)
    assert [("http://a.test/new", 3)] == [(lane["url"], lane["depth"]) for lane in bench.emitted()]
    assert (2, 1) == (bench.progress()["redirects_received"], bench.progress()["tasks_received"])


def test_a_redirect_to_an_unusable_url_is_a_counted_refusal():
    """The site chose the target, no sender can mend it; uncounted it would keep the crawl from ending."""
    bench = Bench(make_stage(max_url_bytes=64))
    for _ in range(2):
        bench.task(A + "x" * 100, redirects=[A])
    assert [] == bench.urls()
    progress = bench.progress()
    assert (2, 0, {"too_long": 1}) == tuple(
        progress[name] for name in ("redirects_received", "tasks_received", "refused")
    )


def test_a_replayed_redirect_counts_as_a_task(bench):
    """No outcome announced it; as a redirect it would keep the crawl from ending."""
    bench.task(A, redirects=["http://b.test/"], replay=True)
    assert (1, 0) == (bench.progress()["tasks_received"], bench.progress()["redirects_received"])


def test_a_redirect_that_was_never_handled_still_counts_as_one_when_it_comes_back(bench):
    """Its outcome announced it: as a task it would keep the crawl from ending."""
    bench.send(topics.TASKS, make_task(A, redirects=["http://b.test/"]), headers=REPLAYED)
    assert (0, 1) == (bench.progress()["tasks_received"], bench.progress()["redirects_received"])
    assert [A] == bench.urls()


def test_a_person_passes_the_scope_and_a_redirect_does_not():
    """A start point is wished explicitly; where it leads is the site's choice, and may lie outside."""
    bench = Bench(make_stage({"c": make_crawl("c", scope=[{"action": "ALLOW", "pattern": "http://a.test/in/*"}])}))
    bench.task(A, crawl="c")
    bench.task("http://a.test/out", crawl="c", redirects=[A])
    bench.task("http://a.test/in/1", crawl="c", redirects=[A])
    assert [A, "http://a.test/in/1"] == bench.urls()
    assert {"scope": 1} == bench.progress("c")["refused"]


def test_a_wish_reopens_what_was_refused_to_a_link():
    """A refusal by scope holds for links; a person may still ask for that one page."""
    bench = Bench(make_stage({"c": make_crawl("c", scope=[{"action": "DENY", "pattern": "*"}])}))
    bench.links([A], crawl="c")
    assert ({"scope": 1}, 1) == (bench.progress("c")["refused"], bench.progress("c")["seen"])
    bench.task(A, crawl="c")
    assert [A] == bench.urls()
    assert ({}, 1) == (bench.progress("c")["refused"], bench.progress("c")["seen"])


def test_memory_that_is_thrown_away_changes_nothing(bench):
    """The object is opened anew after every abort: what is waiting, out and known must be the same."""
    for number in range(5):
        bench.task(f"{A}{number}")
    given = bench.emitted()
    assert 2 == len(given)
    bench.reopen()
    assert [] == bench.emitted(after_s=1)
    bench.outcome(given[0], "FETCHED")
    bench.reopen()
    assert [f"{A}2"] == bench.urls(after_s=1)
    assert 5 == len(bench.view.rows(SEEN))


def test_a_task_goes_while_its_domain_has_no_more_requests_than_it_wishes():
    """A sender who knows a site to be weak asks it one page at a time."""
    bench = Bench(make_stage(delay_s=0.0))
    for name in "abc":
        bench.task(f"http://weak.test/{name}", concurrency=1)
    (first,) = bench.emitted()
    assert [] == bench.emitted()
    bench.outcome(first, "FETCHED")
    assert 1 == len(bench.emitted())
