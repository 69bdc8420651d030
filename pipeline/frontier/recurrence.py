"""What is known of a URL that is polled, and how its row is packed. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from pipeline.errors import BugError
from pipeline.frontier.interval import NO_HABIT
from pipeline.frontier.records import PACKING

MAX_HASHES: Final = 8
"""Content hashes that are remembered: a page with so many faces gives each of them once."""
HASH_BYTES: Final = 16


@dataclass(slots=True)
class Recurrence:
    """What is known of a URL that is polled.

    Attributes:
        wished_ms: pause between polls that its sender wished, milliseconds; 0 where only the polls of other URLs lead
            here, by redirects.
        interval_ms: pause between polls now, milliseconds.
        started_ms: start of the last poll that has ended, milliseconds since the epoch; 0 for none.
        changed_ms: when a poll last found something new, milliseconds since the epoch; 0 for never.
        fetched: delivery of the last page that was brought; 0 for none.
        parsed: delivery of the last page that was parsed; 0 for none.
        habit: when in the day news were found, see `pipeline.frontier.interval`.
        hashes: content hashes of its pages, the newest first.
        etag: validator of the last page that was brought; None for none.
        last_modified: the other one.
        brought_ms: when that page was brought, milliseconds since the epoch; 0 for never.
        same: delivery of the last page that had the validators of the one before; 0 for none.
        news: delivery of the last page that said something new, the first one left out; 0 for none.
        is_distrusted: whether a page with the validators of the one before said something new. Its site would call
            unchanged what is not.
    """

    wished_ms: int = 0
    interval_ms: int = 0
    started_ms: int = 0
    changed_ms: int = 0
    fetched: int = 0
    parsed: int = 0
    habit: bytes = NO_HABIT
    hashes: tuple[bytes, ...] = ()
    etag: str | None = None
    last_modified: str | None = None
    brought_ms: int = 0
    same: int = 0
    news: int = 0
    is_distrusted: bool = False

    @property
    def awaits_parse(self) -> bool:
        """Whether a page was brought that is not parsed yet: what it says is not known."""
        return self.fetched > self.parsed

    def says(self, content_hash: bytes) -> bool:
        """Note what a page says. Return whether that is new."""
        is_new = content_hash not in self.hashes
        others = (known for known in self.hashes if known != content_hash)
        self.hashes = (content_hash, *others)[:MAX_HASHES]
        return is_new

    def forget_validators(self) -> None:
        """Let the next page be brought, whatever its site would say of it; what was thought of the site is over."""
        self.etag = self.last_modified = None
        self.is_distrusted = False


# version, wished, interval, started, changed, brought, fetched, parsed, same, news, whether distrusted, then lengths:
# habit, hashes, validators.
_ROW: Final = struct.Struct(">BQQQQQIIII?BBHH")


def pack_recurrence(row: Recurrence) -> bytes:
    """Pack a row of `RECURRING`."""
    etag, modified = _packed(row.etag), _packed(row.last_modified)
    head = _ROW.pack(
        PACKING, row.wished_ms, row.interval_ms, row.started_ms, row.changed_ms, row.brought_ms, row.fetched,
        row.parsed, row.same, row.news, row.is_distrusted, len(row.habit), len(row.hashes), len(etag), len(modified),
    )  # fmt: skip
    return head + row.habit + b"".join(row.hashes) + etag + modified


def unpack_recurrence(packed: bytes) -> Recurrence:
    """Inverse of `pack_recurrence`."""
    packing, wished_ms, interval_ms, started_ms, changed_ms, brought_ms, *counts = _ROW.unpack_from(packed)
    if packing != PACKING:
        raise BugError(f"a row of packing {packing}; this version knows {PACKING}")
    fetched, parsed, same, news, is_distrusted, habit_bytes, hash_count, etag_bytes, modified_bytes = counts
    at = _ROW.size
    habit = packed[at : (at := at + habit_bytes)]
    hashes = tuple(packed[at + HASH_BYTES * n : at + HASH_BYTES * (n + 1)] for n in range(hash_count))
    at += HASH_BYTES * hash_count
    etag = _unpacked(packed[at : (at := at + etag_bytes)])
    modified = _unpacked(packed[at : at + modified_bytes])
    return Recurrence(
        wished_ms, interval_ms, started_ms, changed_ms, fetched, parsed, habit, hashes, etag, modified, brought_ms,
        same, news, is_distrusted,
    )  # fmt: skip


def _packed(text: str | None) -> bytes:
    """None has no bytes, a text one more than it needs."""
    return b"" if text is None else b"\0" + text.encode()


def _unpacked(packed: bytes) -> str | None:
    return packed[1:].decode() if packed else None
