from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.errors import InputError
from pipeline.frontier.records import OUT, SEEN, UrlState, unpack_seen
from tests.frontier_world import CODECS, START, Bench, make_outcome, make_stage, make_task

A = "http://a.test/"
START_MS = int(START * 1000)


@pytest.fixture
def bench():
    """A partition of its own."""
    return Bench(make_stage())


def given(bench, url=A, **fields):
    """Hand in a task. Return its lane record."""
    bench.task(url, **fields)
    (lane,) = bench.emitted()
    return lane


def seen(bench):
    """The only row of the seen table."""
    (packed,) = bench.view.rows(SEEN).values()
    return unpack_seen(packed)


@pytest.mark.parametrize(
    ("outcome", "status", "failed"),
    [
        ("FETCHED", 200, 0),
        ("NOT_MODIFIED", 304, 0),
        ("REDIRECTED", 301, 0),
        ("HTTP_ERROR", 404, 1),
        ("HTTP_ERROR", 410, 1),
        ("HTTP_ERROR", None, 1),
        ("ROBOTS_DENIED", None, 1),
        ("TOO_LARGE", 200, 1),
        ("REFUSED", None, 1),
        ("DEAD_LETTER", None, 1),
        ("UNKNOWN", None, 1),
    ],
)
def test_an_outcome_that_ends_a_task_frees_its_slot(bench, outcome, status, failed):
    """Every lane record ends in an outcome; nothing stays out, and a URL that is done is never asked for again."""
    lane = given(bench)
    assert [] == bench.outcome(lane, outcome, status=status, reason="why")
    progress = bench.progress()
    assert (0, 0, 1, failed) == tuple(progress[name] for name in ("waiting", "out", "done", "failed"))
    row = seen(bench)
    assert (UrlState.DONE, outcome, status or 0, "why") == (row.state, row.outcome, row.status, row.reason)
    bench.links([A])
    assert [] == bench.emitted(after_s=1_000)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("NETWORK_ERROR", None),
        ("ROBOTS_UNREACHABLE", None),
        ("HTTP_ERROR", 500),
        ("HTTP_ERROR", 408),
        ("HTTP_ERROR", 425),
    ],
)
def test_noise_is_retried_after_one_and_three_seconds_and_then_a_dead_letter(outcome, status):
    """Three deliveries; the last failure is a dead letter that can be replayed, and a result."""
    bench = Bench(make_stage(delay_s=0))
    lane = given(bench, priority=5, source="desk", timeout_ms=7, redirects=["http://b.test/"], depth=2)
    for attempt, pause_s in ((1, 1.0), (2, 3.0)):
        assert [] == bench.outcome(lane, outcome, status=status)
        assert [] == bench.emitted(after_s=pause_s - 0.001)
        (lane,) = bench.emitted(after_s=0.001)
        assert (attempt, attempt + 1) == (lane["attempt"], lane["delivery"])
    (dead,) = bench.outcome(lane, outcome, status=status, reason="reset")
    assert (topics.TASKS.dlq, b"a.test") == (dead.topic, dead.key)
    headers = dict(dead.headers)
    assert (b"retries_exhausted", b"3") == (headers["dlq-reason"], headers["dlq-attempts"])
    assert f"3 attempts failed, the last with {outcome}".encode() in headers["dlq-message"]
    expected = make_task(A, priority=5, source="desk", timeout_ms=7, redirects=["http://b.test/"], depth=2)
    assert expected == CODECS.decode(topics.TASKS.subject, dead.value)
    assert (1, 1, 0) == tuple(bench.progress()[name] for name in ("done", "failed", "waiting"))
    assert 1 == bench.stage.counters["dead_tasks"]


def test_past_the_list_of_pauses_the_domain_backs_off():
    """The third pause serves when more attempts are allowed; what fails still longer is no noise."""
    bench = Bench(make_stage(delay_s=0, max_attempts=9))
    lane = given(bench)
    for pause_s in (1.0, 3.0, 9.0):
        bench.outcome(lane, "NETWORK_ERROR")
        (lane,) = bench.emitted(after_s=pause_s)
    bench.outcome(lane, "NETWORK_ERROR")
    bench.task(A + "other")
    assert [] == bench.emitted(after_s=59)
    assert 2 == len(bench.emitted(after_s=17))


