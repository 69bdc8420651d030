"""Tails behind open transactions: those that stand still are told from those of a busy partition."""

from __future__ import annotations

from pipeline.ops.uncommitted import StandingTail, Tail, TailWatch

PLACE = ("crawl.pages.v1", 3)


def stands_s(looks, now_s):
    """Return for how long the tail stands at `now_s` after looks of time and tail; None where it is absent."""
    watch = TailWatch()
    for at_s, tail in looks:
        watch.look({PLACE: tail} if tail else {}, at_s)
    return next((tail.stands_s for tail in watch.standing(now_s)), None)


def test_a_tail_that_does_not_move_stands_since_it_was_first_seen():
    """Whatever is written behind a hanging transaction only makes the tail longer."""
    assert 30.0 == stands_s([(10.0, Tail(5, 1)), (20.0, Tail(5, 4)), (30.0, Tail(5, 9))], 40.0)


def test_a_busy_partition_does_not_stand():
    """Some transaction is open whenever one looks; its readers get on."""
    assert 2.0 == stands_s([(10.0, Tail(5, 1)), (12.0, Tail(8, 1)), (14.0, Tail(11, 2))], 16.0)


def test_a_partition_without_a_tail_does_not_stand_however_long_it_is_idle():
    """An alert in a quiet night would be one too many."""
    assert 0.0 == stands_s([(10.0, Tail(5, 0)), (900.0, Tail(5, 0))], 1_000.0)
    assert 3.0 == stands_s([(10.0, Tail(5, 0)), (900.0, Tail(5, 2))], 903.0)


def test_a_partition_that_could_not_be_read_is_absent_and_begins_anew():
    """No figure is better than one that rests on a look of long ago."""
    assert None is stands_s([(10.0, Tail(5, 1)), (20.0, None)], 30.0)
    assert 5.0 == stands_s([(10.0, Tail(5, 1)), (20.0, None), (30.0, Tail(5, 1))], 35.0)


def test_each_tail_tells_its_place_and_length():
    """These are the labels and the value of the series."""
    watch = TailWatch()
    watch.look({PLACE: Tail(5, 2)}, 1.0)
    assert [StandingTail("crawl.pages.v1", 3, 2, 0.5)] == watch.standing(1.5)
