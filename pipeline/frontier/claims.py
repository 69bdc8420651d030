"""Claims: tasks and links come in, what is new and allowed waits from now on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pipeline import topics
from pipeline.config import Frontier
from pipeline.contracts.codec import Codecs
from pipeline.delivery.api import Output, SourceRecord, replays_of
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.domain_budget import DomainBudget
from pipeline.frontier.handling import PLAIN, Handling, handling_of
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.policy import CrawlPolicy, Policies, why
from pipeline.frontier.raw_records import RawRecord, pack_raw, unpack_raw
from pipeline.frontier.record_checks import check_links, check_task
from pipeline.frontier.records import (
    KEY_BYTES,
    OutRow,
    PlaceKind,
    SeenRow,
    Task,
    UrlState,
    lane_of,
    url_row_key,
)
from pipeline.frontier.recurring import RecurringWork, handling_of_wish
from pipeline.frontier.refusals import Refusal
from pipeline.frontier.seen import REOPENING, SeenTable
from pipeline.frontier.variants import Variants
from pipeline.web.domains import PSL_VERSION, registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import CanonicalUrl, RefusedUrl, canonical_form, canonicalize, url_key

Record = Mapping[str, Any]


class _Found(NamedTuple):
    """Where and when links were found, and what their crawl allows."""

    crawl: str
    source: str
    priority: int
    depth: int
    handling: Handling
    found_at_ms: int
    policy: CrawlPolicy
    now_ms: int


class Claims:
    """Turns tasks and links into waiting URLs, or into refusals with a reason.

    Args:
        partition: number of this partition.
        partitions: partition count.
        settings: limits.
        policies: what the crawls allow.
        crawls: counters.
        seen: what is known of every URL.
        life: moves of URLs.
        recurring: what is known of polled URLs.
        domain_budget: what domains have used.
        variants: counts of URLs that may be one page.
        codecs: contracts.
        counters: what is counted for the operator.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        *,
        settings: Frontier,
        policies: Policies,
        crawls: CrawlBook,
        seen: SeenTable,
        life: Lifecycle,
        recurring: RecurringWork,
        domain_budget: DomainBudget,
        variants: Variants,
        codecs: Codecs,
        counters: Counter[str],
    ) -> None:
        self._partition = partition
        self._partitions = partitions
        self._settings = settings
        self._policies = policies
        self._crawls = crawls
        self._seen = seen
        self._life = life
        self._recurring = recurring
        self._domain_budget = domain_budget
        self._variants = variants
        self._decode_task = codecs.decoder(topics.TASKS.subject)
        self._decode_links = codecs.decoder(topics.LINKS.subject)
        self._encode_links = codecs.encoder(topics.LINKS.subject)
        self._counters = counters

    # ---- tasks

    def take_task(self, source: SourceRecord, now_ms: int) -> list[Output]:
        """Handle a task record; one that belongs to another partition goes on to it in the same topic.

        A record that came back from the dead letters (`REPLAYS_HEADER`) is a replay, and so is one whose `replay` says
        so: it passes the seen check, and its attempts start anew. The header alone means that the record was never
        handled, so that a redirect still counts as one; the field, that its task has ended before.

        Args:
            source: holds a `Task` record.
            now_ms: now.

        Raises:
            InputError: `invalid_task` with the field at fault; nothing was changed.
        """
        value = source.value or b""
        record = self._decode_task(value)
        check_task(record, self._settings.max_url_bytes)
        replays = replays_of(source.headers)
        # A task that has ended before is a person's wish again, wherever it came from.
        redirected = bool(record["redirects"]) and not record["replay"]
        try:
            url = canonicalize(record["url"], max_bytes=self._settings.max_url_bytes)
        except RefusedUrl as refused:
            if not redirected:
                raise
            self._refuse_target(record, refused.refusal)
            return []
        domain = registrable_domain(url.host)
        owner = partition_for(domain.encode(), self._partitions)
        if owner != self._partition:
            self._counters["tasks_forwarded"] += 1
            return [Output(source.topic, value, domain.encode(), owner, tuple(source.headers))]
        state = self._crawls.change(record["crawl"])
        if redirected:
            state.redirects_received += record["poll"] <= 1
        else:
            state.tasks_received += 1
        policy = self._policies.get(record["crawl"])
        if policy is None:
            self._life.hold_record(record["crawl"], pack_raw(RawRecord(value, replays=replays)))
            return []
        self._wish(record, url, domain, policy, now_ms, replays)
        return []

    def _refuse_target(self, record: Record, reason: str) -> None:
        """Refuse the target of a redirect: no sender is to blame, and the crawl must be able to count it as arrived."""
        self._crawls.change(record["crawl"]).redirects_received += record["poll"] <= 1
        key = url_row_key(record["crawl"], url_key(canonical_form(record["url"])))
        self._life.refuse(record["crawl"], key, record["depth"], reason, self._seen.get(key))

    def _wish(  # noqa: PLR0917  # what is known of one task
        self, record: Record, url: CanonicalUrl, domain: str, policy: CrawlPolicy, now_ms: int, replays: int
    ) -> None:
        """Claim a wished URL; a person's wish passes scope and depth, where a redirect leads does not pass scope."""
        due_ms = max(now_ms, record["not_before_ms"])
        replay = record["replay"] or replays > 0
        redirected = bool(record["redirects"]) and not record["replay"]
        task = Task(
            record["crawl"], url.wire, url_key(url.href), domain, record["priority"], record["depth"], record["source"],
            record["submitted_at_ms"], due_ms, record["timeout_ms"], tuple(record["redirects"]),
            replays=replays, concurrency=record["concurrency"],
            handling=handling_of_wish(handling_of(record), redirected=redirected),
        )  # fmt: skip
        key = task.row_key
        row = self._seen.get(key)
        if record["withdraw"]:
            self._withdraw(task, row)
            return
        if row is not None and row.state is UrlState.PENDING:
            self._counters["tasks_known"] += 1
            self._hasten(task, row, due_ms, replay=replay)
            return
        is_poll = task.handling.poll > 0
        if row is not None and row.state is UrlState.DONE and not replay and not is_poll:
            self._counters["tasks_known"] += 1
            return
        if row is not None:
            task.deliveries = row.deliveries
        is_known_poll = is_poll and row is not None and row.state is UrlState.DONE
        if redirected and not is_known_poll:
            if row is not None and not replay and not is_poll and not _reopens(row, task.depth, policy):
                return
            refusal = self._refusal(task, url.href, policy, now_ms, depth=None)
            if refusal is not None:
                self._life.refuse(task.crawl, key, task.depth, refusal.reason, row)
                return
            self._variants.add(task.crawl, url.href)
        if is_poll:
            self._recurring.claim(task, due_ms, row)
        else:
            self._life.claim(task, due_ms, row)

    def _withdraw(self, wish: Task, row: SeenRow | None) -> None:
        """A wish is taken back: what waits is refused; what is out ends as it will, and is not polled again."""
        if row is None or row.state is not UrlState.PENDING:
            self._counters["tasks_known"] += 1
            return
        pending = self._life.task_of(wish.crawl, wish.domain, wish.row_key, row)
        if isinstance(pending, OutRow):
            pending.task.handling = pending.task.handling._replace(interval_ms=0)
            self._life.rewrite_out(pending, row)
        elif row.place is not None:
            self._life.refuse_waiting(pending, row.place, "withdrawn")

    def _hasten(self, wish: Task, row: SeenRow, due_ms: int, *, replay: bool) -> None:
        """A URL that is pending is wished again: the more pressing priority, the earlier time, the smaller depth hold.

        A pause after a failed attempt, or until the next poll, is kept, unless a replay starts the attempts anew. Of
        intervals the newest holds.
        """
        pending = self._life.task_of(wish.crawl, wish.domain, wish.row_key, row)
        task = pending.task if isinstance(pending, OutRow) else pending
        before = replace(task)
        task.priority = min(task.priority, wish.priority)
        task.depth = min(task.depth, wish.depth)
        if replay:
            task.attempts = 0
            task.born_ms = wish.born_ms
            task.replays = max(task.replays, wish.replays)
        interval_ms = wish.handling.interval_ms
        if interval_ms:
            recurrence = self._recurring.wish(wish.row_key, interval_ms)
            handling = task.handling
            task.handling = handling._replace(interval_ms=interval_ms, poll=max(handling.poll, 1))
        if isinstance(pending, OutRow):
            if task != before:
                self._life.rewrite_out(pending, row)
            return
        if row.place is not None and row.place.kind is PlaceKind.HELD_PARSE and replay:
            self._life.release_at(task, row, due_ms)
            return
        waits_ms = due_ms if row.place is None else row.place.due_ms
        if interval_ms not in {0, before.handling.interval_ms} and before.handling.poll > 1:
            waits_ms = self._recurring.due_ms(recurrence, due_ms)
        if replay or task.deliveries == 0:
            waits_ms = min(waits_ms, due_ms)
        if task != before or (row.place is not None and waits_ms != row.place.due_ms):
            self._life.move(task, row, lane_of(task.priority), waits_ms)

    # ---- links

    def take_links(self, source: SourceRecord, now_ms: int) -> list[Output]:
        """Handle a link record: most of its URLs are known, and one look at memory each is all they cost.

        A URL that can't be used is a counted refusal. One whose domain belongs elsewhere is forwarded.

        Raises:
            InputError: the record makes no sense as a whole; nothing was changed.
        """
        value = source.value or b""
        batch = self._decode_links(value)
        check_links(batch)
        state = self._crawls.change(batch["crawl"])
        state.links_received += batch["poll"] <= 1
        policy = self._policies.get(batch["crawl"])
        if policy is None:
            self._life.hold_record(batch["crawl"], pack_raw(RawRecord(value, is_links=True)))
            return []
        return self._links(batch, state, policy, now_ms)

    def _links(self, batch: Record, state: CrawlState, policy: CrawlPolicy, now_ms: int) -> list[Output]:
        max_depth = batch["max_depth"]
        found = _Found(
            batch["crawl"], batch["source"], batch["priority"], batch["depth"],
            PLAIN if max_depth is None else Handling(max_depth=max_depth), batch["found_at_ms"], policy, now_ms,
        )  # fmt: skip
        prefix, depth, known_from = url_row_key(found.crawl, b""), found.depth, self._seen.known_from
        fresh: dict[bytes, str] = {}
        for url in batch["urls"]:
            key = prefix + url_key(canonical_form(url))
            nothing_new_from = known_from(key)
            if nothing_new_from is None or depth < nothing_new_from or policy.scope.by_source:
                fresh.setdefault(key, url)
        if not fresh:
            return []
        foreign: dict[int, list[str]] = {}
        for (key, url), looked_up in zip(fresh.items(), self._seen.look_up(list(fresh)), strict=True):
            # Another spelling earlier in the record may have claimed it meanwhile.
            row = self._seen.get(key) if looked_up is None and known_from(key) is not None else looked_up
            if row is not None and row.state is UrlState.PENDING:
                self._found_again(found, key, url, row)
            elif row is not None and not _reopens(row, depth, policy):
                self._seen.found_at(key, depth)
            else:
                owner = self._link(found, key, url, row)
                if owner is not None:
                    foreign.setdefault(owner, []).append(url)
        return [self._forward(batch, state, owner, urls) for owner, urls in foreign.items()]

    def _link(self, found: _Found, key: bytes, url: str, row: SeenRow | None) -> int | None:
        """Claim or refuse a URL that is new, or may be reopened. Return its owner where that is another partition."""
        try:
            canonical = canonicalize(url, max_bytes=self._settings.max_url_bytes)
        except RefusedUrl as refused:
            self._life.refuse(found.crawl, key, found.depth, refused.refusal, row)
            return None
        domain = registrable_domain(canonical.host)
        owner = partition_for(domain.encode(), self._partitions)
        if owner != self._partition:
            self._counters["links_forwarded"] += 1
            return owner
        href = canonical.href
        if href != canonical_form(url):  # whoever sent it has other rules of what a wire URL is
            key = url_row_key(found.crawl, url_key(href))
            row = self._seen.get(key)
            if row is not None and not _reopens(row, found.depth, found.policy):
                return None
        task = Task(
            found.crawl, canonical.wire, key[-KEY_BYTES:], domain, found.priority, found.depth, found.source,
            found.found_at_ms, found.now_ms, deliveries=row.deliveries if row is not None else 0,
            handling=found.handling,
        )  # fmt: skip
        refusal = self._refusal(task, href, found.policy, found.now_ms, depth=found.depth)
        if refusal is not None:
            if row is None or refusal.reason != row.reason or found.depth < row.depth:
                self._life.refuse(found.crawl, key, found.depth, refusal.reason, row)
            return None
        self._variants.add(found.crawl, href)
        self._life.claim(task, found.now_ms, row)
        return None

    def _found_again(self, found: _Found, key: bytes, url: str, row: SeenRow) -> None:
        """A pending URL is found nearer to a start point: its own links are nearer too."""
        if found.depth >= row.depth:
            return
        href = canonical_form(url)  # however long its spelling is
        domain = registrable_domain(canonicalize(href, max_bytes=len(href)).host)
        pending = self._life.task_of(found.crawl, domain, key, row)
        if isinstance(pending, OutRow):
            pending.task.depth = found.depth
            self._life.rewrite_out(pending, row)
        elif row.place is not None:
            pending.depth = found.depth
            self._life.move(pending, row, row.place.lane, row.place.due_ms)

    def _forward(self, batch: Record, state: CrawlState, owner: int, urls: list[str]) -> Output:
        """Send URLs on to their owner; the list of public suffixes was another where they were dealt."""
        if batch["poll"] <= 1:
            state.announce(owner)
        value = self._encode_links({**batch, "psl_version": PSL_VERSION, "urls": urls})
        return Output(topics.LINKS.name, value, partition=owner)

    # ---- both

    def take_held(self, crawl: str, raw: bytes, policy: CrawlPolicy, now_ms: int) -> list[Output]:
        """Handle a record that waited for its crawl's definition, which is known now."""
        kept = unpack_raw(raw)
        if kept.is_links:
            return self._links(self._decode_links(kept.value), self._crawls.change(crawl), policy, now_ms)
        record = self._decode_task(kept.value)
        url = canonicalize(record["url"], max_bytes=self._settings.max_url_bytes)
        self._wish(record, url, registrable_domain(url.host), policy, now_ms, kept.replays)
        return []

    def _refusal(self, task: Task, href: str, policy: CrawlPolicy, now_ms: int, *, depth: int | None) -> Refusal | None:
        """Return why a URL that nobody wished is refused: by what it says, by its domain's budget, by its like."""
        return (
            why(policy, href, task.source, depth, now_ms, max_depth=task.handling.max_depth)
            or self._domain_budget.refusal(policy, task.crawl, task.domain)
            or self._variants.refusal(task.crawl, href)
        )


def _reopens(row: SeenRow, depth: int, policy: CrawlPolicy) -> bool:
    """Return whether a refusal is judged again for a URL found at `depth`: nearer, or maybe by another source."""
    if row.state is not UrlState.REFUSED:
        return False
    return (row.reason in REOPENING and depth < row.depth) or (row.reason == "scope" and policy.scope.by_source)
