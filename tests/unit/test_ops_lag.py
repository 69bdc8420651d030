from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.delivery.offsets import OffsetMap
from pipeline.ops.lag import PartitionLag, remaining


def lag_of(offset_map):
    """Make a lag of a partition that holds 100 to 150, the last ten of them behind an open transaction."""
    return PartitionLag("group", "topic", 0, 100, 140, 150, offset_map, remaining(100, 140, offset_map))


def test_what_is_finished_beyond_the_commit_is_no_lag():
    """One slow record would otherwise hold the figure of a busy partition up: 7 of 10 are done here."""
    assert 3 + 5 == remaining(0, 25, OffsetMap(10, 20, (10, 12, 19)))


def test_records_that_retention_has_removed_are_left_to_nobody():
    """A group that was away for a week must not be told that it can still read them."""
    assert 5 == remaining(20, 25, OffsetMap(3, 3))
    assert 1 + 5 == remaining(20, 30, OffsetMap(10, 25, (10, 12, 24)))


def test_a_commit_beyond_the_stable_offset_is_no_negative_lag():
    """The two are read one after the other; a sum over partitions must not hide work."""
    assert 0 == remaining(0, 10, OffsetMap(12, 12))


def test_an_unreadable_map_counts_everything_from_the_commit():
    """Nothing is known to be finished; that is what a restart would do again."""
    assert 15 == remaining(0, 25, OffsetMap(10, 10, (), readable=False))


@given(
    start=st.integers(0, 60),
    end=st.integers(0, 60),
    base=st.integers(0, 60),
    states=st.lists(st.booleans(), max_size=60),
)
def test_lag_counts_exactly_the_offsets_that_are_there_and_not_done(start, end, base, states):
    """The definition, taken word by word."""
    unfinished = tuple(base + at for at, done in enumerate(states) if not done)
    offset_map = OffsetMap(base, base + len(states), unfinished)
    left = [offset for offset in range(start, end) if offset >= base and offset not in offset_map.done]
    assert len(left) == remaining(start, end, offset_map)


def test_a_group_that_never_committed_says_so_beside_its_lag():
    """Zero, and everything there is, look like other states unless a figure of their own tells them apart."""
    assert (None, 0, 1, 40) == (
        lag_of(None).committed,
        lag_of(None).finished_ahead,
        lag_of(None).never_committed,
        lag_of(None).lag,
    )
    known = lag_of(OffsetMap(110, 120, (110,)))
    assert (110, 9, 0, 21) == (known.committed, known.finished_ahead, known.never_committed, known.lag)
