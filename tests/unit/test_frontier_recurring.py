"""Recurring work in one partition: polls come one after the other, each at its time, and none is lost or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import topics
from pipeline.errors import InputError
from pipeline.frontier.explain import explain
from pipeline.frontier.records import SEEN, url_row_key
from pipeline.frontier.recurrence import MAX_HASHES, Recurrence, pack_recurrence, unpack_recurrence
from pipeline.frontier.recurring import recurrence
from pipeline.web.url import url_key
from tests.frontier_world import START, Bench, decode, make_parsed, make_stage, make_task

A = "http://a.test/feed"
B = "http://b.test/new"
MINUTE_S = 60.0
ONE, TWO, THREE = (bytes((number,)) * 16 for number in (1, 2, 3))


def polled(url=A, **fields):
    """A bench with a task every minute, no delay; its first lane record."""
    bench = Bench(make_stage(delay_s=0, **fields))
    bench.task(url, interval_ms=60_000)
    (lane,) = bench.emitted()
    return bench, lane


def parsed(bench, lane, content_hash=ONE, **fields):
    """Hand in what parse says of a poll's page."""
    bench.send(topics.PARSED, make_parsed(lane, [], content_hash=content_hash, **fields))


def page(bench, lane, content_hash=ONE, **fields):
    """A poll brings a page, which is parsed."""
    bench.outcome(lane, "FETCHED", **fields)
    parsed(bench, lane, content_hash)


def known(bench, url=A):
    """What is known of a polled URL."""
    row = recurrence(bench.view, url_row_key("default", url_key(url)))
    assert row is not None
    return row


def interval_s(bench, url=A):
    """The interval now."""
    return known(bench, url).interval_ms / 1000


def test_a_poll_follows_the_other_one_interval_after_its_start():
    """However long the fetch took; each has its number, its delivery and what the last one brought."""
    bench, lane = polled()
    assert (1, 1, None, []) == (lane["poll"], lane["delivery"], lane["etag"], lane["known_content_hashes"])
    bench.now += 7
    page(bench, lane, etag='"x"', last_modified="Mon")
    assert [] == bench.emitted(MINUTE_S - 7.001)
    (lane,) = bench.emitted(0.001)
    assert (2, 2, 0, '"x"', "Mon", [ONE]) == tuple(
        lane[name] for name in ("poll", "delivery", "attempt", "etag", "last_modified", "known_content_hashes")
    )
    assert bench.now == START + MINUTE_S


def test_the_next_poll_waits_until_the_page_is_parsed():
    """Else it could bring the same document once more; who looks sees that it is held."""
    bench, lane = polled()
    bench.outcome(lane, "FETCHED")
    assert [] == bench.emitted(10 * MINUTE_S)
    parsed(bench, lane)
    (lane,) = bench.emitted()
    assert (2, [ONE]) == (lane["poll"], lane["known_content_hashes"])
    page(bench, lane)
    assert [] == bench.emitted(MINUTE_S - 0.001)


def test_the_answer_of_parse_may_come_before_the_outcome():
    """They travel in different topics."""
    bench, lane = polled()
    parsed(bench, lane)
    assert [] == bench.emitted(2 * MINUTE_S)
    bench.outcome(lane, "FETCHED")
    assert [2] == [lane["poll"] for lane in bench.emitted()]


def test_memory_can_be_thrown_away_at_any_point():
    """What is due when is in the state alone."""
    bench, lane = polled()
    bench.reopen()
    bench.outcome(lane, "FETCHED")
    bench.reopen()
    assert [] == bench.emitted(5.0)
    parsed(bench, lane)
    before = bench.frontier.due()
    bench.reopen()
    bench.tick()
    assert START + MINUTE_S == bench.frontier._waiting.next_ms() / 1000
    assert before is not None
    assert [2] == [lane["poll"] for lane in bench.emitted(MINUTE_S - 5)]


