"""Budgets of a crawl, shared between partitions by grants: pages, pages per UTC day, body bytes.

One partition keeps a crawl's budgets (hash of its id). The others ask it for shares, spend a page when they give out a
task, get it back when the outcome brought none, and return what they don't use. The keeper never has more given away
than the budgets have, so pages are never exceeded, whatever is under way or is restored. Bytes are known only when they
have come: each partition stops at the end of its share, and may have received more by what was out then. All of it is
in the state; a partition asks once and waits for the answer, so nothing is asked or given twice.

A page of a day's budget is spent on the day of the keeper's clock when it was given, or it goes back: a task counts
on the day it was given out. An ask for a day that has not begun at the keeper waits there until it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pipeline import topics
from pipeline.delivery.api import Output, StateView
from pipeline.errors import InputError
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.days import day_of, on_day
from pipeline.frontier.policy import CrawlPolicy, Policies
from pipeline.frontier.records import GIVEN, Ask, GivenRow, OutRow, pack_given, unpack_given
from pipeline.web.partition import partition_for

CHUNK_PAGES: Final = 20
"""Most pages asked for at once: what lies unused in one partition is missing in another."""
ASK_BELOW_PAGES: Final = 5
"""A partition asks for more before it has none left, so that its domains don't wait for the answer."""
MIN_CHUNK_BYTES: Final = 64 << 10
MAX_CHUNK_BYTES: Final = 16 << 20
"""Bytes asked for at once: a quarter of a partition's even share of the budget, within these bounds."""
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

    def may_spend(self, state: CrawlState, policy: CrawlPolicy, now_ms: int) -> bool:
        """Return whether a task of a crawl may go out by the crawl's budgets."""
        if policy.grants_pages and (state.grant == 0 or _is_past(state, policy, now_ms)):
            return False
        return policy.max_bytes is None or state.unspent_bytes > 0

    def spend(self, state: CrawlState, policy: CrawlPolicy, now_ms: int) -> int:
        """Take a page for a task that goes out. Return the day of whose budget it is, 0 for none."""
        state.granted_ms = now_ms
        if not policy.grants_pages:
            return 0
        state.grant -= 1
        return state.grant_day

    def refund(self, state: CrawlState, out: OutRow, now_ms: int) -> Iterator[Output]:
        """Give a page back whose task brought none: to the keeper, where it was of another day's budget than these."""
        if out.charged_day == state.grant_day:
            state.grant += 1
            state.granted_ms = now_ms
        else:
            yield from self._send(state.crawl, "RETURN", Ask(self._partition, 1, 0, out.charged_day), now_ms)

    def ask_for(self, state: CrawlState, now_ms: int) -> Iterator[Output]:
        """Ask for a share where a crawl here needs more than it has and has not asked."""
        policy = self._policies.get(state.crawl)
        if policy is None:
            return
        if state.grant and _is_past(state, policy, now_ms):
            yield from self._return_pages(state, now_ms)
        # An ask for a day that the clock has left again would wait for it at the keeper: a new one takes its place.
        has_asked = (state.asked or state.asked_bytes) and state.asked_day <= day_of(now_ms)
        if has_asked or state.demand <= 0:
            return
        pages = received = day = 0
        if policy.grants_pages and state.grant < ASK_BELOW_PAGES:
            pages = max(0, min(CHUNK_PAGES, state.demand - state.grant))
            day = day_of(now_ms) if policy.max_pages_per_day is not None else 0
        if policy.max_bytes is not None:
            chunk = chunk_bytes(policy.max_bytes, self._partitions)
            # What came over the last share is asked for, too, so that the keeper counts it.
            received = chunk - state.unspent_bytes if state.unspent_bytes < chunk // 4 else 0
        if pages or received:
            state.asked, state.asked_bytes, state.asked_day = pages, received, day
            yield from self._send(state.crawl, "ASK", Ask(self._partition, pages, received, day), now_ms)

    def receive(self, grant: Mapping[str, Any], value: bytes, now_ms: int) -> Iterator[Output]:
        """Handle a `Grant` record; one that belongs to another partition goes on to it.

        Args:
            grant: the record; `check_grant` has seen it.
            value: its bytes.
            now_ms: now.

        Raises:
            InputError: a kind or partition that there is not.
        """
        crawl, kind, partition = grant["crawl"], grant["kind"], grant["partition"]
        share = Ask(partition, grant["pages"], grant["bytes"], grant["day"])
        if kind not in {"ASK", "GIVE", "RETURN"}:
            raise InputError("schema_rejected", f"no kind of grant: {kind!r}", field="kind")
        if not 0 <= partition < self._partitions:
            raise InputError("schema_rejected", f"no partition {partition}", field="partition")
        target = partition if kind == "GIVE" else self.keeper(crawl)
        if target != self._partition:
            yield Output(topics.GRANTS.name, value, partition=target)
            return
        yield from self._apply(crawl, kind, share, now_ms)

    def give_back_unused(self, now_ms: int) -> Iterator[Output]:
        """Return shares that nothing here will use soon."""
        for crawl in sorted(self._crawls.granted):
            state = self._crawls.get(crawl)
            if state is None or state.out:
                continue
            if now_ms - state.granted_ms >= (UNUSED_MS if state.demand else IDLE_MS):
                state = self._crawls.change(crawl)
                yield from self._return_pages(state, now_ms)
                unspent = state.unspent_bytes
                if unspent > 0:
                    state.granted_bytes -= unspent
                    yield from self._send(crawl, "RETURN", Ask(self._partition, 0, unspent), now_ms)

    def serve_pending(self, now_ms: int) -> Iterator[Output]:
        """Give to partitions that wait: a budget may be known now, or be larger, or a new day's."""
        for crawl in sorted(self.pending):
            yield from self._serve(crawl, self._given(crawl), now_ms)

    def _return_pages(self, state: CrawlState, now_ms: int) -> Iterator[Output]:
        pages, state.grant = state.grant, 0
        if pages:
            yield from self._send(state.crawl, "RETURN", Ask(self._partition, pages, 0, state.grant_day), now_ms)

    def _send(self, crawl: str, kind: str, share: Ask, now_ms: int) -> Iterator[Output]:
        """Send a grant record, or handle it at once where it would come back here."""
        target = share.partition if kind == "GIVE" else self.keeper(crawl)
        if target == self._partition:
            yield from self._apply(crawl, kind, share, now_ms)
            return
        yield Output(
            topics.GRANTS.name, self._encode({"crawl": crawl, "kind": kind, **share._asdict()}), partition=target
        )

    def _apply(self, crawl: str, kind: str, share: Ask, now_ms: int) -> Iterator[Output]:
        if kind == "GIVE":
            yield from self._take(self._crawls.change(crawl), share, now_ms)
            return
        given = self._given(crawl)
        if kind == "ASK":
            others = tuple(ask for ask in given.pending if ask.partition != share.partition)
            given = given._replace(pending=(*others, share))
        else:
            given = given._replace(pages=max(0, given.pages - share.pages), bytes=max(0, given.bytes - share.bytes))
            if share.day == given.day:
                given = given._replace(pages_of_day=max(0, given.pages_of_day - share.pages))
        yield from self._serve(crawl, given, now_ms)

    def _take(self, state: CrawlState, share: Ask, now_ms: int) -> Iterator[Output]:
        """Take a share in; pages of another day than these go back."""
        state.asked = state.asked_bytes = 0
        state.granted_ms = now_ms
        state.granted_bytes += share.bytes
        if share.pages:
            if share.day != state.grant_day:
                yield from self._return_pages(state, now_ms)
                state.grant_day = share.day
            state.grant += share.pages
        self._granted(state.crawl)

    def _serve(self, crawl: str, given: GivenRow, now_ms: int) -> Iterator[Output]:
        """Give to those who wait, the oldest ask first, what is left of the budgets."""
        policy = self._policies.get(crawl)
        gifts: list[Ask] = []
        waiting: list[Ask] = []
        for ask in given.pending:
            gift = None
            if policy is not None:
                given = _on_the_day(given, policy, now_ms)
                gift = _gift(given, ask, policy)
            if gift is None:
                waiting.append(ask)
                continue
            gifts.append(gift)
            given = given._replace(
                pages=given.pages + gift.pages,
                bytes=given.bytes + gift.bytes,
                pages_of_day=given.pages_of_day + (gift.pages if gift.day else 0),
            )
        given = given._replace(pending=tuple(waiting))
        if given != self._given(crawl):
            self._view.put(GIVEN, crawl.encode(), pack_given(given))
        if given.pending:
            self.pending.add(crawl)
        else:
            self.pending.discard(crawl)
        for gift in gifts:
            yield from self._send(crawl, "GIVE", gift, now_ms)

    def _given(self, crawl: str) -> GivenRow:
        stored = self._view.get(GIVEN, crawl.encode())
        return unpack_given(stored) if stored else GivenRow()


