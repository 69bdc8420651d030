"""Seen table: what is known of every URL, exactly.

The table itself is in the state. In front of it, in memory, are keys known for certain, the most recent ones, each with
the depth from which on a link to it changes nothing: this answers for nearly every link of a page without a look-up. It
is filled only from what the table has, and derived: opening the partition begins it anew.

A key that is new costs a look-up that reads nothing: the state's own Bloom filters say "surely new", and where they say
"maybe" it looks, so that a false positive never loses a page (`pipeline/state/memory.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pipeline.delivery.api import StateView
from pipeline.frontier.records import SEEN, SeenRow, UrlState, pack_seen, unpack_seen

RECENT_KEYS: Final = 100_000
"""Keys in each of the two generations of known keys: about 15 MB per partition when full."""
REOPENING: Final = frozenset({"depth", "scope", "domain_budget", "domain_bytes"})
"""Refusals that are judged again when the URL is found nearer to a start point."""


class SeenTable:
    """Rows of the seen table with what speeds them up.

    A URL that was done or refused longer ago than the horizon is new again, whether its row is still there or not
    (`pipeline/frontier/expiry.py` takes it away in time). One that is pending never is.

    Args:
        view: the partition's state.
        horizon_days: days after which a URL is forgotten; 0 for never.

    Attributes:
        horizon_days: the same.
    """

    def __init__(self, view: StateView, horizon_days: int = 0) -> None:
        self._view = view
        self.horizon_days = horizon_days
        self._today = 0
        self._recent = RecentKeys(RECENT_KEYS)
        self.known_from = self._recent.get
        """Depth from which on a link to the URL of a row key changes nothing; None: look it up."""

    @property
    def today(self) -> int:
        """UTC day of the clock, days since the epoch."""
        return self._today

    @property
    def oldest_day(self) -> int:
        """UTC day, days since the epoch, before which nothing is known any more; 0 or less where all is."""
        return self._today - self.horizon_days if self.horizon_days else 0

    @property
    def known_keys(self) -> int:
        """How many keys are in memory."""
        return len(self._recent)

    def turn_to(self, today: int) -> None:
        """Note the UTC day, days since the epoch: what ends now ends on it, and what is too old is looked up anew."""
        if today != self._today:
            self._today = today
            self._recent.clear()

    def look_up(self, keys: Sequence[bytes]) -> list[SeenRow | None]:
        """Return the rows of many keys, None for new ones; what is found is remembered."""
        oldest_day = self.oldest_day
        rows: list[SeenRow | None] = []
        for key, packed in zip(keys, self._view.get_many(SEEN, keys), strict=True):
            row = None if packed is None else unpack_seen(packed)
            if row is not None and row.state is not UrlState.PENDING and row.day < oldest_day:
                row = None
            if row is not None:
                self._remember(key, row)
            rows.append(row)
        return rows

    def get(self, key: bytes) -> SeenRow | None:
        """Return the row of one key, None for a new one."""
        return self.look_up((key,))[0]

    def put(self, key: bytes, row: SeenRow) -> None:
        """Write a row; one that is done or refused is so from today."""
        if row.state is not UrlState.PENDING:
            row.day = self._today
        self._view.put(SEEN, key, pack_seen(row))
        self._remember(key, row)

    def forget(self, key: bytes) -> None:
        """Take a row away."""
        self._view.delete(SEEN, key)
        self._recent.remove(key)

    def found_at(self, key: bytes, depth: int) -> None:
        """Note that nothing more comes of finding a known URL at `depth` or deeper."""
        known_from = self._recent.get(key)
        if known_from is None or depth < known_from:
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

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

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

    def remove(self, key: bytes) -> None:
        """Forget a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget all keys."""
        self._young.clear()
        self._old.clear()