def test_after_downtime_there_is_one_poll_and_not_a_burst():
    """What was missed is over; the beat starts anew."""
    bench, lane = polled()
    page(bench, lane)
    (lane,) = bench.emitted(1_000 * MINUTE_S)
    page(bench, lane)
    assert [] == bench.emitted(1.0)
    assert 1 == len(bench.emitted(2 * MINUTE_S))


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("HTTP_ERROR", 404), ("HTTP_ERROR", 410), ("ROBOTS_DENIED", None), ("TOO_LARGE", 200), ("DEAD_LETTER", None)],
)
def test_a_poll_that_fails_for_good_is_followed_by_a_later_one(outcome, status):
    """Pages come back; until then they are asked more and more seldom. Nothing goes to the dead letters."""
    bench, lane = polled()
    for poll in range(1, 30):
        assert poll == lane["poll"]
        assert [] == bench.outcome(lane, outcome, status=status)
        (lane,) = bench.emitted(16 * MINUTE_S)
    assert 16 * MINUTE_S == interval_s(bench)
    assert 29 == bench.stage.counters["polls_failed"]
    assert (0, 0) == (bench.progress()["done"], bench.progress()["failed"])


def test_retries_within_a_poll_are_as_ever_and_their_end_is_no_dead_letter():
    """Whoever waits for the next poll has nothing to replay."""
    bench, lane = polled()
    for pause_s in (1.0, 3.0):
        bench.outcome(lane, "NETWORK_ERROR")
        (lane,) = bench.emitted(pause_s)
        assert 1 == lane["poll"]
    assert [] == bench.outcome(lane, "NETWORK_ERROR")
    assert 0 == bench.stage.counters["dead_tasks"]
    (lane,) = bench.emitted(2 * MINUTE_S)
    assert (2, 0, 4) == (lane["poll"], lane["attempt"], lane["delivery"])


@pytest.mark.parametrize("outcome", ["NOT_MODIFIED", "ROBOTS_DENIED"])
def test_recurring_work_that_never_brings_a_page_does_not_grow_too_old(outcome):
    """Its age counts from poll to poll, not from the day on which somebody wished it."""
    bench, lane = polled(max_age_s=600)
    for _ in range(30):
        bench.outcome(lane, outcome)
        (lane,) = bench.emitted(16 * MINUTE_S)
    bench.outcome(lane, "NETWORK_ERROR")
    assert 1 == len(bench.emitted(1.0))


def test_a_poll_that_waited_for_parse_does_not_grow_too_old():
    """A parser that was down for long leaves the next poll all its attempts."""
    bench, lane = polled(max_age_s=600)
    bench.outcome(lane, "FETCHED")
    bench.now += 6_000
    parsed(bench, lane)
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    assert 1 == len(bench.emitted(1.0))


def test_deliveries_stay_unique_when_a_withdrawn_url_has_been_forgotten():
    """The seen table has a horizon; an outcome or an answer of the former life must not be taken for one of this."""
    bench, lane = polled()
    page(bench, lane)
    bench.task(A, withdraw=True)
    bench.view.delete(SEEN, url_row_key("default", url_key(A)))
    bench.reopen()
    bench.task(A, interval_ms=60_000)
    assert [2] == [lane["delivery"] for lane in bench.emitted()]


def test_recurring_work_does_not_grow_too_old():
    """Its age counts from poll to poll."""
    bench, lane = polled(max_age_s=600)
    for _ in range(30):
        page(bench, lane)
        (lane,) = bench.emitted(16 * MINUTE_S)
    bench.outcome(lane, "NETWORK_ERROR")
    assert 1 == len(bench.emitted(1.0))


