"""Turns: domains in the order of the moments at which each may have its next one."""

from __future__ import annotations

import heapq
from typing import Final

SLACK: Final = 64
"""Overtaken entries that are always allowed: few are not worth a sweep."""


class Turns:
    """A heap of domains, each at most once; a step costs O(log n).

    Domains with the same moment come in the order in which they were set.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str]] = []
        self._entries: dict[str, tuple[int, int]] = {}
        self._set = 0

    def set(self, domain: str, at_ms: int | None) -> None:
        """Say when a domain's turn is, None for never; it keeps its place among equals where nothing changes."""
        entry = self._entries.get(domain)
        if at_ms is None:
            if entry is not None:
                del self._entries[domain]
            return
        if entry is not None and entry[0] == at_ms:
            return
        self._set += 1
        self._entries[domain] = at_ms, self._set
        heapq.heappush(self._heap, (at_ms, self._set, domain))
        if len(self._heap) > SLACK + 4 * len(self._entries):
            self._heap = [(*kept, name) for name, kept in self._entries.items()]
            heapq.heapify(self._heap)

    def first_ms(self) -> int | None:
        """Return when the first domain's turn is, None where there is none."""
        heap = self._heap
        while heap:
            at_ms, number, domain = heap[0]
            if self._entries.get(domain) == (at_ms, number):
                return at_ms
            heapq.heappop(heap)  # overtaken by a later `set`
        return None

    def pop(self, now_ms: int) -> str | None:
        """Take out the first domain whose turn has come, None where there is none."""
        first_ms = self.first_ms()
        if first_ms is None or first_ms > now_ms:
            return None
        domain = heapq.heappop(self._heap)[2]
        del self._entries[domain]
        return domain
