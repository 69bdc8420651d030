from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.delivery.offsets import (
    MAX_METADATA_CHARACTERS,
    MAX_UNFINISHED,
    MAX_WINDOW,
    PREFIX,
    OffsetMap,
    OffsetTracker,
    decode,
    encode,
)

BASES = st.integers(0, 2**62)
NAMES = st.text(min_size=1, max_size=20)


@st.composite
def maps(draw):
    """Any map that keeps the bounds; the base itself may be unfinished."""
    base = draw(BASES)
    length = draw(st.integers(1, MAX_WINDOW))
    relative = draw(st.sets(st.integers(0, length - 1), max_size=40))
    return OffsetMap(base, base + length, tuple(sorted(base + offset for offset in relative)))


def crowded_map(seed: int, base: int = 0) -> OffsetMap:
    """As many unfinished offsets as may be, scattered over the widest window."""
    unfinished = sorted(random.Random(seed).sample(range(MAX_WINDOW), MAX_UNFINISHED))
    return OffsetMap(base, base + MAX_WINDOW, tuple(base + offset for offset in unfinished))


@given(maps(), NAMES, st.integers(0, 1023))
def test_a_map_survives_the_commit(offset_map, topic, partition):
    """What a worker knows when it commits is what its successor starts from."""
    assert offset_map == decode(encode(offset_map, topic, partition), offset_map.base, topic, partition)


@given(maps())
def test_a_nul_behind_the_metadata_is_no_damage(offset_map):
    """The binding adds one; a map that fell for it would cost the work of every restart."""
    assert offset_map == decode(encode(offset_map, "t", 0) + "\0", offset_map.base, "t", 0)


@pytest.mark.parametrize("metadata", [None, "", "\0"])
def test_a_commit_without_metadata_covers_nothing(metadata):
    """Other tools commit without a map; their offset counts, and nothing beyond it is taken as finished."""
    assert OffsetMap(7, 7) == decode(metadata, 7, "t", 0)


def test_nothing_started_beyond_the_base_needs_no_map():
    """An idle partition commits a bare offset, which every tool can read."""
    assert "" == encode(OffsetMap(7, 7), "t", 0)


@given(st.integers(0, 2**32), BASES)
def test_the_most_crowded_map_fits_the_brokers_limit(seed, base):
    """One map that is too long fails the commit of every partition in the call."""
    assert len(encode(crowded_map(seed, base), "t" * 249, 1023)) <= MAX_METADATA_CHARACTERS


def test_the_longest_numbers_that_fit_the_window_fit_the_brokers_limit():
    """The bound is by construction: no pattern of 1,000 offsets in the window needs more characters."""
    wide, narrow = 1 << 14, 1 << 7  # the smallest deltas of three and of two bytes
    deltas = [wide] * 249 + [narrow] * 751
    offsets = [sum(deltas[: index + 1]) for index in range(MAX_UNFINISHED)]
    assert offsets[-1] < MAX_WINDOW
    text = encode(OffsetMap(0, MAX_WINDOW, tuple(offsets)), "t", 0)
    assert len(text) <= 3_023
    assert tuple(offsets) == decode(text, 0, "t", 0).unfinished


@pytest.mark.parametrize(
    "offset_map",
    [
        OffsetMap(0, MAX_WINDOW + 1, (0,)),
        OffsetMap(0, 2_000, tuple(range(MAX_UNFINISHED + 1))),
        OffsetMap(10, 5),
        OffsetMap(10, 20, (12, 11)),
        OffsetMap(10, 20, (12, 12)),
        OffsetMap(10, 20, (10, 10)),
        OffsetMap(10, 20, (9,)),
        OffsetMap(10, 20, (20,)),
        OffsetMap(10, 10, (10,)),
    ],
)
def test_a_map_out_of_bounds_is_not_written(offset_map):
    """Better a worker that stops than a commit that says something else than was meant."""
    with pytest.raises(ValueError):
        encode(offset_map, "t", 0)


@given(maps(), st.data())
def test_a_damaged_map_marks_nothing_as_done(offset_map, data):
    """A damaged map must cost repeated work, never a lost record."""
    text = encode(offset_map, "t", 0)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_.=+ \0é").filter(lambda sign: sign != text[place]))
    read = decode(text[:place] + other + text[place + 1 :], offset_map.base, "t", 0)
    # The spare bits of the last character carry nothing; a change there alone is no damage.
    assert read in (OffsetMap(offset_map.base, offset_map.base, (), readable=False), offset_map)