def test_a_site_s_wish_is_longer_than_the_interval():
    """Retry-After wins; the attempt goes on when its time comes."""
    bench, lane = polled()
    until_ms = int((bench.now + 3_600) * 1000)
    bench.outcome(lane, "RATE_LIMITED", status=429, retry_after_ms=until_ms)
    assert [] == bench.emitted(3_599)
    (lane,) = bench.emitted(1.0)
    assert (1, 2) == (lane["poll"], lane["delivery"])


def test_unchanged_pages_make_the_interval_longer_and_changed_ones_shorter():
    """By validators or by content; the first page says nothing."""
    bench, lane = polled()
    page(bench, lane, ONE)
    assert 60 == interval_s(bench)
    (lane,) = bench.emitted(MINUTE_S)
    page(bench, lane, ONE)
    assert 90 == interval_s(bench)
    (lane,) = bench.emitted(90)
    bench.outcome(lane, "NOT_MODIFIED", status=304)
    assert 135 == interval_s(bench)
    (lane,) = bench.emitted(135)
    page(bench, lane, TWO)
    assert 90 == interval_s(bench)
    assert int(bench.now * 1000) == known(bench).changed_ms
    assert [] == bench.emitted(70)  # the hour that brought news passes faster, but not much after one find
    assert 1 == len(bench.emitted(20))


def test_a_page_that_changes_back_brings_nothing_new():
    """Its document was published before; all its faces are known to parse."""
    bench, lane = polled()
    changed_ms = []
    for content_hash in (ONE, TWO, ONE, TWO):
        page(bench, lane, content_hash)
        changed_ms.append(known(bench).changed_ms)
        (lane,) = bench.emitted(16 * MINUTE_S)
    assert [TWO, ONE] == lane["known_content_hashes"]
    assert changed_ms[0] < changed_ms[1] == changed_ms[2] == changed_ms[3]


def test_a_redirected_poll_keeps_its_interval_and_goes_on_at_the_target():
    """The target is fetched once for each poll, though it was seen; what it says is kept with it."""
    bench, lane = polled()
    for poll in range(1, 4):
        bench.outcome(lane, "REDIRECTED", status=301)
        bench.send(topics.TASKS, make_task(B, redirects=[A], poll=poll, interval_ms=60_000))
        (target,) = bench.emitted()
        assert (B, poll, 0) == (target["url"], target["poll"], target["interval_ms"])
        assert [ONE] * (poll > 1) == target["known_content_hashes"]
        page(bench, target, ONE)
        (lane,) = bench.emitted(MINUTE_S)
        assert (A, poll + 1) == (lane["url"], lane["poll"])


def test_a_redirected_poll_waits_at_its_target_for_the_parser():
    """The page of the poll before is not parsed: its hash is not known yet."""
    bench, lane = polled()
    bench.outcome(lane, "REDIRECTED", status=301)
    bench.send(topics.TASKS, make_task(B, redirects=[A], poll=1))
    (target,) = bench.emitted()
    bench.outcome(target, "FETCHED")
    (lane,) = bench.emitted(MINUTE_S)
    bench.outcome(lane, "REDIRECTED", status=301)
    bench.send(topics.TASKS, make_task(B, redirects=[A], poll=2))
    assert [] == bench.emitted(5.0)
    parsed(bench, target)
    (target,) = bench.emitted()
    assert (B, 2, [ONE]) == (target["url"], target["poll"], target["known_content_hashes"])


def test_the_target_of_polls_is_judged_once():
    """It is one URL, however often it is polled: no trap counts it anew each time."""
    bench, lane = polled(max_queries_per_path=2)
    for poll in range(1, 8):
        bench.outcome(lane, "REDIRECTED", status=301)
        bench.send(topics.TASKS, make_task("http://b.test/new?page=1&view=all", redirects=[A], poll=poll))
        (target,) = bench.emitted()
        page(bench, target)
        (lane,) = bench.emitted(MINUTE_S)
    assert {} == bench.progress()["refused"]


