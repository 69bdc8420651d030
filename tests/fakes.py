"""Fakes that keep the promises of the real thing; the same tests run over both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class FakeRecord(NamedTuple):
    """A source record."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class MemoryView:
    """A `StateView` in memory: committed rows, staged changes over them, savepoints.

    An iterator of `items` that is advanced after a write fails, as the protocol forbids it.
    """

    tables: Sequence[str]
    _committed: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    _staged: dict[tuple[str, bytes], bytes | None] = field(default_factory=dict)
    _undo: list[tuple[tuple[str, bytes], bool, bytes | None]] = field(default_factory=list)
    _sorted: list[tuple[str, bytes]] | None = None
    _writes: int = 0

    def get(self, table: str, key: bytes) -> bytes | None:
        at = (self._known(table), key)
        return self._staged[at] if at in self._staged else self._committed.get(at)

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.get(table, key) for key in keys]

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._stage(table, key, value)

    def delete(self, table: str, key: bytes) -> None:
        self._stage(table, key, None)

    def items(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        self._known(table)
        if self._sorted is None:
            self._sorted = sorted(self._committed.keys() | self._staged.keys())
        keys, writes = self._sorted, self._writes
        for at in range(bisect_left(keys, (table, max(prefix, start))), len(keys)):
            if writes != self._writes:
                raise RuntimeError("an iterator was advanced across a write")
            if keys[at][0] != table or not keys[at][1].startswith(prefix):
                return
            value = self.get(*keys[at])
            if value is not None:
                yield keys[at][1], value

    def savepoint(self) -> int:
        """Return a mark for `rollback`."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo all writes since the mark."""
        while len(self._undo) > mark:
            at, was_staged, before = self._undo.pop()
            if was_staged:
                self._staged[at] = before
            else:
                del self._staged[at]
        self._changed()

    def commit(self) -> int:
        """Apply what is staged. Return how many rows that were."""
        for at, value in self._staged.items():
            if value is None:
                self._committed.pop(at, None)
            else:
                self._committed[at] = value
        count = len(self._staged)
        self.abort()
        return count

    def abort(self) -> None:
        """Drop what is staged."""
        self._staged.clear()
        self._undo.clear()
        self._changed()

    def rows(self, table: str) -> dict[bytes, bytes]:
        """Return all rows of a table."""
        return dict(self.items(table))

    def _stage(self, table: str, key: bytes, value: bytes | None) -> None:
        at = (self._known(table), key)
        self._undo.append((at, at in self._staged, self._staged.get(at)))
        if at not in self._staged and at not in self._committed:
            self._sorted = None
        self._staged[at] = value
        self._writes += 1

    def _changed(self) -> None:
        self._sorted = None
        self._writes += 1

    def _known(self, table: str) -> str:
        if table not in self.tables:
            raise KeyError(table)
        return table
