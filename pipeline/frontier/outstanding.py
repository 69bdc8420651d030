"""Outstanding tasks: what was given to fetch and has not ended, with its lease."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipeline.delivery.api import StateView
from pipeline.frontier.records import OUT, OutRow, pack_out, unpack_out


class Outstanding:
    """Rows of what is out; in memory their keys, the longest out first.

    Args:
        view: the partition's state.

    Attributes:
        by_domain: tasks out by domain when the partition was opened.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view
        rows = [(key, unpack_out(packed)) for key, packed in view.items(OUT)]
        rows.sort(key=lambda pair: pair[1].emitted_ms)
        self._emitted_ms = {key: row.emitted_ms for key, row in rows}
        self.by_domain = Counter(row.task.domain for _, row in rows)

    def __len__(self) -> int:
        return len(self._emitted_ms)

    def put(self, row: OutRow) -> None:
        """Write a task that is out, or what has changed in it."""
        key = row.task.row_key
        self._view.put(OUT, key, pack_out(row))
        if self._emitted_ms.get(key) != row.emitted_ms:
            self._emitted_ms.pop(key, None)  # the order is that of emission
            self._emitted_ms[key] = row.emitted_ms

    def get(self, key: bytes) -> OutRow | None:
        """Return what is out for a URL's row key, None where nothing is."""
        if key not in self._emitted_ms:
            return None
        packed = self._view.get(OUT, key)
        return None if packed is None else unpack_out(packed)

    def remove(self, key: bytes) -> None:
        """Forget a task that has ended or waits again."""
        self._view.delete(OUT, key)
        del self._emitted_ms[key]

    def oldest_ms(self) -> int | None:
        """Return when the task that is out for longest was given out."""
        return next(iter(self._emitted_ms.values()), None)

    def emitted_before(self, limit_ms: int) -> Iterator[OutRow]:
        """Return the tasks given out before a time, the oldest first; they may be changed meanwhile."""
        overdue = []
        for key, emitted_ms in self._emitted_ms.items():
            if emitted_ms >= limit_ms:
                break
            overdue.append(key)
        for key in overdue:
            row = self.get(key)
            if row is not None:
                yield row
