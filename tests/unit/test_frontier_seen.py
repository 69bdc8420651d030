from __future__ import annotations

import pytest

from pipeline.frontier import seen as seen_module
from pipeline.frontier.records import TABLES, Lane, Place, PlaceKind, SeenRow, UrlState
from pipeline.frontier.seen import GrowingFilter, RecentKeys, SeenTable
from tests.fakes import MemoryView

WAITING = Place(PlaceKind.WAITING, Lane.NORMAL, 1, 1)


class CountingView(MemoryView):
    """Counts look-ups."""

    def __init__(self):
        super().__init__(TABLES)
        self.asked = 0

    def get_many(self, table, keys):
        self.asked += len(keys)
        return super().get_many(table, keys)


def key(number, crawl=b"c"):
    """A row key."""
    return crawl + b"\0" + number.to_bytes(16, "big")


def pending(depth=1):
    """The row of a URL that waits."""
    return SeenRow(UrlState.PENDING, depth, place=WAITING)


def test_a_new_url_costs_no_look_up():
    """The filter says "surely new" for nearly all of them."""
    view = CountingView()
    table = SeenTable(view)
    assert [None, None] == table.look_up([key(1), key(2)])
    assert 0 == view.asked


def test_a_false_positive_of_the_filter_is_confirmed_as_new(monkeypatch):
    """A filter that says "maybe" for everything must cost look-ups, never a page."""
    monkeypatch.setattr(GrowingFilter, "__contains__", lambda _self, _key: True)
    view = CountingView()
    table = SeenTable(view)
    table.put(key(1), pending())
    assert [pending(), None] == table.look_up([key(1), key(2)])
    assert 2 == view.asked


def test_what_was_seen_before_the_partition_was_opened_is_seen():
    """The filter is built anew from the table; a key it missed would be fetched twice."""
    view = MemoryView(TABLES)
    first = SeenTable(view)
    for number in range(500):
        first.put(key(number), pending())
    reopened = SeenTable(view)
    assert all(row == pending() for row in reopened.look_up([key(number) for number in range(500)]))


def test_a_known_key_answers_from_memory_from_its_depth_on():
    """A link that is not nearer changes nothing; a nearer one is looked at."""
    table = SeenTable(MemoryView(TABLES))
    table.put(key(1), pending(depth=3))
    assert 3 == table.known_from(key(1))
    table.put(key(1), SeenRow(UrlState.DONE, 3, outcome="FETCHED"))
    assert 0 == table.known_from(key(1))


@pytest.mark.parametrize(("reason", "from_depth"), [("depth", 4), ("scope", 4), ("path_repetition", 0), ("scheme", 0)])
def test_only_some_refusals_are_judged_again(reason, from_depth):
    """What is a trap at depth 4 is one at depth 1 too."""
    table = SeenTable(MemoryView(TABLES))
    table.put(key(1), SeenRow(UrlState.REFUSED, 4, reason=reason))
    assert from_depth == table.known_from(key(1))


def test_the_same_url_in_two_crawls_is_two_urls():
    """Crawls are apart, although the filter sees the URL's key alone."""
    table = SeenTable(MemoryView(TABLES))
    table.put(key(1, b"one"), pending())
    assert [None] == table.look_up([key(1, b"two")])


def test_recent_keys_stay_within_their_room():
    """Known keys are a cache: the oldest go, the used stay."""
    recent = RecentKeys(10)
    for number in range(100):
        recent.put(key(number), number)
        assert 0 == recent.get(key(0))
    assert 20 >= len(recent._young) + len(recent._old)
    assert 0 == recent.get(key(0))
    assert recent.get(key(50)) is None


def test_the_filter_grows_with_the_table(monkeypatch):
    """A filter made for too few keys would say "maybe" to all, and each new URL would cost a look-up."""
    monkeypatch.setattr(seen_module, "FILTER_KEYS", 64)
    grown = GrowingFilter(key(number) for number in range(5_000))
    assert all(key(number) in grown for number in range(5_000))
    false = sum(key(number) in grown for number in range(10_000, 20_000))
    assert 300 > false


def test_a_key_that_is_put_again_takes_no_room_in_the_filter():
    """A URL's row changes several times in its life."""
    grown = GrowingFilter([])
    for _ in range(1_000):
        grown.add(key(1))
    assert seen_module.FILTER_KEYS - 1 == grown._room
