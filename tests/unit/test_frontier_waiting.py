from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.frontier.records import TABLES, WAITING, Lane, Place, PlaceKind, Task
from pipeline.frontier.waiting import AGEING_TURNS, Head, Sequence, WaitingQueue
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView
from tests.fakes import MemoryView


@pytest.fixture(params=["memory", "rocksdb"])
def view(request, tmp_path):
    """The fake and the real view: the queue must not tell them apart."""
    if request.param == "memory":
        yield MemoryView(TABLES)
        return
    store = PartitionStore(tmp_path / "0", TABLES)
    yield StagedView(store, TABLES)
    store.close()


class CountingView(MemoryView):
    """Counts the rows that are read."""

    def __init__(self):
        super().__init__(TABLES)
        self.read = 0

    def items(self, *where, **range_):
        for row in super().items(*where, **range_):
            self.read += 1
            yield row


def task(domain, name="x", crawl="c"):
    """A task of a domain."""
    return Task(crawl, f"http://{domain}/{name}", name.encode().rjust(16), domain, 3, 0, "", 0, 0)


def place(due_ms, sequence=0, lane=Lane.NORMAL):
    """A place among waiting tasks."""
    return Place(PlaceKind.WAITING, lane, due_ms, sequence)


def always(_domain, due_ms, *_):
    """Every domain has a slot at any time."""
    return due_ms


def drain(queue, now_ms):
    """Take turns until nothing is ready: (domain, place, lane it goes out on)."""
    turns = []
    while (domain := queue.pop_ready(now_ms)) is not None:
        turn = queue.choose(domain, now_ms)
        if turn is not None:
            turns.append((domain, turn.place, turn.lane))
            queue.remove(domain, turn.place)
        queue.touch(domain)
    return turns


def test_tasks_of_a_domain_go_by_time_and_then_by_arrival(view):
    """A later claim with an earlier time goes first; equal times keep their order."""
    queue = WaitingQueue(view, always)
    for due_ms, sequence in [(5, 0), (3, 1), (3, 2), (9, 3), (1, 4)]:
        queue.put(task("a.test"), place(due_ms, sequence))
    assert 1 == queue.next_ms()
    assert [(1, 4), (3, 1), (3, 2), (5, 0)] == [turn[1][2:] for turn in drain(queue, 8)]
    assert 9 == queue.next_ms()
    assert [] == drain(queue, 8)
    assert 1 == len(drain(queue, 9))
    assert queue.next_ms() is None
    assert "a.test" not in queue


def test_the_better_lane_goes_first(view):
    """An urgent task does not wait behind what is due longer."""
    queue = WaitingQueue(view, always)
    for lane in (Lane.BULK, Lane.NORMAL, Lane.URGENT):
        queue.put(task("a.test"), place(1, lane, lane))
    assert [Lane.URGENT, Lane.NORMAL, Lane.BULK] == [turn[2] for turn in drain(queue, 5)]


def test_no_lane_starves(view):
    """Every eighth turn goes to the lane that was passed over, and an aged bulk task goes out as normal."""
    queue = WaitingQueue(view, always)
    for number in range(30):
        queue.put(task("a.test"), place(1, number, Lane.URGENT))
        queue.put(task("a.test"), place(1, 100 + number, Lane.NORMAL))
        queue.put(task("a.test"), place(1, 200 + number, Lane.BULK))
    turns = drain(queue, 5)
    lanes = [turn[1].lane for turn in turns]
    for lane in (Lane.NORMAL, Lane.BULK):
        first = lanes[: AGEING_TURNS * 3]
        assert 2 <= first.count(lane), f"{lane.name} had no turn"
    aged_bulk = next(turn for turn in turns if turn[1].lane is Lane.BULK)
    assert Lane.NORMAL is aged_bulk[2]
    assert turns[-1][2] is Lane.BULK
    assert 90 == len(turns)


def test_domains_that_are_ready_take_turns(view):
    """A domain with many due tasks must not keep the others waiting until it is empty."""
    queue = WaitingQueue(view, always)
    for number in range(3):
        queue.put(task("big.test"), place(number, number))
    queue.put(task("small.test"), place(5, 9))
    assert ["big.test", "small.test", "big.test", "big.test"] == [turn[0] for turn in drain(queue, 10)]


def test_a_domain_without_a_slot_is_not_offered_until_it_is_touched(view):
    """Slots are freed by outcomes; until then the heap must not spin over the domain."""
    free = {"a.test": False}
    queue = WaitingQueue(view, lambda domain, due_ms, *_: due_ms if free[domain] else None)
    queue.put(task("a.test"), place(1))
    assert queue.next_ms() is None
    assert "a.test" in queue
    free["a.test"] = True
    queue.touch("a.test")
    assert 1 == len(drain(queue, 1))