def test_a_failed_redirected_poll_is_no_dead_letter():
    """The next poll comes from where it began."""
    bench, lane = polled(max_attempts=1)
    bench.outcome(lane, "REDIRECTED", status=301)
    bench.send(topics.TASKS, make_task(B, redirects=[A], poll=1))
    (target,) = bench.emitted()
    assert [] == bench.outcome(target, "NETWORK_ERROR")


# ---- wishes


def test_the_same_task_twice_is_one():
    """Also when the interval has been adapted meanwhile."""
    bench, lane = polled()
    page(bench, lane)
    (lane,) = bench.emitted(MINUTE_S)
    page(bench, lane)
    bench.task(A, interval_ms=60_000)
    assert 90 == interval_s(bench)
    assert [] == bench.emitted(89.9)
    assert 1 == len(bench.emitted(0.1))


def test_the_newest_interval_holds():
    """It counts from the start of the last poll, whatever the task does at the moment."""
    bench, lane = polled()
    page(bench, lane)
    bench.task(A, interval_ms=30_000)
    (lane,) = bench.emitted(30)
    assert 30_000 == lane["interval_ms"]
    bench.task(A, interval_ms=600_000)
    page(bench, lane)
    assert [] == bench.emitted(890)
    (lane,) = bench.emitted(20)
    bench.outcome(lane, "FETCHED")
    bench.task(A, interval_ms=20_000)
    assert [] == bench.emitted(60)
    parsed(bench, lane, TWO)
    assert 1 == len(bench.emitted())


def test_a_url_that_is_done_becomes_recurring():
    """Deliveries count on."""
    bench = Bench(make_stage(delay_s=0))
    bench.task(A)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.task(A, interval_ms=60_000)
    (lane,) = bench.emitted()
    assert (1, 2) == (lane["poll"], lane["delivery"])
    assert (1, 0) == (bench.progress()["seen"], bench.progress()["done"])


def test_a_url_that_is_out_becomes_recurring():
    """What is out counts as its first poll, though its lane record doesn't say so."""
    bench = Bench(make_stage(delay_s=0))
    bench.task(A)
    (lane,) = bench.emitted()
    bench.task(A, interval_ms=60_000)
    page(bench, lane)
    (lane,) = bench.emitted(MINUTE_S)
    assert (2, 2, [ONE]) == (lane["poll"], lane["delivery"], lane["known_content_hashes"])


def test_a_link_or_a_plain_task_changes_nothing_of_recurring_work():
    """It is seen; a replay is a wish to poll now."""
    bench, lane = polled()
    page(bench, lane)
    bench.links([A], depth=0)
    bench.task(A)
    assert [] == bench.emitted(10)
    bench.task(A, replay=True)
    (lane,) = bench.emitted()
    assert (2, 60_000) == (lane["poll"], lane["interval_ms"])


def test_a_replay_goes_on_where_no_answer_of_parse_ever_came():
    """A page record that expired unread must not end recurring work for ever."""
    bench, lane = polled()
    bench.outcome(lane, "FETCHED")
    bench.task(A, replay=True)
    assert [2] == [lane["poll"] for lane in bench.emitted()]


@pytest.mark.parametrize("awaits_parse", [False, True])
def test_a_withdrawn_task_is_polled_no_more(awaits_parse):
    """It waits, or is held until its page is parsed; nothing of it is left."""
    bench, lane = polled()
    bench.outcome(lane, "FETCHED")
    if not awaits_parse:
        parsed(bench, lane)
    bench.task(A, withdraw=True)
    parsed(bench, lane)
    assert [] == bench.emitted(100 * MINUTE_S)
    progress = bench.progress()
    assert ({"withdrawn": 1}, 0, 0) == tuple(progress[name] for name in ("refused", "waiting", "recurring"))
    bench.task(A, interval_ms=60_000)
    (lane,) = bench.emitted()
    assert (1, 2, [ONE]) == (lane["poll"], lane["delivery"], lane["known_content_hashes"])


