"""When a crawl has ended: nothing waits or is out anywhere, and every record sent has arrived. Pure.

Recurring work never ends. Once it has had its first poll, it keeps no crawl from its end: what later polls find
is a crawl that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_COUNTS: Final = (
    "parked",
    "tasks_received",
    "redirects_received",
    "redirects_sent",
    "pages_fetched",
    "pages_parsed",
    "links_received",
)


class CrawlEnd:
    """Follows the `Progress` records of one crawl until it has ended.

    A single look can be deceived: the partitions report at different times, and what one has sent another may not have
    counted yet. Two looks that find the same counts in balance can't (Mattern's four counters): whatever moved in
    between would have changed them. So look again only after every change has had time to be reported: the report
    interval of a second and a commit, 1.5 s.

    Args:
        partitions: partition count of the topics.
        max_pages: the crawl's page budget, None for none. Tasks held by a budget end the crawl only once a budget of
            the whole crawl is spent: as long as none is, a grant for them, or their day, is on its way.
        max_bytes: the crawl's budget of body bytes, None for none.
    """

    def __init__(self, partitions: int, max_pages: int | None = None, max_bytes: int | None = None) -> None:
        self._partitions = partitions
        self._max_pages = max_pages
        self._max_bytes = max_bytes
        self._balanced: tuple[tuple[int, ...], ...] | None = None
        """The counts of the last look, where they were in balance."""

    def observe(self, rows: Iterable[Mapping[str, Any]], tasks_submitted: int) -> bool:
        """Look at the newest progress of every partition. Return whether this and the last look found the end.

        Args:
            rows: `Progress` records of the crawl, the newest of each partition; a partition that has reported nothing
                counts as empty.
            tasks_submitted: tasks written for the crawl in all its life; more may have been received, where others
                submit too or a dead letter is replayed.
        """
        newest = {row["partition"]: row for row in rows if self._is_ours(row)}
        counts = tuple(
            (
                partition,
                _left(row),
                row["done"] + row["recurring"],
                *(row[name] for name in _COUNTS),
                *row["links_sent"],
            )
            for partition, row in sorted(newest.items())
        )
        balanced = counts if self._in_balance(newest, tasks_submitted) else None
        ended = balanced is not None and balanced == self._balanced
        self._balanced = balanced
        return ended

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        return 0 <= row["partition"] < self._partitions and len(row["links_sent"]) == self._partitions

    def _in_balance(self, newest: Mapping[int, Mapping[str, Any]], tasks_submitted: int) -> bool:
        total = {name: sum(row[name] for row in newest.values()) for name in _COUNTS}
        if any(_left(row) > row["parked"] for row in newest.values()):
            return False
        if total["parked"] and not self._is_spent(newest.values()):
            return False
        if total["pages_fetched"] != total["pages_parsed"] or total["redirects_sent"] != total["redirects_received"]:
            return False
        if total["tasks_received"] < tasks_submitted:
            return False
        for partition in range(self._partitions):
            sent = sum(row["links_sent"][partition] for row in newest.values())
            row = newest.get(partition)
            if sent != (row["links_received"] if row is not None else 0):
                return False
        return True

    def _is_spent(self, rows: Iterable[Mapping[str, Any]]) -> bool:
        looked_at = list(rows)
        pages = sum(row["pages_fetched"] + row["pages_polled"] for row in looked_at)
        received_bytes = sum(row["bytes_received"] for row in looked_at)
        budgets = ((pages, self._max_pages), (received_bytes, self._max_bytes))
        return any(limit is not None and spent >= limit for spent, limit in budgets)


def _left(row: Mapping[str, Any]) -> int:
    """Return how many tasks wait or are out that may end, parked ones included."""
    left: int = row["waiting"] + row["out"] - row["recurring"]
    return left
