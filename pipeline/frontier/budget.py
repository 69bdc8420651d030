"""Page budgets: of a crawl, shared between partitions by grants, and of a domain, counted where it lives.

One partition keeps a crawl's budget (hash of its id). The others ask it for pages, spend them when they give out a
task, get one back when an outcome brought no page, and return what they don't use. The keeper never has more pages
given away than the budget has, so the total is never exceeded, whatever is under way or is restored. All of it is in
the state; a partition asks once and waits for the answer, so nothing is asked or given twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pipeline import topics
from pipeline.delivery.api import Output, StateView
from pipeline.errors import InputError
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.policy import Policies
from pipeline.frontier.records import (
    GIVEN,
    PAGES,
    GivenRow,
    PagesRow,
    crawl_domain_key,
    pack_given,
    pack_pages,
    unpack_given,
    unpack_pages,
)
from pipeline.web.partition import partition_for

CHUNK_PAGES: Final = 20
"""Most pages asked for at once: what lies unused in one partition is missing in another."""
ASK_BELOW_PAGES: Final = 5
"""A partition asks for more before it has none left, so that its domains don't wait for the answer."""
IDLE_MS: Final = 1_000
"""Pages that nothing here would use go back after this time; links to new URLs may be under way."""
UNUSED_MS: Final = 30_000
"""Pages go back after this time too when all that would use them waits for its own time."""