def test_a_task_that_is_withdrawn_while_it_is_out_has_had_its_last_poll():
    """A request under way can't be called back; it ends as a task that is done once."""
    bench, lane = polled()
    bench.task(A, withdraw=True)
    page(bench, lane)
    assert [] == bench.emitted(100 * MINUTE_S)
    assert (1, 0) == (bench.progress()["done"], bench.progress()["waiting"])


def test_withdrawing_what_is_unknown_or_done_changes_nothing():
    """Withdrawing twice is as good as once."""
    bench = Bench(make_stage(delay_s=0))
    bench.task(A, withdraw=True)
    assert (0, {}) == (bench.progress()["seen"], bench.progress()["refused"])


def test_a_fetch_that_is_wished_again_knows_what_was_published():
    """A replay of a URL that was polled once must not publish its document again."""
    bench, lane = polled()
    bench.task(A, withdraw=True)
    page(bench, lane)
    bench.task(A, replay=True)
    (lane,) = bench.emitted()
    assert (0, [ONE]) == (lane["poll"], lane["known_content_hashes"])
    bench.outcome(lane, "FETCHED")
    assert 1 == bench.progress()["done"]


def test_an_interval_of_more_than_a_year_is_refused():
    """It is a slip of the pen, and times would leave their fields."""
    bench = Bench(make_stage())
    with pytest.raises(InputError) as caught:
        bench.task(A, interval_ms=2**62)
    assert ("invalid_task", "interval_ms") == (caught.value.reason, caught.value.field)


# ---- answers of parse


def test_a_page_that_parse_gave_up_counts_as_failed_and_the_next_poll_comes():
    """Every page has an answer, dead letters too."""
    bench, lane = polled()
    bench.outcome(lane, "FETCHED")
    parsed(bench, lane, None, kind="DEAD_LETTER")
    assert 90 == interval_s(bench)
    assert [2] == [lane["poll"] for lane in bench.emitted(90)]


def test_a_page_that_comes_back_from_the_dead_letters_tells_its_hash_and_nothing_else():
    """Later polls must not publish its document again; their beat is not disturbed."""
    bench, first = polled()
    bench.outcome(first, "FETCHED")
    parsed(bench, first, None, kind="DEAD_LETTER")
    (lane,) = bench.emitted(90)
    parsed(bench, first, ONE)
    page(bench, lane, ONE)
    assert 135 == interval_s(bench)
    assert (ONE,) == known(bench).hashes


# ---- sites that lie


def test_validators_that_stay_while_the_page_changes_are_sent_no_more():
    """By them the site would say for ever that nothing is new; the content decides. Whichever answer comes first."""
    for parse_is_first in (False, True):
        bench, lane = polled()
        page(bench, lane, ONE, etag='"x"')
        (lane,) = bench.emitted(16 * MINUTE_S)
        page(bench, lane, ONE, etag='"x"')
        (lane,) = bench.emitted(16 * MINUTE_S)
        assert '"x"' == lane["etag"], "the page has not changed either"
        if parse_is_first:
            parsed(bench, lane, TWO)
        bench.outcome(lane, "FETCHED", etag='"x"')
        if not parse_is_first:
            parsed(bench, lane, TWO)
        for _ in range(3):
            (lane,) = bench.emitted(16 * MINUTE_S)
            assert (None, None) == (lane["etag"], lane["last_modified"])
            page(bench, lane, TWO, etag='"y"')
        assert 1 == bench.stage.counters["validators_distrusted"]