@pytest.mark.parametrize(
    ("outcome", "status"), [("RATE_LIMITED", 429), ("RATE_LIMITED", 200), ("RATE_LIMITED", 503), ("HTTP_ERROR", 429)]
)
def test_a_site_that_is_overloaded_is_left_alone_and_no_attempt_is_spent(bench, outcome, status):
    """Overload is the site's state, not the task's failure: the domain waits, the task is not worn out."""
    bench.task(A)
    for delivery in (1, 2, 3, 4):
        (lane,) = bench.emitted(after_s=86_400)
        assert (delivery, 0) == (lane["delivery"], lane["attempt"])
        bench.outcome(lane, outcome, status=status)
        assert [] == bench.emitted(after_s=59)


def test_a_host_that_refuses_everything_is_asked_a_dozen_times_a_day_however_much_waits_for_it(bench):
    """649 URLs are no reason for 649 requests: the backoff is the domain's, and survives every restart."""
    for number in range(649):
        bench.task(f"{A}{number}")
    asked = 0
    while bench.now < START + 86_400:
        lanes = bench.emitted(after_s=60)
        if not lanes:
            continue
        asked += 1
        bench.outcome(lanes[0], "RATE_LIMITED", status=429)
        for lane in lanes[1:]:  # fetch sends back what was dealt before the refusal
            bench.outcome(lane, "DEFERRED", requests=0, reason="gate")
        bench.reopen()
    assert 8 <= asked <= 12
    assert 649 == bench.progress()["waiting"]


def test_retry_after_holds_the_whole_domain_to_the_millisecond(bench):
    """The wish is the site's, not the page's."""
    lane = given(bench)
    until_ms = START_MS + 12_345
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=until_ms)
    bench.task("http://www.a.test/other", priority=1)
    bench.task("http://b.test/")
    assert ["http://b.test/"] == bench.urls()
    bench.reopen()
    assert [] == bench.urls(after_s=12.344)
    (first,) = bench.emitted(after_s=0.001)
    assert ("http://www.a.test/other", until_ms, 2_000) == tuple(
        first[name] for name in ("url", "not_before_ms", "delay_ms")
    )


def test_a_503_without_a_time_spends_an_attempt_and_holds_the_domain():
    """It says overload, but some pages say so for ever: the site is left alone, and the task ends at last."""
    bench = Bench(make_stage(delay_s=0))
    lane = given(bench)
    for attempt in (0, 1):
        assert attempt == lane["attempt"]
        assert [] == bench.outcome(lane, "HTTP_ERROR", status=503)
        assert [] == bench.emitted(after_s=59)
        (lane,) = bench.emitted(after_s=86_400)
    assert 1 == len(bench.outcome(lane, "HTTP_ERROR", status=503))
    bench.task(A + "next")
    assert [] == bench.emitted(after_s=239)
    assert [A + "next"] == bench.urls(after_s=61)


def test_a_page_with_a_window_that_is_used_up_is_done_and_holds_the_domain(bench):
    """RateLimit headers come with good answers."""
    lane = given(bench)
    bench.task(A + "next")
    bench.emitted()
    bench.task(A + "third")
    bench.outcome(lane, "FETCHED", rate_limit_remaining=0, rate_limit_reset_ms=START_MS + 30_000)
    assert 1 == bench.progress()["done"]
    bench.reopen()
    assert [] == bench.emitted(after_s=29.9)
    assert [A + "third"] == bench.urls(after_s=0.1)


def test_what_a_window_still_allows_is_shared_out_one_task_at_a_time(bench):
    """The rest of a window is not spent in a burst, nor after a restart; once it is over the usual pace is back."""
    first = given(bench)
    for number in range(3):
        bench.task(f"{A}{number}")
    (second,) = bench.emitted(after_s=1)
    bench.outcome(first, "FETCHED", rate_limit_remaining=3, rate_limit_reset_ms=START_MS + 61_000)
    bench.outcome(second, "FETCHED", rate_limit_remaining=2, rate_limit_reset_ms=START_MS + 61_000)
    bench.reopen()
    assert [] == bench.emitted(after_s=29.999)
    (third,) = bench.emitted(after_s=0.001)
    assert (A + "1", 30_000) == (third["url"], third["delay_ms"])
    assert [] == bench.emitted(after_s=20)
    bench.outcome(third, "FETCHED")
    assert [] == bench.emitted(after_s=9.999)
    assert [(A + "2", 1_000)] == [(lane["url"], lane["delay_ms"]) for lane in bench.emitted(after_s=0.001)]