class CrawlBudget:
    """Grants of one partition, and the books of the crawls that it keeps.

    Args:
        view: the partition's state.
        partition: its number.
        partitions: partition count.
        crawls: counters, which hold what was granted to this partition.
        policies: what the crawls' definitions say.
        encode: encoder of `Grant` records.
        granted: told the crawl when pages were granted to this partition.

    Attributes:
        pending: crawls kept here for which some partition waits for pages.
    """

    def __init__(
        self,
        view: StateView,
        partition: int,
        partitions: int,
        *,
        crawls: CrawlBook,
        policies: Policies,
        encode: Callable[[Mapping[str, Any]], bytes],
        granted: Callable[[str], None],
    ) -> None:
        self._view = view
        self._partition = partition
        self._partitions = partitions
        self._crawls = crawls
        self._policies = policies
        self._encode = encode
        self._granted = granted
        self.pending = {key.decode() for key, packed in view.items(GIVEN) if unpack_given(packed).pending}

    def keeper(self, crawl: str) -> int:
        """Return the partition that keeps a crawl's budget."""
        return partition_for(crawl.encode(), self._partitions)

    def ask_for(self, state: CrawlState, now_ms: int) -> Iterator[Output]:
        """Ask for pages where a crawl here needs more than it has and has not asked."""
        if state.asked or state.grant >= ASK_BELOW_PAGES or state.demand <= state.grant:
            return
        policy = self._policies.get(state.crawl)
        if policy is None or policy.max_pages is None:
            return
        state.asked = min(CHUNK_PAGES, state.demand - state.grant)
        yield from self._send(state.crawl, "ASK", self._partition, state.asked, now_ms)

    def receive(self, grant: Mapping[str, Any], value: bytes, now_ms: int) -> Iterator[Output]:
        """Handle a `Grant` record; one that belongs to another partition goes on to it.

        Args:
            grant: the record.
            value: its bytes.
            now_ms: now.

        Raises:
            InputError: a kind, partition or number that means nothing.
        """
        crawl, kind, partition, pages = grant["crawl"], grant["kind"], grant["partition"], grant["pages"]
        if kind not in {"ASK", "GIVE", "RETURN"}:
            raise InputError("schema_rejected", f"no kind of grant: {kind!r}", field="kind")
        if not 0 <= partition < self._partitions:
            raise InputError("schema_rejected", f"no partition {partition}", field="partition")
        if pages < 1:
            raise InputError("schema_rejected", f"{pages} pages", field="pages")
        if not crawl:
            raise InputError("schema_rejected", "no crawl", field="crawl")
        target = partition if kind == "GIVE" else self.keeper(crawl)
        if target != self._partition:
            yield Output(topics.GRANTS.name, value, partition=target)
            return
        yield from self._apply(crawl, kind, partition, pages, now_ms)

    def give_back_unused(self, now_ms: int) -> Iterator[Output]:
        """Return pages that nothing here will use soon."""
        for crawl in sorted(self._crawls.granted):
            state = self._crawls.get(crawl)
            if state is None or state.out or not state.grant:
                continue
            if now_ms - state.granted_ms >= (UNUSED_MS if state.demand else IDLE_MS):
                state = self._crawls.change(crawl)
                pages, state.grant = state.grant, 0
                yield from self._send(crawl, "RETURN", self._partition, pages, now_ms)

    def serve_pending(self, now_ms: int) -> Iterator[Output]:
        """Give to partitions that wait, where there is something to give: a budget may be known, or larger, now."""
        for crawl in sorted(self.pending):
            yield from self._serve(crawl, self._given(crawl), now_ms)

    def _send(self, crawl: str, kind: str, partition: int, pages: int, now_ms: int) -> Iterator[Output]:
        """Send a grant record, or handle it at once where it would come back here."""
        target = partition if kind == "GIVE" else self.keeper(crawl)
        if target == self._partition:
            yield from self._apply(crawl, kind, partition, pages, now_ms)
            return
        record = {"crawl": crawl, "kind": kind, "partition": partition, "pages": pages}
        yield Output(topics.GRANTS.name, self._encode(record), partition=target)

    def _apply(self, crawl: str, kind: str, partition: int, pages: int, now_ms: int) -> Iterator[Output]:
        if kind == "GIVE":
            state = self._crawls.change(crawl)
            state.grant += pages
            state.asked = 0
            state.granted_ms = now_ms
            self._granted(crawl)
            return
        given = self._given(crawl)
        if kind == "ASK":
            others = tuple(ask for ask in given.pending if ask[0] != partition)
            given = given._replace(pending=(*others, (partition, pages)))
        else:
            given = given._replace(given=max(0, given.given - pages))
        yield from self._serve(crawl, given, now_ms)

    def _serve(self, crawl: str, given: GivenRow, now_ms: int) -> Iterator[Output]:
        """Give to those who wait, the oldest ask first, what is left of the budget."""
        policy = self._policies.get(crawl)
        gifts: list[tuple[int, int]] = []
        if policy is not None:
            while given.pending:
                (partition, pages), *others = given.pending
                left = pages if policy.max_pages is None else policy.max_pages - given.given
                if left <= 0:
                    break
                gifts.append((partition, min(pages, left)))
                given = GivenRow(given.given + gifts[-1][1], tuple(others))
        if given != self._given(crawl):
            self._view.put(GIVEN, crawl.encode(), pack_given(given))
        if given.pending:
            self.pending.add(crawl)
        else:
            self.pending.discard(crawl)
        for partition, pages in gifts:
            yield from self._send(crawl, "GIVE", partition, pages, now_ms)

    def _given(self, crawl: str) -> GivenRow:
        stored = self._view.get(GIVEN, crawl.encode())
        return unpack_given(stored) if stored else GivenRow()


class DomainBudget:
    """Pages of each domain in each crawl; counted only where a limit is set, from then on.

    Args:
        view: the partition's state.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view

    def get(self, crawl: str, domain: str) -> PagesRow:
        """Return what a domain has used."""
        stored = self._view.get(PAGES, crawl_domain_key(crawl, domain))
        return unpack_pages(stored) if stored else PagesRow()

    def charge(self, crawl: str, domain: str) -> None:
        """Take a page for a task that goes out."""
        pages = self.get(crawl, domain)
        self._put(crawl, domain, pages._replace(charged=pages.charged + 1))

    def settle(self, crawl: str, domain: str, *, brought: bool) -> PagesRow:
        """Note how a charged task ended: with a page, or with its charge given back. Return what is used now."""
        pages = self.get(crawl, domain)
        pages = pages._replace(brought=pages.brought + 1) if brought else pages._replace(charged=pages.charged - 1)
        self._put(crawl, domain, pages)
        return pages

    def _put(self, crawl: str, domain: str, pages: PagesRow) -> None:
        self._view.put(PAGES, crawl_domain_key(crawl, domain), pack_pages(pages))
