"""RocksDB of one partition number: committed state only, with the changelog position it stands for."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rocksdict import DbClosedError, Rdict, ReadOptions, WriteBatch

from pipeline.errors import ConfigurationError
from pipeline.state.memory import StoreFigures, shared_memory

META = "default"
APPLIED = b"applied"
CHANGED = b"changed"
_POSITION = struct.Struct(">qd")
_OFFSET = struct.Struct(">q")


class PartitionStore:
    """Tables as column families; every write names the changelog position it brings the store to.

    The store may lag its changelog, never lead it: it is written only after the transaction committed.

    Args:
        path: directory, made when missing.
        tables: one-letter names of all tables.

    Raises:
        ConfigurationError: another process has it open, or the disk refuses.
    """

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self._path = path
        self._tables = tuple(tables)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables."""
        return self._tables

    def _open(self) -> None:
        memory = shared_memory()
        options = memory.options()
        try:
            self._db = Rdict(str(self._path), options, column_families=dict.fromkeys(self._tables, options))
        except Exception as exc:  # rocksdict raises bare Exception
            raise ConfigurationError(f"state directory {self._path}: {exc}") from exc
        self._families = {t: self._db.get_column_family(t) for t in self._tables}
        uncached = ReadOptions()
        uncached.fill_cache(False)  # type: ignore[call-arg]  # the stub has no argument, the method has
        self._scattered = {t: self._db.get_column_family(t) for t in self._tables}
        """The same, for rows that are asked for here and there: neither they nor their neighbours are asked for again
        soon, so that to keep them costs more than to read them once more."""
        for family in self._scattered.values():
            family.set_read_options(uncached)
        self._handles = {t: self._db.get_column_family_handle(t) for t in self._tables}
        raw = self._db.get(APPLIED)
        self.applied, self.written_at = _POSITION.unpack(raw) if raw else (0, 0.0)
        """Changelog position it stands for, and when it was written (seconds since the epoch)."""
        raw = self._db.get(CHANGED)
        self.changed: int = _OFFSET.unpack(raw)[0] if raw else 0
        """Changelog position after the last change held, at most `applied`; 0 where that was not noted."""
        memory.stores.add(self)

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return a row or None."""
        row: bytes | None = self._families[table].get(key)
        return row

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return rows in the order of `keys`."""
        rows: list[bytes | None] = self._scattered[table].get(list(keys)) if keys else []  # type: ignore[assignment]
        return rows

    def items(self, table: str, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Return rows from `start` on and before `end`, in key order.

        Without an end a reader at the last row before deleted ones steps over all of these.
        """
        bounds = ReadOptions()
        if end is not None:
            bounds.set_iterate_upper_bound(end)
        yield from self._families[table].items(from_key=start, read_opt=bounds)  # raw mode: keys are bytes

    def apply(
        self, changes: Mapping[tuple[str, bytes], bytes | None], applied: int, now: float, changed: int | None = None
    ) -> None:
        """Write changes and their changelog position as one atomic batch.

        Args:
            changes: (table, key) → value; None deletes.
            applied: changelog position that the store then stands for.
            now: seconds since the epoch.
            changed: changelog position after the last of the changes; None where that is `applied`.
        """
        batch = WriteBatch(raw_mode=True)
        for (table, key), value in changes.items():
            if value is None:
                batch.delete(key, self._handles[table])
            else:
                batch.put(key, value, self._handles[table])
        if changes:
            changed = applied if changed is None else changed
            batch.put(CHANGED, _OFFSET.pack(changed))
        else:
            changed = self.changed
        batch.put(APPLIED, _POSITION.pack(applied, now))
        self._db.write(batch)
        self.applied, self.written_at, self.changed = applied, now, changed

    def figures(self) -> StoreFigures | None:
        """Return what it takes, None when it is closed; may be called from any thread."""
        families = dict(self._families)
        try:
            return StoreFigures(
                {table: _figure(family, "estimate-num-keys") for table, family in families.items()},
                sum(_figure(family, "estimate-table-readers-mem") for family in families.values()),
                sum(_figure(family, "total-sst-files-size") for family in families.values()),
            )
        except DbClosedError:
            return None

    def wipe(self) -> None:
        """Forget everything; the changelog has it."""
        self.close()
        shutil.rmtree(self._path)
        self._open()

    def close(self) -> None:
        """Close the database; the object must not be used afterwards."""
        shared_memory().stores.discard(self)
        self._families.clear()
        self._scattered.clear()
        self._handles.clear()
        self._db.close()


def _figure(family: Rdict, name: str) -> int:
    return family.property_int_value(f"rocksdb.{name}") or 0