def test_a_pause_of_days_parks_the_domain_and_kills_nothing():
    """A site that asks for ten days gets them; its tasks wait, are counted, and are not too old afterwards."""
    bench = Bench(make_stage())
    day_s = 86_400
    lane = given(bench)
    for number in range(5):
        bench.task(f"{A}{number}")
    bench.outcome(lane, "HTTP_ERROR", status=503, retry_after_ms=START_MS + 10 * day_s * 1000)
    assert [] == bench.emitted(after_s=11)
    assert {0: (1, 6, START_MS + 10 * day_s * 1000)} == bench.stage.parked
    bench.reopen()
    assert [] == bench.emitted(after_s=5 * day_s)
    assert 6 == bench.stage.parked[0].tasks
    assert [] == bench.emitted(after_s=5 * day_s - 11.001)
    (again,) = bench.emitted(after_s=0.001)
    assert [] == bench.outcome(again, "NETWORK_ERROR")
    assert 0 == bench.stage.counters["dead_tasks"]
    bench.tick(after_s=11)
    assert 0 == bench.stage.parked[0].domains
    bench.frontier.close()
    assert {} == bench.stage.parked


def test_a_task_that_fetch_put_off_never_dies_of_it():
    """It was not even asked for: behind a long Crawl-delay its turn may come after weeks."""
    bench = Bench(make_stage(max_age_s=3_600))
    lane = given(bench)
    bench.now += 10_000
    assert [] == bench.outcome(lane, "DEFERRED", requests=0)
    assert [A] == bench.urls()


def test_a_deferred_task_waits_until_it_may_start_and_spends_nothing(bench):
    """Fetch never waits long: what can't start goes back with its time."""
    lane = given(bench)
    bench.outcome(lane, "DEFERRED", requests=0, not_before_ms=START_MS + 20_000)
    assert (1, 0) == (bench.progress()["waiting"], bench.progress()["out"])
    assert [] == bench.emitted(after_s=19.999)
    assert [(0, 2)] == [(lane["attempt"], lane["delivery"]) for lane in bench.emitted(after_s=0.001)]


def test_a_task_whose_robots_file_cannot_be_read_comes_back_when_it_is_asked_for_again(bench):
    """Sooner it would only meet the same closed file, and be dead within four seconds."""
    lane = given(bench)
    bench.outcome(lane, "ROBOTS_UNREACHABLE", requests=0, not_before_ms=START_MS + 60_000)
    assert [] == bench.emitted(after_s=59.999)
    assert [1] == [lane["attempt"] for lane in bench.emitted(after_s=0.001)]


def test_an_outcome_of_another_delivery_is_ignored_and_counted(bench):
    """A stale outcome must not free the slot of the delivery that is out now."""
    lane = given(bench)
    bench.outcome(lane, "DEFERRED", requests=0)
    (second,) = bench.emitted()
    bench.outcome(lane, "HTTP_ERROR", status=404)
    bench.outcome({**lane, "delivery": 7}, "HTTP_ERROR", status=404)
    bench.outcome({**lane, "url_key": bytes(16)}, "HTTP_ERROR", status=404)
    assert (1, 0) == (bench.progress()["out"], bench.progress()["done"])
    assert 3 == bench.stage.counters["stale_outcomes"]
    bench.outcome(second, "FETCHED")
    bench.outcome(second, "FETCHED")
    assert (0, 1) == (bench.progress()["out"], bench.progress()["done"])


def test_a_stale_outcome_that_brought_a_page_or_a_redirect_counts_as_sent(bench):
    """Fetch has written the page or the task; the crawl could not end if it weren't counted."""
    lane = given(bench)
    bench.outcome({**lane, "delivery": 7}, "FETCHED")
    bench.outcome({**lane, "delivery": 7}, "REDIRECTED")
    assert (1, 1, 0) == tuple(bench.progress()[name] for name in ("pages_fetched", "redirects_sent", "done"))


def test_a_task_that_is_too_old_dies_instead_of_waiting_on():
    """Rate limits spend no attempts, so age is what bounds them; a long queue alone kills nothing."""
    bench = Bench(make_stage(max_age_s=3_600))
    lane = given(bench)
    bench.task(A + "slow", not_before_ms=START_MS + 5_000_000)
    bench.now += 3_601
    (dead,) = bench.outcome(lane, "RATE_LIMITED", status=429)
    assert b"deadline" == dict(dead.headers)["dlq-reason"]
    assert 1 == bench.progress()["failed"]
    assert [A + "slow"] == bench.urls(after_s=5_000)


