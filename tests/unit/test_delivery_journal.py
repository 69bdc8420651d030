from __future__ import annotations

import pytest
from faust.types import TP

from pipeline.delivery.journal import InFlightJournal

SLOTS = 4
PLACE = TP("topic", 0)


@pytest.fixture
def crash(tmp_path):
    """Open the journal as the next start of the process finds it; nothing is closed in order."""
    return lambda: InFlightJournal(tmp_path / "worker" / "in-flight", SLOTS)


def test_what_was_in_flight_in_a_crash_is_a_suspect(crash):
    """It may be what brought the process down."""
    journal = crash()
    journal.begin(PLACE, 7)
    journal.end(PLACE, 8, journal.begin(PLACE, 8))
    journal = crash()
    assert (1, 1, 0) == (journal.suspects, journal.crashes(PLACE, 7), journal.crashes(PLACE, 8))


def test_crashes_are_counted_in_a_row(crash):
    """A record that was in flight in every one of them is the culprit, one that was committed in between is not."""
    for _ in range(3):
        journal = crash()
        journal.begin(PLACE, 7)
        slot = journal.begin(PLACE, 6)
    assert (2, 2) == (journal.crashes(PLACE, 7), journal.crashes(PLACE, 6))
    journal.end(PLACE, 6, slot)
    journal.settled(PLACE, 7)
    journal = crash()
    journal.begin(PLACE, 6)
    journal = crash()
    assert (3, 1) == (journal.crashes(PLACE, 7), journal.crashes(PLACE, 6))


def test_a_count_outlives_a_result_that_was_not_committed(crash):
    """Else two records that crash their worker would bring each other back for ever, just before they are given up."""
    crash().begin(PLACE, 7)
    journal = crash()
    journal.end(PLACE, 7, journal.begin(PLACE, 7))
    assert 1 == crash().crashes(PLACE, 7)


def test_a_suspect_that_was_not_begun_again_is_not_counted_again(crash):
    """It waits for its turn; a crash without it says nothing of it."""
    crash().begin(PLACE, 7)
    crash()
    assert 1 == crash().crashes(PLACE, 7)


def test_suspects_that_somebody_else_has_finished_are_forgotten(crash):
    """The committed offset has passed them."""
    journal = crash()
    journal.begin(PLACE, 7)
    journal.begin(PLACE, 9)
    journal.begin(TP("topic", 1), 7)
    journal = crash()
    journal.settled(PLACE, 8)
    assert (0, 1) == (journal.crashes(PLACE, 7), journal.crashes(PLACE, 9))
    assert 1 == journal.crashes(TP("topic", 1), 7)


def test_there_is_always_room_for_what_is_in_flight(crash):
    """Suspects of partitions that have moved away are never settled here; they must not stop the worker."""
    for number in range(10):
        journal = crash()
        slots = [journal.begin(TP("topic", number), offset) for offset in range(SLOTS)]
        assert SLOTS == len(set(slots))


def test_a_file_of_another_size_is_started_anew(crash, tmp_path):
    """Another number of slots, or no journal of ours: losing it loses the count, nothing else."""
    crash().begin(PLACE, 7)
    assert 0 == InFlightJournal(tmp_path / "worker" / "in-flight", SLOTS + 1).suspects
