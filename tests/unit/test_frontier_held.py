from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.frontier.held import Group, HeldTable
from pipeline.frontier.records import TABLES, Lane, Place, PlaceKind, Task
from tests.fakes import MemoryView

BUDGET = Group(PlaceKind.HELD_BUDGET, "c")


class WatchedView(MemoryView):
    """Notes where iterations start."""

    def __init__(self):
        super().__init__(TABLES)
        self.starts = []

    def items(self, table, prefix=b"", start=b""):
        self.starts.append(start)
        return super().items(table, prefix, start)


def task(number):
    """A task of the crawl."""
    return Task("c", f"http://a.test/{number}", b"%16d" % number, "a.test", 3, 0, "", 0, 0)


def place(due_ms, sequence):
    """A place among what the crawl's budget holds."""
    return Place(PlaceKind.HELD_BUDGET, Lane.NORMAL, due_ms, sequence)


def test_what_was_let_go_is_not_stepped_over_again():
    """A budget lets go of twenty tasks at a time: with millions held, each time would cost more than the one before."""
    view = WatchedView()
    held = HeldTable(view)
    for number in range(6):
        held.put(task(number), place(number, number))
    for number in (0, 1):
        assert [place(number, number)] == [row[0] for row in held.first(BUDGET, 1)]
        held.remove(task(number), place(number, number))
    held.first(BUDGET, 1)
    first, second, third = view.starts[-3:]
    assert first < second < third


STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.just("take"), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("reopen"), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_held_tasks_come_in_order_whatever_was_put_before_them(steps):
    """One that is due earlier than all that was let go must not be overlooked."""
    view = MemoryView(TABLES)
    held, model = HeldTable(view), {}
    for number, (step, value) in enumerate(steps):
        if step == "put":
            model[place(value, number)] = number
            held.put(task(number), place(value, number))
        elif step == "take":
            expected = sorted(model)[:value]
            assert expected == [row[0] for row in held.first(BUDGET, value)]
            for where in expected:
                held.remove(task(model.pop(where)), where)
        elif step == "remove" and model:
            where = sorted(model)[value % len(model)]
            held.remove(task(model.pop(where)), where)
        elif step == "reopen":
            held = HeldTable(view)
    assert sorted(model) == [row[0] for row in held.first(BUDGET, 100)]
    assert bool(model) == (BUDGET in held.groups)
