"""Offsets of one partition: what is started, what is unfinished, and the map of it that travels as commit metadata.

The committed offset is the lowest unfinished record. The commit metadata says which later records are finished, so
that a restart redoes only what was in flight.

Layout of the metadata, format `cp1.`: the prefix, then unpadded base64url of

    CRC-32 (4 bytes, big-endian) | length | delta, delta, …

with every number after the CRC an unsigned LEB128 integer. `length`: the map covers the offsets from the committed
one up to `committed + length`, the position after the last started record. The deltas are the ascending unfinished
offsets in that range, the first relative to the committed offset, each later one relative to its predecessor. What
the map covers and does not list is finished; what it does not cover was never started. The CRC is taken over
topic, NUL, partition and committed offset (decimal, each followed by NUL) and the numbers, so that a map of another
partition or another offset is told apart.

The size is bounded by construction: at most 1,000 unfinished offsets within a window of 4,194,304 (2^22) give at
most 256 deltas of three bytes, 744 of two and one length of four: 2,264 bytes, 3,023 characters with the prefix.
The broker takes 4,095 (offset.metadata.max.bytes less the NUL that confluent-kafka adds), and one map that is too
long would fail the whole commit.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import zlib
from typing import NamedTuple

PREFIX = "cp1."
MAX_UNFINISHED = 1_000
MAX_WINDOW = 1 << 22
MAX_METADATA_CHARACTERS = 4_095


class OffsetMap(NamedTuple):
    """What commit metadata says of one partition.

    Attributes:
        base: the committed offset.
        end: position after the last started record; equal to `base` where nothing beyond it was started.
        unfinished: ascending offsets in [base, end) that are not finished.
        readable: False when there was metadata and it could not be read; nothing is then taken as finished.
    """

    base: int
    end: int
    unfinished: tuple[int, ...] = ()
    readable: bool = True

    @property
    def done(self) -> frozenset[int]:
        """All finished offsets beyond the base; for tests and tools, may be large."""
        return frozenset(range(self.base, self.end)) - frozenset(self.unfinished)

    @property
    def finished_ahead(self) -> int:
        """How many offsets beyond the base are finished (control records included)."""
        return self.end - self.base - len(self.unfinished)


def encode(offset_map: OffsetMap, topic: str, partition: int) -> str:
    """Return commit metadata for a map; empty when nothing beyond the committed offset was started.

    Raises:
        ValueError: the map breaks the bounds, its offsets are out of order or out of range.
    """
    base, end, unfinished, _ = offset_map
    if end == base and not unfinished:
        return ""
    if len(unfinished) > MAX_UNFINISHED or not 0 < end - base <= MAX_WINDOW:
        raise ValueError(f"map out of bounds: {len(unfinished)} unfinished over {end - base} offsets")
    numbers = bytearray()
    _append(numbers, end - base)
    last = base
    for index, offset in enumerate(unfinished):
        if not last <= offset < end or (index and offset == last):
            raise ValueError(f"unfinished offset {offset} is out of order or outside [{base}, {end})")
        _append(numbers, offset - last)
        last = offset
    payload = _crc(numbers, base, topic, partition) + numbers
    return PREFIX + base64.urlsafe_b64encode(payload).decode("ascii").rstrip("=")


def decode(  # noqa: PLR0911  # one return a way to be unreadable
    metadata: str | None, base: int, topic: str, partition: int
) -> OffsetMap:
    """Read commit metadata.

    Args:
        metadata: as the broker returned it; trailing NULs (a binding adds one) are ignored.
        base: the committed offset it came with.
        topic: of the commit.
        partition: of the commit.

    Returns:
        The map. Empty metadata is a map that covers nothing. Metadata that can't be read (other prefix, damaged,
        of another partition or offset) is `readable=False` and covers nothing: it costs repeated work, never a record.
    """
    text = (metadata or "").rstrip("\0")
    if not text:
        return OffsetMap(base, base)
    unreadable = OffsetMap(base, base, (), readable=False)
    if not text.startswith(PREFIX) or len(text) > MAX_METADATA_CHARACTERS:
        return unreadable
    encoded = text[len(PREFIX) :]
    try:
        payload = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return unreadable
    numbers = payload[4:]
    if payload[:4] != _crc(numbers, base, topic, partition):
        return unreadable
    values = _numbers(numbers)
    if not values or not 0 < values[0] <= MAX_WINDOW or len(values) - 1 > MAX_UNFINISHED:
        return unreadable
    end, last = base + values[0], base
    unfinished: list[int] = []
    for delta in values[1:]:
        if delta == 0 and unfinished:
            return unreadable
        last += delta
        unfinished.append(last)
    return OffsetMap(base, end, tuple(unfinished)) if last < end else unreadable


def _crc(numbers: bytes | bytearray, base: int, topic: str, partition: int) -> bytes:
    place = f"{topic}\0{partition}\0{base}\0".encode()
    return zlib.crc32(numbers, zlib.crc32(place)).to_bytes(4, "big")


def _append(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(data: bytes) -> list[int] | None:
    """Return the LEB128 integers of `data`, None when the last one is cut."""
    values, number, shift = [], 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            values.append(number)
            number = shift = 0
    return values if not shift else None


class OffsetTracker:
    """Progress of one partition in one assignment.

    Records are started in offset order and finished in any order. What is known from the commit this assignment
    began with stays known until the tracker has passed it.
    """

    def __init__(self, start: OffsetMap) -> None:
        self._known_end = start.end
        self._known_unfinished = list(start.unfinished)
        self._known_index = 0
        self._in_flight: set[int] = set()
        self._heap: list[int] = []
        self.position = start.base
        """Next offset that was neither started nor skipped."""

    @property
    def in_flight(self) -> int:
        """Records started here and not finished."""
        return len(self._in_flight)

    @property
    def unfinished(self) -> int:
        """Started and not finished, those of the earlier assignment included."""
        return len(self._in_flight) + len(self._known_unfinished) - self._known_index

    @property
    def committable(self) -> int:
        """The lowest unfinished offset: what may be committed."""
        while self._heap and self._heap[0] not in self._in_flight:
            heapq.heappop(self._heap)
        if self._heap:
            return self._heap[0]
        if self._known_index < len(self._known_unfinished):
            return self._known_unfinished[self._known_index]
        return max(self.position, self._known_end)

    def may_start(self, offset: int) -> bool:
        """Whether the bounds of the map leave room to start the record at `offset`."""
        if offset < self._known_end or not self._in_flight:  # alone it is the base of its map, however far away
            return True
        return self.unfinished < MAX_UNFINISHED and offset - self.committable < MAX_WINDOW

    def start(self, offset: int) -> bool:
        """Begin a record.

        Returns:
            True: handle it. False: it was finished before this assignment began, or was delivered twice.
        """
        if offset < self.position:
            return False
        self.position = offset + 1
        finished = offset < self._known_end
        while self._known_index < len(self._known_unfinished) and self._known_unfinished[self._known_index] <= offset:
            finished = finished and self._known_unfinished[self._known_index] != offset
            self._known_index += 1
        if finished:
            return False
        self._in_flight.add(offset)
        heapq.heappush(self._heap, offset)
        return True

    def finish(self, offset: int) -> None:
        """Mark a started record as finished.

        Raises:
            KeyError: it was not in flight.
        """
        self._in_flight.remove(offset)

    def skip_to(self, position: int) -> None:
        """Pass offsets that hold no record for us: control records, aborted or compacted ones."""
        if position > self.position:
            while (
                self._known_index < len(self._known_unfinished) and self._known_unfinished[self._known_index] < position
            ):
                self._known_index += 1
            self.position = position

    def snapshot(self) -> OffsetMap:
        """Return what a commit now may say."""
        base = self.committable
        unfinished = sorted(self._in_flight) + self._known_unfinished[self._known_index :]
        if not unfinished:
            return OffsetMap(base, base)
        # Nothing beyond the window was started, but skipped offsets may reach further.
        end = min(max(self.position, self._known_end), base + MAX_WINDOW)
        return OffsetMap(base, end, tuple(unfinished))
