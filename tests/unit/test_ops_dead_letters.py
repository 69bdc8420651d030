from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline import topics
from pipeline.cli.dlq_rows import row
from pipeline.contracts import load_codec
from pipeline.contracts.golden import read_golden
from pipeline.contracts.schemas import DIRECTORY
from pipeline.delivery.api import Output, is_answered, replays_of
from pipeline.delivery.dead_letters import REASONS, dead_letter, task_dead_letter
from pipeline.errors import InputError
from pipeline.ops.dead_letter_origins import Origins, as_it_was, unfit
from pipeline.ops.dead_letters import Filters, Marker, Origin, State, read_letter, read_marker, rfc3339
from tests.fakes import FakeRecord
from tests.frontier_world import LANES, Bench, decode, make_stage, make_task

CODECS = load_codec()
AT_MS = 1_700_000_000_123
LANE = {
    "crawl": "c", "url": "http://a.test/x", "url_key": bytes(16), "delivery": 3, "attempt": 2, "priority": 1,
    "depth": 4, "source": "desk", "submitted_at_ms": 7, "emitted_at_ms": 8, "not_before_ms": 9, "delay_ms": 10,
    "timeout_ms": 11, "redirects": ["http://b.test/"], "etag": None, "last_modified": None, "parser": "wire",
    "concurrency": 2, "max_depth": 5, "interval_ms": 60_000, "poll": 7, "render": True, "headers_ref": "desk",
}  # fmt: skip


def written(output, offset=5):
    """A letter as it stands in its topic."""
    return FakeRecord(output.topic, output.value, output.key, output.partition, offset, AT_MS, output.headers)


def letter(topic=topics.TASKS, value=b"x", reason="policy", *, headers=(), stage="stage"):
    """The letter of a record of a topic, as a reader returns it."""
    source = FakeRecord(topic.name, value, b"a.test", 2, 17, 1_600_000_000_000, headers)
    return read_letter(written(dead_letter(source, InputError(reason, "why", "url"), group="g", stage=stage)))


# ---- what stands in a topic


def test_a_letter_says_all_that_its_headers_say():
    """List, filters and replay rest on it."""
    made = letter(headers=(("trace", b"1"), ("dlq-replays", b"1")))
    assert ("crawl.tasks.v1-dlq", 2, 5, AT_MS) == (made.topic, made.partition, made.offset, made.timestamp_ms)
    assert ("policy", "InputError", "url: why", "stage") == (made.reason, made.error, made.message, made.stage)
    assert Origin("crawl.tasks.v1", 2, 17, 1_600_000_000_000) == made.origin
    assert ("crawl.tasks.v1", 1, 1, 0, State.OPEN) == (
        made.home,
        made.attempts,
        made.replays,
        made.cut_bytes,
        made.state,
    )
    assert (("trace", b"1"),) == made.own_headers


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("trace", b"1"),),
        (("dlq-origin-topic", b"t"), ("dlq-origin-offset", b"many"), ("dlq-attempts", b"\xff")),
        (("dlq-reason", None), ("dlq-cut", b"9" * 100)),
    ],
)
def test_whatever_stands_in_a_topic_can_be_listed(headers):
    """Anybody may write there; one foreign record must not hide the others, and can be purged by an id of its own."""
    first = read_letter(FakeRecord("t-dlq", b"v", None, 0, 1, AT_MS, headers))
    second = read_letter(FakeRecord("t-dlq", b"v", None, 0, 2, AT_MS, headers))
    assert ("", "", 0, 0) == (first.reason, first.stage, first.attempts, first.cut_bytes)
    assert first.id
    assert first.id != second.id


@pytest.mark.parametrize("state", [State.REPLAYED, State.PURGED])
def test_a_marker_is_read_as_it_was_written(state):
    """It is all that says that a letter is done."""
    marker = Marker("id", state, "me@here", "2026-05-04T06:30:00Z", 1_700_000_000_000)
    assert marker == read_marker(marker.headers)
    assert None is read_marker(letter().headers)


def test_a_marker_of_a_later_release_means_done():
    """An older tool must not replay what a newer one has settled in a way it does not know."""
    assert State.REPLAYED is read_marker([("dlq-marker", b"mended"), ("dlq-id", b"x")]).state


def test_times_are_rfc_3339_in_utc():
    """Output of commands is a contract."""
    assert "2023-11-14T22:13:20.123Z" == rfc3339(AT_MS)
    assert "1969-12-31T23:59:59.999Z" == rfc3339(-1)