@pytest.mark.parametrize(("delay_s", "slots"), [(0, 256), (0.1, 20), (1, 2), (1.5, 1), (60, 1)])
def test_a_domain_has_as_many_tasks_out_as_it_can_do_in_two_seconds(delay_s, slots):
    """Lane lag is work that could run now: a slow site never builds a backlog in a lane."""
    bench = Bench(make_stage(delay_s=delay_s))
    for number in range(300):
        bench.task(f"{A}{number}")
    assert slots == len(bench.emitted())
    assert [] == bench.emitted(after_s=1_000)


def test_a_slot_is_free_again_a_delay_after_the_last_request_ended():
    """Delay runs from the end of the last response."""
    bench = Bench(make_stage(delay_s=5))
    bench.task(A)
    bench.task(A + "next")
    (lane,) = bench.emitted()
    bench.now += 2
    bench.outcome(lane, "FETCHED")
    assert [] == bench.emitted(after_s=4.999)
    assert [A + "next"] == bench.urls(after_s=0.001)


def test_an_outcome_without_a_request_costs_the_domain_no_pause():
    """A thousand URLs that robots.txt forbids must not take a thousand delays."""
    bench = Bench(make_stage(delay_s=5))
    for number in range(3):
        bench.task(f"{A}{number}")
    for _ in range(3):
        (lane,) = bench.emitted()
        bench.outcome(lane, "ROBOTS_DENIED", requests=0)
    assert 3 == bench.progress()["failed"]


def test_the_lane_record_carries_the_longest_delay(bench):
    """Fetch's gate is told what robots.txt of the domain asked for."""
    lane = given(bench)
    bench.outcome(lane, "FETCHED", crawl_delay_ms=30_000)
    bench.task(A + "next")
    assert [] == bench.emitted(after_s=29.9)
    assert [30_000] == [lane["delay_ms"] for lane in bench.emitted(after_s=0.1)]
    assert {b"a.test"} == set(bench.view.rows("d"))


def test_a_task_whose_lease_has_passed_is_counted_and_stays_out(bench):
    """It should not happen; to give it out anew on suspicion would ask twice."""
    given(bench)
    assert [] == bench.emitted(after_s=121)
    assert 1 == bench.frontier.leases_overdue
    assert [] == bench.emitted(after_s=1_000)


def test_a_task_whose_lane_record_is_lost_is_given_out_anew():
    """Whoever knows that fetch's position is past the record says so; the old delivery is stale then."""
    lost = []
    bench = Bench(make_stage(lane_record_is_lost=lambda out: out.task.url in lost))
    lane = given(bench)
    assert [] == bench.emitted(after_s=121)
    lost.append(A)
    assert [2] == [lane["delivery"] for lane in bench.emitted(after_s=10)]
    assert [] == bench.emitted(after_s=100)
    bench.outcome(lane, "FETCHED")
    assert (1, 1) == (bench.progress()["out"], bench.stage.counters["lane_records_lost"])
    bench.reopen()
    bench.outcome({**lane, "delivery": 2}, "FETCHED")
    assert (0, 1) == (bench.progress()["out"], bench.progress()["done"])
    assert not bench.view.rows(OUT)


def test_an_outcome_is_handled_the_same_when_it_comes_again_after_an_undo(bench):
    """Its transaction was undone: the slot is freed once, the pace moves once."""
    lane = given(bench)
    mark = bench.view.savepoint()
    outcome = make_outcome(lane, "RATE_LIMITED", bench.now, status=429)
    bench.send(topics.FETCHES, outcome)
    bench.view.rollback(mark)
    bench.reopen()
    bench.send(topics.FETCHES, outcome)
    assert (1, 0) == (bench.progress()["waiting"], bench.progress()["out"])
    (again,) = bench.emitted(after_s=75)
    assert 2 == again["delivery"]


def test_the_dead_letter_of_a_task_can_be_replayed():
    """It is a whole task; whoever replays it sets the marker."""
    bench = Bench(make_stage(max_attempts=1))
    (dead,) = bench.outcome(given(bench), "NETWORK_ERROR")
    record = CODECS.decode(topics.TASKS.subject, dead.value)
    bench.send(topics.TASKS, {**record, "replay": True})
    assert [A] == bench.urls(after_s=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("bytes_wire", -1), ("bytes_wire", 2**62), ("status", -1), ("status", 65_536), ("requests", -1)],
)
def test_an_outcome_with_an_absurd_number_is_a_dead_letter(bench, field, value):
    """Summed up it would not fit the progress record, and no worker could ever report again."""
    lane = given(bench)
    with pytest.raises(InputError) as caught:
        bench.outcome(lane, "FETCHED", **{field: value})
    assert ("schema_rejected", field) == (caught.value.reason, caught.value.field)
    assert 1 == bench.progress()["out"]
