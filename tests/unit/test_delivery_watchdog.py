"""The watchdog's comparisons, on a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from faust.types import TP

from pipeline.delivery import watchdog
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.watchdog import IntakeWatch, Watchdog

PLACE, OTHER = TP("in", 0), TP("in", 1)
LIMIT_S = 5.0


def test_a_partition_with_something_to_read_that_does_not_arrive_is_noticed():
    """Assigned and not fetched, a dead agent, a batch dropped at the tail: they all look like this."""
    watch = IntakeWatch()
    for now_s in (0.0, 10.0, 20.0):
        watch.look({PLACE: 5, OTHER: 7}, {PLACE: 9, OTHER: 7}, now_s)
    assert (PLACE, 5, 20.0) == watch.longest(20.0)


@pytest.mark.parametrize(
    ("positions", "ends"),
    [((5, 6, 7), (9, 9, 9)), ((5, 5, 5), (5, 5, 5)), ((5, 5, 9), (9, 9, 9))],
    ids=["it moves", "it is at its end", "it has caught up"],
)
def test_a_partition_that_is_read_gives_no_cause(positions, ends):
    """An idle partition least of all."""
    watch = IntakeWatch()
    for number, (position, end) in enumerate(zip(positions, ends, strict=True)):
        watch.look({PLACE: position}, {PLACE: end}, 10.0 * number)
    assert None is watch.longest(20.0)


def test_ends_are_asked_for_only_where_nothing_has_moved():
    """Under load that is nowhere: each question is a request to the broker."""
    watch = IntakeWatch()
    assert [] == watch.unmoved({PLACE: 5, OTHER: 7})
    watch.look({PLACE: 5, OTHER: 7}, {}, 0.0)
    assert [OTHER] == watch.unmoved({PLACE: 6, OTHER: 7})


def test_a_partition_that_went_and_came_back_begins_anew():
    """So does everything when the cluster could not be asked."""
    watch = IntakeWatch()
    watch.look({PLACE: 5}, {PLACE: 9}, 0.0)
    watch.look({}, {}, 10.0)
    watch.look({PLACE: 5}, {PLACE: 9}, 20.0)
    assert None is watch.longest(20.0)
    watch.look({PLACE: 5}, {PLACE: 9}, 30.0)
    watch.clear()
    assert None is watch.longest(40.0)


def test_a_complaint_that_lasts_ends_the_process(monkeypatch):
    """From a thread, since a stuck event loop answers nobody."""
    ended = threading.Event()
    said = []

    def exit_now(message, code):
        said.append((message, code))
        ended.set()
        dog.stop()

    monkeypatch.setattr(watchdog, "exit_now", exit_now)
    monkeypatch.setattr(watchdog, "LOOK_S", 0.001)
    dog = Watchdog(lambda: "no commit for 75 s", 0.0)
    dog.start()
    assert ended.wait(LIMIT_S)
    assert ("this worker ends, starting it again is the cure: no commit for 75 s", ExitCode.BUG) == said[0]
