"""A peer of the frontier's table and queue: a set of URL keys and a heap of requests, in memory.

A crawler of one process keeps them so. It knows no state of a URL, no domain, no depth, no restart.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from bench.frontier_world import PARTITIONS, WAITING_SHARE, Record, Web
from bench.stopwatch import Spent, Stopwatch
from pipeline import topics
from pipeline.contracts.codec import load_codec
from pipeline.process import calm_garbage_collection
from pipeline.web.url import url_key


class SetAndHeap:
    """Keys that were seen, and requests by time."""

    def __init__(self) -> None:
        calm_garbage_collection()
        self._seen: set[bytes] = set()
        self._waiting: list[tuple[int, int, str]] = []
        self._decode = load_codec().decoder(topics.LINKS.subject)

    def load(self, web: Web, stored: int) -> None:
        """Take in so many pages of each site."""
        for page in range(stored):
            for partition in range(PARTITIONS):
                for site in web.of_partition[partition]:
                    url = web.url(site, page)
                    self._seen.add(url_key(url))
                    if page % WAITING_SHARE == 0:
                        heapq.heappush(self._waiting, (0, len(self._seen), url))

    def handle(self, records: Sequence[Record]) -> Spent:
        """Take in the links of records."""
        seen, waiting = self._seen, self._waiting
        watch = Stopwatch()
        for record in records:
            for url in self._decode(record.value)["urls"]:
                key = url_key(url)
                if key not in seen:
                    seen.add(key)
                    heapq.heappush(waiting, (0, len(seen), url))
        return watch.spent()
