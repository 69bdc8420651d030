from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import BugError
from pipeline.frontier.handling import PLAIN, Handling
from pipeline.frontier.records import (
    Ask,
    GivenRow,
    Lane,
    OutRow,
    Pace,
    Place,
    PlaceKind,
    SeenRow,
    Task,
    UrlState,
    UsageRow,
    day_of_seen,
    lane_of,
    pace_of_task,
    pack_given,
    pack_out,
    pack_pace,
    pack_seen,
    pack_task,
    pack_usage,
    place_from_key,
    place_key,
    unpack_given,
    unpack_out,
    unpack_pace,
    unpack_seen,
    unpack_task,
    unpack_usage,
)

TEXT = st.text(max_size=30)
MOMENT = st.integers(0, 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1)
PLACE = st.builds(Place, st.sampled_from(PlaceKind), st.sampled_from(Lane), MOMENT, MOMENT)
HANDLING = st.one_of(
    st.just(PLAIN),
    st.builds(Handling, TEXT, st.none() | COUNT, MOMENT, COUNT, st.booleans(), TEXT),
)
TASK = st.builds(
    Task,
    crawl=TEXT,
    url=TEXT,
    key=st.binary(min_size=16, max_size=16),
    domain=TEXT,
    priority=st.integers(1, 5),
    depth=COUNT,
    source=TEXT,
    submitted_at_ms=MOMENT,
    born_ms=MOMENT,
    timeout_ms=COUNT,
    redirects=st.lists(TEXT, max_size=10).map(tuple),
    attempts=COUNT,
    deliveries=COUNT,
    replays=COUNT,
    concurrency=st.integers(0, 100),
    handling=HANDLING,
)
SEEN = st.one_of(
    st.builds(SeenRow, st.just(UrlState.PENDING), COUNT, COUNT, PLACE),
    st.builds(
        SeenRow,
        st.just(UrlState.DONE),
        COUNT,
        COUNT,
        outcome=st.sampled_from(["FETCHED", "HTTP_ERROR"]),
        status=st.integers(0, 999),
        reason=TEXT,
        day=st.integers(0, 65_535),
    ),
    st.builds(SeenRow, st.just(UrlState.REFUSED), COUNT, COUNT, reason=TEXT, day=st.integers(0, 65_535)),
)
PACE = st.builds(
    Pace,
    *(MOMENT, MOMENT, COUNT, MOMENT, st.lists(st.tuples(TEXT, MOMENT), max_size=5).map(tuple)),
    *(COUNT, COUNT, MOMENT, MOMENT, st.lists(st.tuples(MOMENT, MOMENT), max_size=8).map(tuple), st.text(max_size=63)),
)
ASK = st.builds(Ask, COUNT, MOMENT, MOMENT, COUNT)
GIVEN = st.builds(GivenRow, MOMENT, MOMENT, COUNT, MOMENT, st.lists(ASK, max_size=5).map(tuple))
USAGE = st.builds(UsageRow, MOMENT, MOMENT, MOMENT, COUNT, MOMENT)
OUT = st.builds(OutRow, TASK, MOMENT, st.sampled_from(Lane), st.booleans(), st.booleans(), COUNT)


@given(TASK)
def test_a_task_survives_its_packing(task):
    """What a restart reads back is what was claimed, field by field."""
    assert task == unpack_task(pack_task(task))
    assert (task.crawl, task.concurrency) == pace_of_task(pack_task(task))


@given(SEEN)
def test_a_seen_row_survives_its_packing(row):
    """The seen table is the exact truth about a URL."""
    assert row == unpack_seen(pack_seen(row))
    assert (None if row.state is UrlState.PENDING else row.day) == day_of_seen(pack_seen(row))


@given(OUT, PACE, GIVEN, USAGE)
def test_rows_of_what_is_out_and_of_budgets_survive_their_packing(out, pace, given_away, usage):
    """Slots, holds and budgets must be the same after a restart."""
    assert out == unpack_out(pack_out(out))
    assert pace == unpack_pace(pack_pace(pace))
    assert given_away == unpack_given(pack_given(given_away))
    assert usage == unpack_usage(pack_usage(usage))


@given(PLACE, PLACE)
def test_the_order_of_keys_is_the_order_of_lanes_times_and_sequence(one, other):
    """The queue is read from the store in key order: a wrong byte order would let late tasks pass early ones."""
    assert (one[1:] < other[1:]) == (place_key(one) < place_key(other))
    assert one == place_from_key(one.kind, b"prefix\0" + place_key(one))


@pytest.mark.parametrize(
    ("priority", "lane"), [(1, Lane.URGENT), (2, Lane.NORMAL), (3, Lane.NORMAL), (4, Lane.BULK), (5, Lane.BULK)]
)
def test_a_priority_has_its_lane(priority, lane):
    """Priority 1 is urgent, 2 and 3 are normal, 4 and 5 bulk."""
    assert lane == lane_of(priority)


def test_a_row_of_another_packing_is_not_guessed_at():
    """A worker of an older release must stop at a newer one's rows instead of misreading them."""
    row = bytes((99,)) + pack_usage(UsageRow(1, 1))[1:]
    with pytest.raises(BugError, match="packing 99"):
        unpack_usage(row)
