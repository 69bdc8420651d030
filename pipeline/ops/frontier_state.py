"""The frontier's state of one URL or domain, read from its changelog: for the time when no worker answers."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pipeline.contracts.codec import Codecs
from pipeline.frontier.raw_records import may_be_of_domain
from pipeline.frontier.records import (
    CRAWLS,
    DOMAINS,
    HELD,
    OUT,
    RECURRING,
    SEEN,
    SEPARATOR,
    TABLES,
    USAGE,
    WAITING,
    PlaceKind,
)
from pipeline.state.changelog import Changelog
from pipeline.state.contract_rows import ContractRows
from pipeline.topics import DAY_MS, FRONTIER_STATE

MAX_ROWS: Final = 100_000
"""Rows kept at most, some 20 MB."""

Keep = Callable[[str, bytes, bytes], bool]
"""(table, key, row) → whether the row is wanted."""


class KeptRows:
    """The rows that are wanted of a changelog, in memory; to be read as a `StateView`.

    Args:
        keep: which.

    Attributes:
        overflowed: whether there were more than `MAX_ROWS`.
    """

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._rows: dict[str, dict[bytes, bytes]] = {}
        self._sorted: dict[str, list[bytes]] = {}
        self._count = 0
        self.applied, self.written_at, self.changed = 0, 0.0, 0
        self.overflowed = False

    # ---- as a store that is restored

    tables: Final = TABLES

    def apply(
        self, changes: Mapping[tuple[str, bytes], bytes | None], applied: int, now: float, changed: int | None = None
    ) -> None:
        """Keep what is wanted of some changes."""
        del changed
        self._sorted.clear()
        for (table, key), row in changes.items():
            rows = self._rows.setdefault(table, {})
            self._count -= rows.pop(key, None) is not None
            if row is None or not self._keep(table, key, row):
                continue
            if self._count >= MAX_ROWS:
                self.overflowed = True
                continue
            rows[key] = row
            self._count += 1
        self.applied, self.written_at = applied, now

    def wipe(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._sorted.clear()
        self._count = self.applied = 0

    # ---- as a view

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._rows.get(table, {}).get(key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(table, key) for key in keys]

    def put(self, table: str, key: bytes, value: bytes) -> None:
        raise NotImplementedError("nothing is changed here")

    def delete(self, table: str, key: bytes) -> None:
        raise NotImplementedError("nothing is changed here")

    def items(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        rows = self._rows.get(table, {})
        keys = self._sorted.get(table)
        if keys is None:
            keys = self._sorted[table] = sorted(rows)
        for at in range(bisect_left(keys, max(prefix, start)), len(keys)):
            if not keys[at].startswith(prefix):
                return
            yield keys[at], rows[keys[at]]


def rows_of_url(domain: str, url_key: bytes) -> Keep:
    """Return which rows tell of a URL: its own, and what its domain and the crawls have."""
    about_domain = _about_domain(domain)

    def keep(table: str, key: bytes, row: bytes) -> bool:
        if table in {SEEN, RECURRING}:
            return key.endswith(url_key)
        if table == HELD and key[0] == PlaceKind.RAW_UNKNOWN:
            return may_be_of_domain(row, domain)
        if table in {WAITING, HELD}:
            return url_key in row  # a packed task holds its key
        return about_domain(table, key, row)

    return keep


def rows_of_domain(domain: str) -> Keep:
    """Return which rows tell of a domain."""
    about_domain = _about_domain(domain)
    name = domain.encode() + SEPARATOR

    def keep(table: str, key: bytes, row: bytes) -> bool:
        if table == WAITING:
            return key.startswith(name)
        if table == HELD:
            return SEPARATOR + name in key
        return about_domain(table, key, row)

    return keep


def _about_domain(domain: str) -> Keep:
    name = domain.encode()
    name_at_end = SEPARATOR + name

    def keep(table: str, key: bytes, row: bytes) -> bool:
        if table == DOMAINS:
            return key == name
        if table == OUT:
            return name in row  # a packed task holds its domain; who counts looks closer
        return table == CRAWLS or (table == USAGE and key.endswith(name_at_end))

    return keep


def read_rows(
    options: Mapping[str, str], codecs: Codecs, partition: int, keep: Keep, wanted: Callable[[], bool]
) -> KeptRows | None:
    """Read a partition's state as of the last commit; blocking, and bounded in memory.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        partition: number.
        keep: which rows are wanted.
        wanted: asked between chunks; False ends the reading.

    Returns:
        The rows; None where it was ended before the end of the changelog.

    Raises:
        BrokerError: an open transaction does not end.
    """
    rows = ContractRows(codecs.encoder(FRONTIER_STATE.subject), codecs.decoder(FRONTIER_STATE.subject))
    changelog = Changelog(options, FRONTIER_STATE.name, rows, DAY_MS / 1000)
    kept = KeptRows(keep)
    return None if changelog.restore(kept, partition, time.time(), wanted) is None else kept
