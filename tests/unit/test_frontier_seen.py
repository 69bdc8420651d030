from __future__ import annotations

import pytest

from pipeline.frontier.records import SEEN, TABLES, Lane, Place, PlaceKind, SeenRow, UrlState
from pipeline.frontier.seen import RecentKeys, SeenTable
from tests.fakes import MemoryView

WAITING = Place(PlaceKind.WAITING, Lane.NORMAL, 1, 1)


def key(number, crawl=b"c"):
    """A row key."""
    return crawl + b"\0" + number.to_bytes(16, "big")


def pending(depth=1):
    """The row of a URL that waits."""
    return SeenRow(UrlState.PENDING, depth, place=WAITING)


def test_what_was_seen_before_the_partition_was_opened_is_seen():
    """Memory begins anew; a URL that it does not know would be fetched twice if it were believed."""
    view = MemoryView(TABLES)
    first = SeenTable(view)
    for number in range(500):
        first.put(key(number), pending())
    reopened = SeenTable(view)
    assert all(row == pending() for row in reopened.look_up([key(number) for number in range(500)]))
    assert [None] == reopened.look_up([key(500)])


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


def done(status=200):
    """The row of a URL that was fetched."""
    return SeenRow(UrlState.DONE, 1, 1, outcome="FETCHED", status=status)


def test_a_url_that_ended_before_the_horizon_is_new_again():
    """A site that is crawled for years must not be closed to what it publishes anew under an old address."""
    table = SeenTable(MemoryView(TABLES), horizon_days=90)
    table.turn_to(1_000)
    table.put(key(1), done())
    table.put(key(2), SeenRow(UrlState.REFUSED, 1, reason="scope"))
    table.turn_to(1_090)
    assert 1_000 == table.get(key(1)).day
    assert table.get(key(2)) is not None
    table.turn_to(1_091)
    assert [None, None] == table.look_up([key(1), key(2)])


def test_a_pending_url_is_never_forgotten():
    """It may wait for its time, or for its site, for longer than the horizon; as new it would be claimed twice."""
    table = SeenTable(MemoryView(TABLES), horizon_days=1)
    table.turn_to(1)
    table.put(key(1), pending())
    table.turn_to(60_000)
    assert pending() == table.get(key(1))


def test_without_a_horizon_nothing_is_forgotten():
    """0 means never."""
    table = SeenTable(MemoryView(TABLES))
    table.turn_to(1)
    table.put(key(1), done())
    table.turn_to(60_000)
    assert table.get(key(1)) is not None


def test_known_keys_do_not_outlive_the_day():
    """A URL that is linked from every page is always known from memory; it would never be found too old."""
    table = SeenTable(MemoryView(TABLES), horizon_days=90)
    table.turn_to(1_000)
    table.put(key(1), done())
    assert 0 == table.known_from(key(1))
    table.turn_to(1_001)
    assert (0, None) == (table.known_keys, table.known_from(key(1)))


def test_a_forgotten_key_is_not_known_from_memory():
    """Its row is gone: a link to it must find it new."""
    view = MemoryView(TABLES)
    table = SeenTable(view)
    table.put(key(1), done())
    table.forget(key(1))
    assert (None, None, {}) == (table.known_from(key(1)), table.get(key(1)), view.rows(SEEN))