@given(maps(), st.data())
def test_a_cut_map_marks_nothing_as_done(offset_map, data):
    """Cut anywhere, the rest may not pass for a map of fewer unfinished records."""
    text = encode(offset_map, "t", 0)
    read = decode(text[: data.draw(st.integers(0, len(text) - 1))], offset_map.base, "t", 0)
    assert frozenset() == read.done


@given(maps(), st.integers(1, 1000))
def test_a_map_of_another_place_marks_nothing_as_done(offset_map, distance):
    """An operator who copies or resets commits by hand must not lose records by a map that came along."""
    text, base = encode(offset_map, "topic", 3), offset_map.base
    unreadable = {(), False}
    for read in (
        decode(text, base + distance, "topic", 3),
        decode(text, base, "other", 3),
        decode(text, base, "topic", 3 + distance),
    ):
        assert unreadable == {read.unfinished, read.readable}
        assert read.base == read.end


@pytest.mark.parametrize("metadata", ["cp0.AAAA", "cp2.AAAA", "somebody else's", PREFIX, PREFIX + "AAAA", "CP1.AAAA"])
def test_a_foreign_map_marks_nothing_as_done(metadata):
    """Another consumer's metadata, or another format's, says nothing about our records."""
    assert OffsetMap(40, 40, (), readable=False) == decode(metadata, 40, "t", 0)


@given(st.binary(max_size=3_000))
def test_random_bytes_mark_nothing_as_done(payload):
    """Whatever stands in the metadata is read without an exception."""
    text = PREFIX + base64.urlsafe_b64encode(payload).decode().rstrip("=")
    assert frozenset() == decode(text, 40, "t", 0).done


def test_a_tool_can_tell_how_far_ahead_a_partition_is():
    """Lag that counts finished records would show a backlog that nobody has to work off."""
    offset_map = OffsetMap(10, 20, (10, 15))
    assert 8 == offset_map.finished_ahead
    assert frozenset({11, 12, 13, 14, 16, 17, 18, 19}) == offset_map.done


# ---- bounds of what is started


def test_no_more_than_a_thousand_records_are_unfinished():
    """The 1,001st would make a map that the broker may refuse."""
    tracker = OffsetTracker(OffsetMap(0, 0))
    for offset in range(MAX_UNFINISHED):
        assert tracker.may_start(offset)
        tracker.start(offset)
    assert not tracker.may_start(MAX_UNFINISHED)
    tracker.finish(500)
    assert tracker.may_start(MAX_UNFINISHED)


def test_a_stuck_record_stops_its_partition_only_at_the_window():
    """Four million records may overtake one that hangs; the map has no number for more."""
    tracker = OffsetTracker(OffsetMap(0, 0))
    tracker.start(0)
    assert tracker.may_start(MAX_WINDOW - 1)
    assert not tracker.may_start(MAX_WINDOW)
    tracker.finish(0)
    assert tracker.may_start(MAX_WINDOW)


def test_an_idle_partition_starts_a_record_however_far_away():
    """Retention or aborted records may leave a gap wider than the window; nothing is unfinished, so nothing waits."""
    tracker = OffsetTracker(OffsetMap(10, 12, (10,)))
    assert tracker.may_start(3 * MAX_WINDOW)
    assert tracker.start(3 * MAX_WINDOW)
    assert OffsetMap(3 * MAX_WINDOW, 3 * MAX_WINDOW + 1, (3 * MAX_WINDOW,)) == tracker.snapshot()


def test_a_gap_wider_than_the_window_leaves_a_map_that_can_be_written():
    """Control records behind a record that hangs must not make the map too wide for its format."""
    tracker = OffsetTracker(OffsetMap(0, 0))
    tracker.start(0)
    tracker.start(1)
    tracker.finish(1)
    tracker.skip_to(2 * MAX_WINDOW)
    read = decode(encode(tracker.snapshot(), "t", 0), 0, "t", 0)
    assert (0,) == read.unfinished
    assert 1 < read.end
    tracker.finish(0)
    assert OffsetMap(2 * MAX_WINDOW, 2 * MAX_WINDOW) == tracker.snapshot()