def test_validators_that_change_with_the_page_or_without_it_are_trusted():
    """An entity tag that is new each time costs a page each time, and no news."""
    bench, lane = polled()
    for number in range(1, 9):
        page(bench, lane, bytes((number // 2,)) * 16, etag=f'"{number}"', last_modified=None)
        (lane,) = bench.emitted(16 * MINUTE_S)
        assert f'"{number}"' == lane["etag"]
    page(bench, lane, THREE)
    (lane,) = bench.emitted(16 * MINUTE_S)
    page(bench, lane, TWO)
    assert 0 == bench.stage.counters["validators_distrusted"], "no validators are no lie"


def test_a_page_is_brought_once_a_day_whatever_its_site_says():
    """A site that says "not modified" for ever is found out."""
    bench, lane = polled(interval_span=1)
    page(bench, lane, ONE, etag='"x"')
    brought = bench.now
    while True:
        (lane,) = bench.emitted(MINUTE_S)
        if lane["etag"] is None:
            break
        bench.outcome(lane, "NOT_MODIFIED", status=304, etag='"x"')
    assert 86_400 < bench.now - brought <= 86_400 + MINUTE_S
    page(bench, lane, TWO, etag='"x"')
    assert 1 == bench.stage.counters["validators_distrusted"]


def test_the_day_can_be_any_time():
    """Or none."""
    for trust_s, sent in ((90.0, [True, False]), (0.0, [True, True])):
        bench, lane = polled(interval_span=1, trust_validators_s=trust_s)
        page(bench, lane, ONE, etag='"x"')
        got = []
        for _ in range(2):
            (lane,) = bench.emitted(MINUTE_S)
            got.append(lane["etag"] is not None)
            bench.outcome(lane, "NOT_MODIFIED", status=304)
        assert sent == got


def test_a_page_that_parse_could_not_read_is_brought_again():
    """Unchanged it would never be read, though a later parser may be able to."""
    bench, lane = polled()
    bench.outcome(lane, "FETCHED", etag='"x"')
    parsed(bench, lane, None, kind="DEAD_LETTER")
    (lane,) = bench.emitted(2 * MINUTE_S)
    assert lane["etag"] is None


def test_a_page_that_is_wished_anew_is_brought():
    """It may be another parser's from now on; what was published of it is known all the same."""
    bench, lane = polled()
    page(bench, lane, etag='"x"')
    bench.task(A, withdraw=True)
    bench.task(A, interval_ms=60_000, parser="other")
    (lane,) = bench.emitted()
    assert ("other", None, [ONE]) == (lane["parser"], lane["etag"], lane["known_content_hashes"])


def test_the_validators_of_a_redirected_poll_are_the_target_s():
    """Where it began there is nothing to compare with."""
    bench, lane = polled()
    for poll in (1, 2, 3):
        assert lane["etag"] is None
        bench.outcome(lane, "REDIRECTED", status=301, etag='"not the page\'s"')
        bench.send(topics.TASKS, make_task(B, redirects=[A], poll=poll, interval_ms=60_000))
        (target,) = bench.emitted()
        assert (None if poll == 1 else '"b"') == target["etag"]
        page(bench, target, ONE, etag='"b"')
        (lane,) = bench.emitted(MINUTE_S)


# ---- for people


def test_who_asks_learns_the_interval_and_when_something_was_new():
    """The interval as it is now, not as it was wished; and that a poll waits for parse."""
    bench, lane = polled()

    def standing():
        (found,) = explain(bench.frontier.insight(), "a.test", A, url_key(A), int(bench.now * 1000))
        return found

    bench.outcome(lane, "FETCHED")
    assert ("held", "parse", "awaits_parse") == (standing().state, standing().why, standing().reason)
    parsed(bench, lane)
    (lane,) = bench.emitted(MINUTE_S)
    page(bench, lane)
    assert ("waiting", int((bench.now + 90) * 1000)) == (standing().state, standing().due_ms)
    changed_ms = int(START * 1000)
    assert {"poll": 3, "wished_ms": 60_000, "interval_ms": 90_000, "changed_ms": changed_ms} == standing().facts
    bench.task(A, withdraw=True)
    assert ("refused", "withdrawn") == (standing().state, standing().why)


# ---- the crawl's counts


def test_a_crawl_with_nothing_but_recurring_work_has_nothing_left_to_do():
    """After the first poll; what waits between polls, is out in one or waits for parse is told apart."""
    bench, lane = polled()

    def counts():
        progress = bench.progress()
        return tuple(progress[name] for name in ("waiting", "out", "recurring", "pages_fetched", "pages_polled"))

    assert (0, 1, 0, 0, 0) == counts()
    bench.outcome(lane, "FETCHED")
    assert (1, 0, 1, 1, 0) == counts()
    parsed(bench, lane)
    assert (1, 0, 1, 1, 0) == counts()
    (lane,) = bench.emitted(MINUTE_S)
    assert (0, 1, 1, 1, 0) == counts()
    page(bench, lane, TWO)
    assert (1, 0, 1, 1, 1) == counts()
    assert 1 == bench.progress()["pages_parsed"]


def test_records_of_later_polls_are_not_counted_for_the_end():
    """Polls come and go while the end of everything else is looked for."""
    bench, lane = polled()
    page(bench, lane)
    (lane,) = bench.emitted(MINUTE_S)
    bench.outcome(lane, "FETCHED")
    bench.send(topics.PARSED, make_parsed(lane, [0], content_hash=TWO))
    bench.links(["http://a.test/news"], poll=2)
    bench.send(topics.TASKS, make_task(B, redirects=[A], poll=2))
    names = ("pages_fetched", "pages_parsed", "links_sent", "links_received", "redirects_sent", "redirects_received")
    assert (1, 1, [0], 0, 0, 0) == tuple(bench.progress()[name] for name in names)
    assert {"http://a.test/news", B} == set(bench.urls())


def test_a_poll_costs_a_page_of_the_budget_and_waits_for_it():
    """The budget of a crawl holds for polls as for all else; the one that has none left is held, not lost."""
    definitions = {"c": {"scope": [], "max_pages": 2}}
    bench = Bench(make_stage(definitions, delay_s=0))
    bench.task(A, "c", interval_ms=60_000)
    lanes = []
    for _ in range(10):
        for output in bench.tick(20.0):
            if output.topic.startswith("crawl.frontier"):
                lanes.append(decode(output))
                page(bench, lanes[-1], bytes((len(lanes),)) * 16)
    assert [1, 2] == [lane["poll"] for lane in lanes]
    progress = bench.progress("c")
    assert (1, 1, 0, 2) == (
        progress["waiting"], progress["parked"], progress["recurring"],
        progress["pages_fetched"] + progress["pages_polled"],
    )  # fmt: skip


def test_work_that_waits_for_its_next_poll_asks_for_no_pages():
    """They would lie here unused, while other partitions could fetch with them."""
    bench = Bench(make_stage({"c": {"scope": [], "max_pages": 9}}, delay_s=0))
    bench.task(A, "c", interval_ms=3_600_000)
    (lane,) = [*bench.emitted(), *bench.emitted(1.0)]
    page(bench, lane)
    for _ in range(20):
        bench.tick(10.0)
        assert (0, 0) == (bench.frontier._crawls.get("c").grant, bench.frontier._crawls.get("c").asked)


@given(
    st.builds(
        Recurrence,
        *[st.integers(0, 2**63)] * 4,
        *[st.integers(0, 2**32 - 1)] * 2,
        st.sampled_from([b"", bytes(range(24))]),
        st.lists(st.binary(min_size=16, max_size=16), max_size=MAX_HASHES).map(tuple),
        st.none() | st.text(max_size=1024),
        st.none() | st.text(max_size=1024),
        st.integers(0, 2**63),
        *[st.integers(0, 2**32 - 1)] * 2,
        st.booleans(),
    )
)
def test_a_row_keeps_all_that_is_known(row):
    """What is known of a polled URL survives a restart as it was."""
    assert row == unpack_recurrence(pack_recurrence(row))
