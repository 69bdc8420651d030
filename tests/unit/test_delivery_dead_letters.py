from __future__ import annotations

import uuid
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.delivery.api import ANSWERED_HEADER
from pipeline.delivery.dead_letters import (
    MAX_HEADER_BYTES,
    REASONS,
    Breaker,
    cut,
    dead_letter,
    dead_letter_id,
    reason_of,
)
from pipeline.delivery.record_size import header_bytes
from pipeline.errors import InputError

WRITTEN = (
    "dlq-reason", "dlq-error", "dlq-message", "dlq-stage", "dlq-version", "dlq-id", "dlq-origin-topic",
    "dlq-origin-partition", "dlq-origin-offset", "dlq-origin-timestamp", "dlq-attempts", "dlq-replays",
)  # fmt: skip


class Record(NamedTuple):
    """What was read, with every field defaulted."""

    topic: str = "crawl.tasks.v1"
    partition: int = 4
    offset: int = 17
    timestamp: int = 1_700_000_000_123
    key: bytes | None = b"a.example"
    value: bytes | None = b"\x00\x00\xff"
    headers: tuple = ()


def letter(record=None, error=None, **options):
    """The dead letter of a record, with every argument defaulted."""
    given_options = {"group": "headrace-frontier", "stage": "frontier"} | options
    return dead_letter(record or Record(), error or InputError("invalid_task", "no URL", "url"), **given_options)


HEADERS = st.lists(
    st.tuples(
        st.one_of(st.text(st.characters(codec="utf-8"), max_size=40), st.sampled_from(WRITTEN), st.just("trace")),
        st.one_of(st.none(), st.binary(max_size=3_000)),
    ),
    max_size=12,
).map(tuple)


@given(st.one_of(st.none(), st.binary(max_size=100)), st.one_of(st.none(), st.binary(max_size=100)), HEADERS)
def test_key_and_value_go_on_untouched(key, value, headers):
    """Only the source bytes can be replayed, and only they show what the sender did."""
    made = letter(Record(key=key, value=value, headers=headers))
    assert (key, value) == (made.key, made.value)
    assert ("crawl.tasks.v1-dlq", 4) == (made.topic, made.partition)


@given(HEADERS, st.text(max_size=5_000))
def test_each_header_of_ours_is_written_once_and_all_fit_in_8_kib(headers, message):
    """A record that goes round through replays must not grow with each turn until nothing takes it."""
    made = letter(Record(headers=headers), ValueError(message))
    names = [name for name, _ in made.headers if name.startswith("dlq-")]
    assert [*WRITTEN, *names[len(WRITTEN) :]] == names
    assert sum(header_bytes(*header) for header in made.headers) <= MAX_HEADER_BYTES
    assert all(isinstance(value, bytes) for _, value in made.headers)


def test_the_headers_say_what_happened():
    """What people and `headrace dlq` sort by."""
    headers = dict(letter(attempts=2).headers)
    expected = {
        "dlq-reason": b"invalid_task",
        "dlq-error": b"InputError",
        "dlq-message": b"url: no URL",
        "dlq-stage": b"frontier",
        "dlq-origin-topic": b"crawl.tasks.v1",
        "dlq-origin-partition": b"4",
        "dlq-origin-offset": b"17",
        "dlq-origin-timestamp": b"1700000000123",
        "dlq-attempts": b"2",
        "dlq-replays": b"0",
    }
    assert expected == {name: headers[name] for name in expected}


def test_headers_of_the_source_travel_along_while_there_is_room():
    """A trace id leads to the sender; a header that is larger than the room is left out, not the letter."""
    source = (("trace", b"abc"), ("huge", bytes(MAX_HEADER_BYTES)), ("last", b"1"))
    made = letter(Record(headers=source)).headers
    assert [("trace", b"abc"), ("last", b"1")] == [row for row in made if not row[0].startswith("dlq-")]
    assert ("dlq-headers-left-out", b"1") == made[-1]


def test_headers_count_with_their_lengths():
    """Thousands of headers of one letter take three times their letters."""
    made = letter(Record(headers=tuple(("h", b"") for _ in range(7_800)))).headers
    assert sum(header_bytes(*header) for header in made) <= MAX_HEADER_BYTES
    assert 7_800 == sum(name == "h" for name, _ in made) + int(made[-1][1])