def test_what_was_unfinished_may_be_started_again_however_much_it_is():
    """A restart with a full map must not wait for room that only its own work can make."""
    start = OffsetMap(0, 2_000, tuple(range(0, 2_000, 2)))
    tracker = OffsetTracker(start)
    started = [offset for offset in range(2_000) if tracker.may_start(offset) and tracker.start(offset)]
    assert list(start.unfinished) == started
    assert MAX_UNFINISHED == tracker.in_flight == tracker.unfinished
    assert not tracker.may_start(2_000)


def test_a_record_delivered_twice_is_begun_once():
    """Faust may hand a record over again after a seek."""
    tracker = OffsetTracker(OffsetMap(5, 5))
    assert tracker.start(5)
    assert not tracker.start(5)
    tracker.finish(5)
    assert not tracker.start(5)
    assert not tracker.start(4)


def test_only_what_is_in_flight_can_finish():
    """A second end of one record would be a fault of the runner; it must not pass unseen."""
    tracker = OffsetTracker(OffsetMap(0, 0))
    tracker.start(0)
    tracker.finish(0)
    with pytest.raises(KeyError):
        tracker.finish(0)


def test_control_records_do_not_count_as_lag():
    """A transaction's marker takes an offset; the commit has to pass it."""
    tracker = OffsetTracker(OffsetMap(0, 0))
    tracker.start(0)
    tracker.finish(0)
    tracker.skip_to(2)
    assert OffsetMap(2, 2) == tracker.snapshot()


class AgainstANaiveModel(RuleBasedStateMachine):
    """One partition over many assignments; the model keeps plain sets of offsets and nothing else.

    Restarts come at any time, from what the last commit said: nothing may be lost, nothing published twice.
    """

    def __init__(self):
        super().__init__()
        self.is_record: list[bool] = []
        self.published: set[int] = set()
        self.committed = ("", 0)
        self._assign()

    def _assign(self):
        metadata, base = self.committed
        start = decode(metadata, base, "t", 0)
        assert start.readable
        self.tracker = OffsetTracker(start)
        self.fed = base
        self.in_flight: set[int] = set()
        self.finished: set[int] = set()

    @rule(more=st.lists(st.booleans(), min_size=1, max_size=8))
    def append(self, more):
        """The log grows: True is a record, False an offset without one."""
        self.is_record += more

    @precondition(lambda self: self.fed < len(self.is_record))
    @rule(count=st.integers(1, 6))
    def feed(self, count):
        """What the fetcher gives is begun in order; offsets without a record are passed with their batch."""
        for offset in range(self.fed, min(self.fed + count, len(self.is_record))):
            if self.is_record[offset]:
                assert self.tracker.may_start(offset)
                assert (offset not in self.published) == self.tracker.start(offset)
                if offset not in self.published:
                    self.in_flight.add(offset)
            self.fed = offset + 1
        self.tracker.skip_to(self.fed)

    @precondition(lambda self: self.fed)
    @rule(data=st.data())
    def deliver_again(self, data):
        """An overlap of two fetches."""
        assert not self.tracker.start(data.draw(st.integers(0, self.fed - 1)))

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def finish(self, data):
        offset = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.in_flight.remove(offset)
        self.finished.add(offset)
        self.tracker.finish(offset)

    @rule()
    def commit(self):
        """Outputs of what has finished and the map become visible together."""
        snapshot = self.tracker.snapshot()
        self.committed = encode(snapshot, "t", 0), snapshot.base
        assert not self.finished & self.published
        self.published |= self.finished
        self.finished = set()

    @rule()
    def restart(self):
        """A kill: what was in flight or not committed is gone."""
        self._assign()

    @invariant()
    def nothing_is_passed_that_is_not_finished(self):
        done = self.published | self.finished
        behind = {offset for offset in range(self.tracker.committable) if self.is_record[offset]}
        assert behind <= done

    @invariant()
    def nothing_is_held_back_without_a_reason(self):
        if not self.in_flight:
            assert self.fed <= self.tracker.committable or self.tracker.unfinished
        assert len(self.in_flight) == self.tracker.in_flight

    def teardown(self):
        """In the end everything is worked off, once."""
        self._assign()
        if self.fed < len(self.is_record):
            self.feed(len(self.is_record))
        for offset in sorted(self.in_flight, reverse=True):
            self.tracker.finish(offset)
            self.finished.add(offset)
        self.in_flight.clear()
        self.commit()
        assert {offset for offset, record in enumerate(self.is_record) if record} == self.published
        assert ("", len(self.is_record)) == self.committed


AgainstANaiveModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAgainstANaiveModel = AgainstANaiveModel.TestCase