@pytest.mark.parametrize(
    ("number", "said"), [(10**19, "9999-12-31T23:59:59.999Z"), (-(10**18), "0001-01-01T00:00:00.000Z")]
)
def test_a_time_that_no_calendar_has_is_the_nearest_that_it_has(number, said):
    """Senders write any number into a header; one letter must not keep all others from being listed."""
    headers = (("dlq-origin-topic", b"t"), ("dlq-origin-timestamp", b"%d" % number))
    assert said == row(read_letter(FakeRecord("t-dlq", b"", headers=headers)))["origin"]["time"]


# ---- filters


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), True),
        (Filters(reasons=frozenset({"policy", "deadline"}), stages=frozenset({"stage"})), True),
        (Filters(reasons=frozenset({"deadline"})), False),
        (Filters(stages=frozenset({"parse"})), False),
        (Filters(keys=frozenset({b"a.test"})), True),
        (Filters(keys=frozenset({b"test"})), False),
        (Filters(ids=frozenset({"other"})), False),
        (Filters(since_ms=AT_MS, until_ms=AT_MS + 1), True),
        (Filters(since_ms=AT_MS + 1), False),
        (Filters(until_ms=AT_MS), False),
        (Filters(origin_topic="crawl.tasks.v1", origin_partition=2), True),
        (Filters(origin_topic="crawl.tasks.v1", origin_partition=2, origin_offset=17), True),
        (Filters(origin_topic="crawl.tasks.v1", origin_partition=2, origin_offset=16), False),
        (Filters(origin_topic="crawl.tasks.v1", origin_partition=0), False),
        (Filters(origin_topic="crawl.links.v1"), False),
    ],
)
def test_a_letter_must_fulfil_every_filter(filters, expected):
    """A replay of more than was meant can't be taken back."""
    assert expected is filters.match(letter())


def test_a_letter_without_a_key_or_an_origin_matches_no_filter_of_them():
    """Links have no key, foreign records no origin."""
    bare = read_letter(FakeRecord("t-dlq", b"v", None, 0, 1, AT_MS))
    assert Filters().match(bare)
    assert not Filters(keys=frozenset({b""})).match(bare)
    assert not Filters(origin_topic="t").match(bare)


# ---- what goes back


def test_a_record_goes_back_as_it_was_but_for_what_says_so():
    """The value is the sender's; the count keeps it from circling for ever."""
    made = letter(topics.LINKS, b"v", headers=(("trace", b"1"), ("dlq-replays", b"1")))
    headers = (("trace", b"1"), ("dlq-replays", b"2"), ("dlq-id", made.id.encode()))
    assert Output("crawl.links.v1", b"v", b"a.test", 2, headers) == as_it_was(made)


def sample(topic):
    """A value of a topic, of today's contract."""
    record = read_golden(DIRECTORY / topic.subject)[-1].record
    return CODECS.encode(topic.subject, record)


AS_THEY_ARE = [topic for topic in topics.TABLE if topic.dead_letters and topic not in topics.LANES.values()]


@pytest.mark.parametrize("topic", AS_THEY_ARE, ids=lambda topic: topic.name)
def test_records_of_most_topics_go_back_untouched(topic):
    """Whoever reads the topic handles them as if nothing had happened."""
    made = letter(topic, sample(topic), "undecodable")
    assert as_it_was(made) == Origins(CODECS).restore(made)


def task_of(output):
    """The task that goes back."""
    return CODECS.decode(topics.TASKS.subject, output.value)


@pytest.mark.parametrize("lane", topics.LANES.values(), ids=topics.LANES)
def test_a_lane_record_goes_back_as_a_task(lane):
    """The outcome beside its letter has ended the URL: only a task brings it back, with attempts and pauses anew."""
    made = letter(lane, CODECS.encode(lane.subject, LANE), "handler_error")
    output = Origins(CODECS).restore(made)
    assert (topics.TASKS.name, b"a.test", 2) == (output.topic, output.key, output.partition)
    kept = ("crawl", "url", "priority", "depth", "source", "submitted_at_ms", "timeout_ms", "redirects",
            "parser", "concurrency", "max_depth", "render", "headers_ref")  # fmt: skip
    once = {"not_before_ms": 0, "interval_ms": 0, "poll": 0, "replay": True, "withdraw": False}
    assert {**{name: LANE[name] for name in kept}, **once} == task_of(output)
    assert 1 == replays_of(output.headers)


