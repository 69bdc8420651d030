"""Seen table: what is known of every URL, exactly.

The table itself is in the state. In front of it, in memory:

- keys known for certain, the most recent ones, each with the depth from which on a link to it changes nothing: this
  answers for nearly every link of a page without a look-up;
- a Bloom filter, which is only believed when it says "surely new". Its "maybe" is confirmed by the table: a
  false positive must not lose a page.

Both are filled only from what the table has. They are derived: opening the partition builds them anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import rbloom

from pipeline.delivery.api import StateView
from pipeline.frontier.records import KEY_BYTES, SEEN, SeenRow, UrlState, pack_seen, unpack_seen

RECENT_KEYS: Final = 100_000
"""Keys in each of the two generations of known keys: about 15 MB per partition when full."""
FILTER_KEYS: Final = 100_000
"""Keys the first Bloom filter is made for."""
FALSE_POSITIVES: Final = 0.001
"""Share of new URLs that cost a look-up for nothing; 14.4 bits a key."""
REOPENING: Final = frozenset({"depth", "scope", "domain_budget", "domain_bytes"})
"""Refusals that are judged again when the URL is found nearer to a start point."""


class SeenTable:
    """Rows of the seen table with what speeds them up.

    Args:
        view: the partition's state.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view
        self._recent = RecentKeys(RECENT_KEYS)
        self._filter = GrowingFilter(key for key, _ in view.items(SEEN))
        self.known_from = self._recent.get
        """Depth from which on a link to the URL of a row key changes nothing; None: look it up."""

    def look_up(self, keys: Sequence[bytes]) -> list[SeenRow | None]:
        """Return the rows of many keys, None for new ones; what is found is remembered."""
        asked = [key for key in keys if key in self._filter]
        if not asked:
            return [None] * len(keys)
        stored = dict(zip(asked, self._view.get_many(SEEN, asked), strict=True))
        rows: list[SeenRow | None] = []
        for key in keys:
            packed = stored.get(key)
            row = None if packed is None else unpack_seen(packed)
            if row is not None:
                self._remember(key, row)
            rows.append(row)
        return rows

    def get(self, key: bytes) -> SeenRow | None:
        """Return the row of one key, None for a new one."""
        return self.look_up((key,))[0]

    def put(self, key: bytes, row: SeenRow) -> None:
        """Write a row."""
        self._view.put(SEEN, key, pack_seen(row))
        self._filter.add(key)
        self._remember(key, row)

    def found_at(self, key: bytes, depth: int) -> None:
        """Note that nothing more comes of finding a known URL at `depth` or deeper."""
        self._recent.put(key, depth)

    def _remember(self, key: bytes, row: SeenRow) -> None:
        nearer_matters = row.state is UrlState.PENDING or (row.state is UrlState.REFUSED and row.reason in REOPENING)
        self._recent.put(key, row.depth if nearer_matters else 0)


class RecentKeys:
    """The most recently used keys with a number each, in two generations: a hit costs no reordering.

    Args:
        capacity: keys per generation; between one and two times as many are kept.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._young: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def get(self, key: bytes) -> int | None:
        """Return the number of a key, None where it is not remembered."""
        number = self._young.get(key)
        if number is None and (number := self._old.pop(key, None)) is not None:
            self.put(key, number)
        return number

    def put(self, key: bytes, number: int) -> None:
        """Remember a key."""
        if len(self._young) >= self._capacity:
            self._old, self._young = self._young, {}
        self._young[key] = number


class GrowingFilter:
    """Bloom filters, the next twice as large as the one before, so that it may hold any number of keys.

    Args:
        keys: the first keys.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._room = 0
        self._size = FILTER_KEYS // 2
        self._filters: list[rbloom.Bloom] = []
        for key in keys:
            self.add(key)

    def __contains__(self, key: bytes) -> bool:
        return any(key in part for part in self._filters)

    def add(self, key: bytes) -> None:
        """Add a key; one that is held already takes no room."""
        if key in self:
            return
        if self._room == 0:
            self._size *= 2
            self._room = self._size
            self._filters.append(rbloom.Bloom(self._size, FALSE_POSITIVES, _hash))
        self._filters[-1].add(key)
        self._room -= 1


def _hash(key: bytes) -> int:
    """The URL key is a hash already. Python's own differs between processes, which rbloom could not save."""
    return int.from_bytes(key[-KEY_BYTES:], "big", signed=True)
