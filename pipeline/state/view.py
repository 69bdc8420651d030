"""Staged writes over a store: what a transaction in work would leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sortedcontainers import SortedDict

from pipeline.state.store import PartitionStore


class StagedView:
    """Reads and iterates over stored and staged data together; writes stay staged until `take`.

    Args:
        store: committed state.
        tables: one-letter names of all tables.
    """

    def __init__(self, store: PartitionStore, tables: Sequence[str]) -> None:
        self._store = store
        self._staged: dict[str, SortedDict] = {table: SortedDict() for table in tables}
        self._writes = 0

    def get(self, table: str, key: bytes) -> bytes | None:
        staged = self._staged[table]
        if key in staged:
            value: bytes | None = staged[key]
            return value
        return self._store.get(table, key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        staged = self._staged[table]
        if dict.keys(staged).isdisjoint(keys):  # the sorted view's own asks in Python, key by key
            return self._store.get_many(table, keys)
        missing = [key for key in keys if key not in staged]
        stored = dict(zip(missing, self._store.get_many(table, missing), strict=True))
        return [staged[key] if key in staged else stored[key] for key in keys]

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._stage(table, key, value)

    def delete(self, table: str, key: bytes) -> None:
        self._stage(table, key, None)

    def items(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        begin = max(prefix, start)
        staged = self._staged[table]
        staged_keys = staged.irange(minimum=begin)
        next_staged = next(staged_keys, None)
        for key, value in self._store.items(table, begin, _end_of(prefix)):
            while next_staged is not None and next_staged < key:  # between two keys of the prefix: it has it too
                if (row := staged[next_staged]) is not None:
                    yield next_staged, row
                next_staged = next(staged_keys, None)
            if next_staged == key:
                if (row := staged[key]) is not None:
                    yield key, row
                next_staged = next(staged_keys, None)
            else:
                yield key, value
        while next_staged is not None and next_staged.startswith(prefix):
            if (row := staged[next_staged]) is not None:
                yield next_staged, row
            next_staged = next(staged_keys, None)

    @property
    def writes(self) -> int:
        """How often something was staged since the last `clear`: tells whether a handler has left a trace."""
        return self._writes

    def changes(self) -> dict[tuple[str, bytes], bytes | None]:
        """Return what is staged: (table, key) → value, None for a deletion."""
        return {(table, key): value for table, staged in self._staged.items() for key, value in staged.items()}

    def clear(self) -> None:
        """Drop what is staged: it was applied to the store, or its transaction was undone."""
        for staged in self._staged.values():
            staged.clear()
        self._writes = 0

    def _stage(self, table: str, key: bytes, value: bytes | None) -> None:
        self._staged[table][key] = value
        self._writes += 1


def _end_of(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with `prefix`, None where there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def changelog_key(table: str, key: bytes) -> bytes:
    """Key of a change in the changelog topic."""
    return table.encode() + key


def from_changelog(key: bytes) -> tuple[str, bytes]:
    """Inverse of `changelog_key`."""
    return chr(key[0]), key[1:]
