from __future__ import annotations

import pytest

from pipeline.frontier import expiry as expiry_module
from pipeline.frontier.days import DAY_MS
from pipeline.frontier.expiry import STEP_MS, Expiry
from pipeline.frontier.records import META, SEEN, TABLES, Lane, Place, PlaceKind, SeenRow, UrlState
from pipeline.frontier.seen import SeenTable
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView
from tests.fakes import MemoryView
from tests.frontier_world import Bench, make_stage

HORIZON_DAYS = 90
BEGIN = 20_000
"""Day on which the rows end."""
LATER = BEGIN + HORIZON_DAYS + 1
"""First day on which they are too old."""


@pytest.fixture(params=["memory", "rocksdb"])
def view(request, tmp_path):
    """The fake and the real view: expiry must not tell them apart."""
    if request.param == "memory":
        yield MemoryView(TABLES)
        return
    store = PartitionStore(tmp_path / "0", TABLES)
    yield StagedView(store, TABLES)
    store.close()


@pytest.fixture(autouse=True)
def _few_rows_a_step(monkeypatch):
    monkeypatch.setattr(expiry_module, "STEP_ROWS", 10)


def key(number):
    """A row key."""
    return b"c\0" + number.to_bytes(16, "big")


def filled(view, horizon_days=HORIZON_DAYS):
    """A seen table whose first look was taken on the day its 25 rows ended; every fifth is pending."""
    seen = SeenTable(view, horizon_days)
    expiry = Expiry(view, seen)
    seen.turn_to(BEGIN)
    expiry.run(BEGIN * DAY_MS)
    for number in range(25):
        row = SeenRow(UrlState.DONE, 0, 1, outcome="FETCHED")
        if number % 5 == 0:
            row = SeenRow(UrlState.PENDING, 0, place=Place(PlaceKind.WAITING, Lane.NORMAL, 1, number))
        seen.put(key(number), row)
    return seen, expiry


def run_due(seen, expiry, until_ms):
    """Run every step that is due until a moment: what each forgot."""
    forgotten = []
    while (due_ms := expiry.due_ms()) is not None and due_ms <= until_ms:
        seen.turn_to(due_ms // DAY_MS)
        forgotten.append(expiry.run(due_ms))
    return forgotten


def left(view):
    """Numbers of the rows that are there."""
    return [int.from_bytes(row_key[2:], "big") for row_key, _ in view.items(SEEN)]


def test_what_ended_before_the_horizon_is_forgotten_in_steps_and_what_is_pending_stays(view):
    """A step is bounded, so that no commit waits for it; a pending URL would be claimed twice."""
    seen, expiry = filled(view)
    run_due(seen, expiry, LATER * DAY_MS - 1)
    assert 25 == len(left(view))
    assert [8, 8, 4] == run_due(seen, expiry, (LATER + 1) * DAY_MS - 1)
    assert [0, 5, 10, 15, 20] == left(view)


def test_steps_of_a_pass_are_apart_and_passes_are_a_day_apart(view):
    """The table is never looked through faster than it must be."""
    seen, expiry = filled(view)
    assert (BEGIN + 1) * DAY_MS == expiry.due_ms()
    moments = []
    while expiry.due_ms() < (BEGIN + 3) * DAY_MS:
        moments.append(expiry.due_ms())
        seen.turn_to(moments[-1] // DAY_MS)
        expiry.run(moments[-1])
    first, second = (BEGIN + 1) * DAY_MS, (BEGIN + 2) * DAY_MS
    steps = (0, STEP_MS, 2 * STEP_MS)
    assert [start + step for start in (first, second) for step in steps] == moments


def test_a_pass_goes_on_where_a_restart_has_cut_it(view):
    """Begun anew at each restart it would never come to the end of a large table."""
    seen, expiry = filled(view)
    now_ms = LATER * DAY_MS
    seen.turn_to(LATER)
    assert 8 == expiry.run(now_ms)
    reopened = SeenTable(view, HORIZON_DAYS)
    expiry = Expiry(view, reopened)
    reopened.turn_to(LATER)
    assert 8 == expiry.run(now_ms + STEP_MS)
    assert 4 == expiry.run(now_ms + 2 * STEP_MS)
    assert (LATER + 1) * DAY_MS == expiry.due_ms()


def test_a_call_between_steps_does_nothing(view):
    """Other work that is due calls it many times a second."""
    seen, expiry = filled(view)
    seen.turn_to(LATER)
    expiry.run(LATER * DAY_MS)
    assert 0 == expiry.run(LATER * DAY_MS + STEP_MS - 1)
    assert 17 == len(left(view))


def test_without_a_horizon_nothing_is_looked_through(view):
    """0 means never: no wake-ups, no rows."""
    seen, expiry = filled(view, horizon_days=0)
    seen.turn_to(60_000)
    assert (0, None) == (expiry.run(60_000 * DAY_MS), expiry.due_ms())
    assert 25 == len(left(view))
    assert [] == list(view.items(META))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_page_is_fetched_again_when_it_is_found_after_the_horizon(reopened):
    """The whole way, by links alone, whether a restart lies between or not; what waits is given out once."""
    bench = Bench(make_stage(delay_s=0, seen_horizon_s=2 * 86_400))
    url = "http://a.test/1"
    bench.links([url])
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    for days in (1, 1):
        bench.now += days * 86_400
        if reopened:
            bench.reopen()
        bench.links([url])
        assert [] == bench.urls()
    bench.now += 86_400
    bench.links([url])
    assert [url] == bench.urls()
    assert 1 == len(bench.view.rows(SEEN))


def test_urls_that_nobody_finds_again_are_counted_when_they_are_forgotten():
    """An operator who sees the table shrink must see why."""
    bench = Bench(make_stage(delay_s=0, seen_horizon_s=86_400))
    bench.links(["http://a.test/1", "http://b.test/1"])
    for lane in bench.emitted():
        bench.outcome(lane, "FETCHED")
    for _ in range(3):
        bench.now += 86_400
        bench.tick()
    assert 2 == bench.stage.counters["urls_forgotten"]
    assert {} == bench.view.rows(SEEN)