def chunk_bytes(max_bytes: int, partitions: int) -> int:
    """Return how many bytes a partition asks for at once."""
    return min(MAX_CHUNK_BYTES, max(MIN_CHUNK_BYTES, max_bytes // (4 * partitions)))


def _is_past(state: CrawlState, policy: CrawlPolicy, now_ms: int) -> bool:
    """Return whether the pages granted are of a day that is over, or of none where the crawl has a budget by day."""
    return policy.max_pages_per_day is not None and state.grant_day < day_of(now_ms)


def _on_the_day(given: GivenRow, policy: CrawlPolicy, now_ms: int) -> GivenRow:
    """Return what is given away, with the pages of the day that counts now."""
    if policy.max_pages_per_day is None:
        return given
    day, pages = on_day(given.day, given.pages_of_day, day_of(now_ms))
    return given._replace(day=day, pages_of_day=pages)


def _gift(given: GivenRow, ask: Ask, policy: CrawlPolicy) -> Ask | None:
    """Return what is given for an ask, None while it has to wait: all that it asks for must be there in part."""
    day = 0
    pages, received = ask.pages, ask.bytes
    if policy.max_pages is not None:
        pages = min(pages, policy.max_pages - given.pages)
    if policy.max_pages_per_day is not None and ask.pages:
        if ask.day > given.day:
            return None  # the clock of who asks is ahead
        day = given.day
        pages = min(pages, policy.max_pages_per_day - given.pages_of_day)
    if policy.max_bytes is not None:
        received = min(received, policy.max_bytes - given.bytes)
    if (ask.pages and pages <= 0) or (ask.bytes and received <= 0):
        return None
    return Ask(ask.partition, pages, received, day)