def test_the_header_that_keeps_a_page_from_being_counted_twice_has_room_before_others():
    """It stands last where the page came back from the dead letters; others may be left out, this one may not."""
    source = (*((f"trace-{number}", bytes(500)) for number in range(40)), (ANSWERED_HEADER, b"1"))
    assert (ANSWERED_HEADER, b"1") in letter(Record(headers=source)).headers


def test_a_message_with_half_a_character_is_written():
    """JSON may carry lone surrogates into a message; the letter that tells of it must not fail for them."""
    assert b"? is no host" == dict(letter(error=ValueError("\ud800 is no host")).headers)["dlq-message"]


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(1, 3_000))
def test_a_letter_that_no_topic_takes_is_cut_and_says_so(key_bytes, value_bytes, excess_bytes):
    """A record may be larger unpacked than any topic takes: a cut letter is better than a worker that can't pass it."""
    whole = letter(Record(key=bytes(key_bytes), value=bytes(value_bytes)))
    made = cut(whole, excess_bytes)
    sizes = [len(row.key) + len(row.value) + sum(len(n) + len(v) for n, v in row.headers) for row in (whole, made)]
    assert sizes[1] <= sizes[0] - excess_bytes or (b"", b"") == (made.key, made.value)
    assert whole.headers == made.headers[:-1]
    missing = key_bytes + value_bytes - len(made.key) - len(made.value)
    assert ("dlq-cut", str(missing).encode()) == made.headers[-1]


def test_the_id_is_the_same_however_often_the_letter_is_written():
    """Repeats after an abort or by a zombie are told apart from new letters by it."""
    same = dead_letter_id("g", "t", 1, 2)
    assert same == dead_letter_id("g", "t", 1, 2)
    assert 5 == uuid.UUID(same).version
    assert 5 == len({same, *(dead_letter_id(*place) for place in OTHER_PLACES)})


OTHER_PLACES = [("h", "t", 1, 2), ("g", "u", 1, 2), ("g", "t", 12, 2), ("g", "t", 1, 3)]


def test_the_id_never_changes_from_release_to_release():
    """Letters written by an older version keep their names."""
    assert "d746e81e-bfbf-567c-bd12-81ed882f8fa1" == dead_letter_id("headrace-fetch", "crawl.tasks.v1", 0, 0)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), b"0"),
        ((("dlq-replays", b"2"),), b"2"),
        ((("dlq-replays", b"many"),), b"0"),
        ((("dlq-replays", None),), b"0"),
        ((("dlq-replays", b"9" * 9_000),), b"0"),
    ],
)
def test_the_count_of_replays_is_kept(headers, expected):
    """Replay refuses what was replayed twice; a count that is lost would let it circle for ever."""
    assert expected == dict(letter(Record(headers=headers)).headers)["dlq-replays"]


def test_reasons_are_a_closed_list():
    """Alerts and filters name them: an error that brings none of them, or that nobody foresaw, gets a general one."""
    assert all(reason == reason_of(InputError(reason, "")) for reason in REASONS)
    assert "policy" == reason_of(InputError("made up", ""))
    assert "handler_error" == reason_of(ZeroDivisionError())


# ---- the breaker


def breaker_after(outcomes, share=0.2, records=200):
    """After how many records it opened; None for never."""
    breaker = Breaker(share, records)
    for index, dead in enumerate(outcomes):
        breaker.note(dead)
        if breaker.open:
            return index + 1
    return None


def test_dead_letters_in_a_row_stop_the_partition():
    """A bad deploy must not drain the topic into the dead letters."""
    assert 200 == breaker_after([True] * 1_000)


def test_a_share_of_dead_letters_stops_the_partition():
    """Every fourth record is more than a fifth; every fifth is not."""
    assert 200 == breaker_after([True, False, False, False] * 500)
    assert None is breaker_after([True, False, False, False, False] * 500)


def test_a_few_dead_letters_stop_nothing():
    """Before the sample is whole nothing is judged, and old ones are forgotten."""
    assert None is breaker_after([True] * 199)
    assert None is breaker_after(([True] * 40 + [False] * 200) * 5)


def test_a_breaker_that_tolerates_any_share_still_trips_on_a_row():
    """A share of 1 is the operator's wish to tolerate much, not everything."""
    assert 10 == breaker_after([True] * 20, share=1.0, records=10)


def test_an_open_breaker_stays_open():
    """It is closed by people who have looked, through a new start."""
    breaker = Breaker(0.2, 10)
    for dead in [True] * 10 + [False] * 100:
        breaker.note(dead)
    assert breaker.open
