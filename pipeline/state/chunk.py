"""What was read of a changelog: changes of our tables, and what is none.

A record of no table was written by somebody else and is passed over. A row that can't be read has written over one of
ours: unless a later change makes good for it, nobody knows what the state is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from pipeline.errors import ConfigurationError, InputError
from pipeline.state.view import changelog_key, from_changelog

SHOWN_KEY_BYTES: Final = 80
SHOWN_REFUSED: Final = 10

Place = tuple[str, bytes]
"""Table and key."""


class Refused(NamedTuple):
    """A change whose row can't be read: where it stands, and why."""

    offset: int
    reason: str


class Chunk:
    """What one read brought.

    Args:
        position: before it.
        tables: that there are.
        unwrap: record value → row; raises InputError.

    Attributes:
        changes: the newest change of each row that can be read; None deletes.
        refused: rows whose newest change can't.
        position: after what was read.
        offsets: of the changes, ascending.
        foreign: offsets of records that are of no table.
    """

    def __init__(self, position: int, tables: Collection[str], unwrap: Callable[[bytes], bytes]) -> None:
        self.changes: dict[Place, bytes | None] = {}
        self.refused: dict[Place, Refused] = {}
        self.position = position
        self.offsets: list[int] = []
        self.foreign: list[int] = []
        self._tables = tables
        self._unwrap = unwrap

    def add(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take one record."""
        self.position = offset + 1
        place = from_changelog(key) if key else ("", key)
        if place[0] not in self._tables:
            self.foreign.append(offset)
            return
        self.offsets.append(offset)
        try:
            self.changes[place] = None if value is None else self._unwrap(value)
        except InputError as exc:
            self.changes.pop(place, None)
            self.refused[place] = Refused(offset, str(exc))
        else:
            self.refused.pop(place, None)


class Tally:
    """What a restore has met so far.

    Attributes:
        records: changes that were read.
        foreign: records that are of no table.
        refused: rows whose newest change can't be read.
    """

    def __init__(self) -> None:
        self.records = self.foreign = 0
        self.refused: dict[Place, Refused] = {}

    def add(self, chunk: Chunk) -> None:
        """Count one chunk; the next ones come later in the changelog."""
        self.records += len(chunk.offsets)
        self.foreign += len(chunk.foreign)
        if self.refused:
            for place in chunk.changes:
                self.refused.pop(place, None)
        self.refused |= chunk.refused

    def check(self, partition: str) -> None:
        """Refuse a state that nobody knows.

        Args:
            partition: TOPIC/PARTITION.

        Raises:
            ConfigurationError: the newest change of a row can't be read; says where each stands.
        """
        if not self.refused:
            return
        rows = sorted(self.refused.items(), key=lambda row: row[1].offset)
        lines = [
            f"  {partition}/{offset}, key {changelog_key(*place)[:SHOWN_KEY_BYTES]!r}: {reason}"
            for place, (offset, reason) in rows[:SHOWN_REFUSED]
        ]
        if len(rows) > SHOWN_REFUSED:
            lines.append(f"  and {len(rows) - SHOWN_REFUSED} more")
        raise ConfigurationError(
            f"{partition} has changes that can't be read, and without them nobody knows the state; `headrace topics "
            "forget` takes one back (docs/operations/failures.md, a changelog that can't be read):\n" + "\n".join(lines)
        )