@pytest.mark.parametrize("reason", ["undecodable", "schema_rejected"])
def test_a_lane_record_that_fetch_could_not_read_goes_back_to_its_lane(reason):
    """It was answered to nobody, so its URL is still out: a task for it would be dropped as known."""
    made = letter(topics.LANE_BULK, CODECS.encode(topics.LANE_BULK.subject, LANE), reason)
    assert as_it_was(made) == Origins(CODECS).restore(made)


def given_up(value, replays=0):
    """The letter of a task whose attempts are spent."""
    cause = FakeRecord(topics.FETCHES.name, b"", b"a.test", 2, 99)
    return read_letter(
        written(
            task_dead_letter(
                value, key=b"a.test", reason="retries_exhausted", message="spent", attempts=3, replays=replays,
                cause=cause, group="g", stage="frontier",
            )
        )
    )  # fmt: skip


def test_a_task_that_was_given_up_goes_back_as_one_that_has_ended():
    """Its letter stands beside those of tasks, though an outcome was the cause; a redirect counts no second time."""
    task = make_task("http://a.test/", redirects=["http://b.test/"], not_before_ms=0)
    output = Origins(CODECS).restore(given_up(CODECS.encode(topics.TASKS.subject, task), replays=1))
    assert (topics.TASKS.name, b"a.test", 2, 2) == (
        output.topic,
        output.key,
        output.partition,
        replays_of(output.headers),
    )
    assert {**task, "replay": True} == task_of(output)


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_a_page_whose_letter_was_answered_says_so(reason):
    """The frontier counts answers: a second one for the same page would keep its crawl from ending."""
    output = Origins(CODECS).restore(letter(topics.PAGES, sample(topics.PAGES), reason))
    assert (reason not in {"undecodable", "schema_rejected", "invalid_task"}) is is_answered(output.headers)


@pytest.mark.parametrize("topic", [topic for topic in topics.TABLE if topic.dead_letters], ids=lambda topic: topic.name)
@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"no record", "undecodable"), (None, "undecodable"), (b"\0\0\xff\xff\xff", "schema_rejected")],
)
def test_what_today_s_contracts_can_not_decode_stays(topic, value, reason):
    """It would only become a letter again; after a release that can, it goes."""
    with pytest.raises(InputError) as caught:
        Origins(CODECS).restore(letter(topic, value, "undecodable"))
    assert reason == caught.value.reason


def test_a_record_that_its_topic_would_refuse_stays():
    """Refused by the broker it would take its whole transaction along."""
    task = make_task("http://a.test/", source="x" * topics.TASKS.max_message_bytes)
    with pytest.raises(InputError) as caught:
        Origins(CODECS).restore(letter(value=CODECS.encode(topics.TASKS.subject, task)))
    assert "too_large" == caught.value.reason


# ---- the frontier takes it


def lane_output(bench):
    """The lane record that is given out."""
    (output,) = (output for output in bench.tick(10) if output.topic in LANES)
    return output


def test_a_lane_record_that_was_a_dead_letter_is_given_out_anew():
    """From the lane through letter, replay and frontier to the lane again, until it has come back too often."""
    bench = Bench(make_stage())
    bench.task("http://a.test/")
    origins, output = Origins(CODECS), lane_output(bench)
    for replays in (0, 1, 2):
        source = FakeRecord(output.topic, output.value, output.key, 0, replays, AT_MS, output.headers)
        made = read_letter(written(dead_letter(source, ZeroDivisionError("bug"), group="g", stage="fetch")))
        assert replays == made.replays
        bench.outcome(decode(output), "DEAD_LETTER", reason="handler_error")
        assert [] == bench.emitted(after_s=10)
        back = origins.restore(made)
        bench.send(topics.TASKS, back.value, headers=back.headers)
        output = lane_output(bench)
        assert replays + 2 == decode(output)["delivery"]
    assert None is unfit(replace(made, replays=1))
    assert "replayed_twice" == unfit(made).kind


def test_a_task_that_was_given_up_twice_is_still_counted():
    """Neither lane record nor outcome may forget that it came back: its letter is the frontier's own."""
    bench = Bench(make_stage(max_attempts=1))
    bench.task("http://a.test/")
    for replays in (0, 1, 2):
        (dead,) = bench.outcome(decode(lane_output(bench)), "NETWORK_ERROR")
        made = replace(given_up(dead.value), replays=replays_of(dead.headers))
        assert replays == made.replays
        back = Origins(CODECS).restore(made)
        bench.send(topics.TASKS, back.value, headers=back.headers)