def test_a_task_in_the_middle_can_be_taken_away(view):
    """A task that is wished again with more haste moves; the heads stay right."""
    queue = WaitingQueue(view, always)
    for sequence in range(3):
        queue.put(task("a.test", str(sequence)), place(1, sequence))
    queue.remove("a.test", place(1, 1))
    queue.remove("a.test", place(1, 0))
    assert b"2" == queue.read("a.test", place(1, 2)).key.strip()
    assert [place(1, 2)] == [turn[1] for turn in drain(queue, 1)]


def test_a_domain_whose_name_begins_like_another_is_its_own(view):
    """Keys are compared by bytes: a.test must not see the rows of a.test.example."""
    queue = WaitingQueue(view, always)
    for domain in ("a.test", "a.test.example", "a"):
        queue.put(task(domain), place(1))
    reopened = WaitingQueue(view, always)
    assert ["a", "a.test", "a.test.example"] == sorted(turn[0] for turn in drain(reopened, 1))


def test_a_million_waiting_urls_cost_a_domain_no_memory_and_a_step_no_scan():
    """Only heads are in memory: opening and each step read a few rows, however many there are."""
    view = CountingView()
    queue = WaitingQueue(view, always)
    for number in range(3_000):
        queue.put(task("a.test"), place(number, number))
    queue.put(task("b.test"), place(1, 1, Lane.BULK))
    assert 0 == view.read
    queue = WaitingQueue(view, always)
    assert 2 == view.read
    queue.remove("a.test", place(0, 0))
    assert 3 == view.read
    assert [Head(1, 1, "c", 0)] == [head for head in queue._domains["a.test"].heads if head]


def test_a_lane_that_is_emptied_looks_at_no_other_rows(tmp_path, monkeypatch):
    """Behind it may stand a million deleted rows of other domains, which the store would step over one by one."""
    store = PartitionStore(tmp_path / "0", TABLES)
    ends = []
    items = store.items
    queue = WaitingQueue(StagedView(store, TABLES), always)
    queue.put(task("a.test"), place(1))
    queue.put(task("b.test"), place(1))
    monkeypatch.setattr(store, "items", lambda *where: ends.append(where[2]) or items(*where))
    queue.remove("a.test", place(1))
    assert [b"a.test\0" + bytes((Lane.NORMAL + 1,))] == ends
    store.close()


def test_the_heap_does_not_grow_with_every_change():
    """Entries that were overtaken are dropped: a domain that is held again and again must not fill memory."""
    moment = [0]
    queue = WaitingQueue(MemoryView(TABLES), lambda *_: moment[0])
    queue.put(task("a.test"), place(1))
    for _ in range(10_000):
        moment[0] += 1
        queue.touch("a.test")
    assert 100 > len(queue._others._heap)
    assert 10_000 == queue.next_ms()


def test_sequence_numbers_rise_over_restarts(view):
    """Two tasks at one place would be one row, and one URL lost."""
    first = Sequence(view)
    used = [first.next() for _ in range(3_000)]
    again = Sequence(view)
    used += [again.next() for _ in range(3)]
    assert sorted(set(used)) == used


STEP = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(0, 20), st.sampled_from(Lane), st.sampled_from("xy")),
    st.tuples(st.just("take"), st.integers(0, 25)),
    st.tuples(st.just("remove"), st.integers(0, 100)),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_the_queue_agrees_with_a_plain_list(steps):
    """Whatever is put, taken, removed or thrown away in between: nothing is lost, doubled or out of turn."""
    view = MemoryView(TABLES)
    queue = WaitingQueue(view, always)
    model: dict[tuple[str, Place], Task] = {}
    for number, step in enumerate(steps):
        if step[0] == "put":
            _, domain, due_ms, lane, crawl = step
            entry = task(domain, str(number), crawl)
            model[domain, place(due_ms, number, lane)] = entry
            queue.put(entry, place(due_ms, number, lane))
        elif step[0] == "take" and (domain := queue.pop_ready(step[1])) is not None:
            turn = queue.choose(domain, step[1])
            assert turn is not None
            same_lane = [p for d, p in model if d == domain and p.lane == turn.place.lane]
            assert turn.place == min(same_lane, key=lambda p: p[2:])
            assert turn.place.due_ms <= step[1]
            assert model.pop((domain, turn.place)) == queue.read(domain, turn.place)
            queue.remove(domain, turn.place)
            queue.touch(domain)
        elif step[0] == "remove" and model:
            domain, where = sorted(model)[step[1] % len(model)]
            del model[domain, where]
            queue.remove(domain, where)
        elif step[0] == "reopen":
            queue = WaitingQueue(view, always)
        waiting = Counter(domain for domain, _ in model)
        assert sum(waiting.values()) == len(view.rows(WAITING))
        assert set(waiting) == set(queue._domains)
        earliest = min((where.due_ms for _, where in model), default=None)
        assert (earliest is None) == (queue.next_ms() is None)
    assert len(model) == len(drain(queue, 100))
