"""What is in flight, in a file that survives a crash of the process: a record that brings the worker down is found out.

A mapped file of fixed slots; the kernel keeps its pages when the process dies, however it dies, and a slot costs about
a microsecond. A record found in flight at the next start is a suspect. After one crash it is replayed among others:
most crashes are kills from outside, and hundreds were in flight. One that was there in `ALONE_AFTER` crashes in a row
is replayed alone, so that the culprit is told from those that happened to be there; one that was there in `MAX_CRASHES`
is a dead letter. Losing the file loses the count, nothing else.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from pathlib import Path

from faust.types import TP

from pipeline.errors import ConfigurationError

ALONE_AFTER = 2
MAX_CRASHES = 3
"""In a row, the same record in flight each time, the last time alone."""

_SLOT = struct.Struct("<B3xI8siq")
_FREE, _IN_FLIGHT, _SUSPECT = range(3)


class InFlightJournal:
    """Slots of one worker.

    Args:
        path: file, made when missing; a file of another size is started anew.
        slots: most records in flight at once; as many suspects find room beside them.

    Raises:
        ConfigurationError: the disk refuses.
    """

    def __init__(self, path: Path, slots: int) -> None:
        size = 2 * slots * _SLOT.size
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                if file.tell() != size:
                    file.truncate(0)
                    file.truncate(size)
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as exc:
            raise ConfigurationError(f"{path}: {exc.strerror}") from exc
        self._free: list[int] = []
        self._suspects: dict[tuple[bytes, int, int], tuple[int, int]] = {}
        for slot in range(2 * slots):
            state, crashes, topic, partition, offset = _SLOT.unpack_from(self._map, slot * _SLOT.size)
            if state == _FREE:
                self._free.append(slot)
                continue
            crashes += state == _IN_FLIGHT
            _SLOT.pack_into(self._map, slot * _SLOT.size, _SUSPECT, crashes, topic, partition, offset)
            self._suspects[topic, partition, offset] = slot, crashes
        self._topics: dict[str, bytes] = {}

    @property
    def suspects(self) -> int:
        """Records that were in flight in a crash and have not been finished since."""
        return len(self._suspects)

    def crashes(self, tp: TP, offset: int) -> int:
        """In how many crashes in a row the record was in flight."""
        return self._suspects.get((self._topic(tp.topic), tp.partition, offset), (0, 0))[1] if self._suspects else 0

    def begin(self, tp: TP, offset: int) -> int:
        """Note that a record is in flight; returns the slot to give to `end`."""
        topic = self._topic(tp.topic)
        slot, crashes = self._suspects.get((topic, tp.partition, offset)) or (self._free_slot(), 0)
        _SLOT.pack_into(self._map, slot * _SLOT.size, _IN_FLIGHT, crashes, topic, tp.partition, offset)
        return slot

    def _free_slot(self) -> int:
        """Return a free slot; where suspects that are not in flight hold them all, the oldest of them is forgotten."""
        if not self._free:
            key = next(k for k, (slot, _) in self._suspects.items() if self._map[slot * _SLOT.size] == _SUSPECT)
            self._free.append(self._suspects.pop(key)[0])
        return self._free.pop()

    def end(self, tp: TP, offset: int, slot: int) -> None:
        """Note that it is in flight no more, whatever came of it.

        The crashes of a suspect stay counted until its result is committed: a crash before that brings it back.
        """
        if self._suspects and (self._topic(tp.topic), tp.partition, offset) in self._suspects:
            self._map[slot * _SLOT.size] = _SUSPECT
        else:
            self._release(slot)

    def settled(self, tp: TP, committed: int) -> None:
        """Forget suspects whose result is committed, by whomever: what lies below the committed offset."""
        if not self._suspects:
            return
        topic = self._topic(tp.topic)
        for key in [k for k in self._suspects if k[:2] == (topic, tp.partition) and k[2] < committed]:
            self._release(self._suspects.pop(key)[0])

    def _release(self, slot: int) -> None:
        _SLOT.pack_into(self._map, slot * _SLOT.size, _FREE, 0, b"", 0, 0)
        self._free.append(slot)

    def close(self) -> None:
        """Release the file."""
        self._map.close()

    def _topic(self, name: str) -> bytes:
        digest = self._topics.get(name)
        if digest is None:
            digest = self._topics[name] = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return digest
