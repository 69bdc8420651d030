"""Recurring work: what comes of each poll, and when the next one is due.

A poll ends by its outcome like any task, but its URL waits again. Where it brought a page, the next poll is not given
out before the answer of parse has come, whichever of the two arrives first: then what the page says is known, the
interval follows it, and the next page is told from it.

A redirected poll goes on at its target, which may belong to another partition: there it is a task that is done once,
with the number of the poll, and passes the seen check. Validators and hashes of what it brings are kept there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pipeline.config import Frontier
from pipeline.delivery.api import StateView
from pipeline.errors import BugError
from pipeline.frontier.handling import Handling
from pipeline.frontier.interval import Bounds, Finding, adapted_ms, bounds, hour_of, next_start_ms, rates, with_news
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.politeness import milliseconds
from pipeline.frontier.records import RECURRING, OutRow, PlaceKind, SeenRow, Task, UrlState, url_row_key
from pipeline.frontier.recurrence import HASH_BYTES, Recurrence, pack_recurrence, unpack_recurrence
from pipeline.frontier.seen import SeenTable

NEUTRAL: Final = frozenset({"FETCHED", "REDIRECTED"})
"""Outcomes that do not say themselves whether there is something new: parse does, or the target of the redirect."""


def recurrence(view: StateView, key: bytes) -> Recurrence | None:
    """Return what is known of a polled URL by its row key, None for any other."""
    packed = view.get(RECURRING, key)
    return None if packed is None else unpack_recurrence(packed)


def handling_of_wish(handling: Handling, *, redirected: bool) -> Handling:
    """Return how a task is handled here that is wished for the first time.

    Args:
        handling: as its record says.
        redirected: whether a redirect made it. Then it is done once, with the number of the poll that was redirected;
            the URL where it began goes on being polled.
    """
    if redirected:
        return handling._replace(interval_ms=0)
    return handling._replace(poll=1 if handling.interval_ms else 0)


class RecurringWork:
    """Rows of polled URLs, and the moves of their tasks.

    Args:
        view: the partition's state.
        seen: what is known of every URL.
        life: moves of URLs.
        settings: bounds of intervals.
        counters: what is counted for the operator.
    """

    def __init__(
        self, view: StateView, *, seen: SeenTable, life: Lifecycle, settings: Frontier, counters: Counter[str]
    ) -> None:
        self._view = view
        self._seen = seen
        self._life = life
        self._floor_ms = milliseconds(settings.interval_floor_s)
        self._span = settings.interval_span
        self._trust_ms = milliseconds(settings.trust_validators_s)
        self._counters = counters

    def get(self, key: bytes) -> Recurrence | None:
        """Return what is known of a polled URL by its row key, None for any other."""
        return recurrence(self._view, key)

    # ---- wishes

    def claim(self, task: Task, due_ms: int, known: SeenRow | None) -> None:
        """Take in recurring work, or a poll that was redirected; see `Lifecycle.claim`."""
        row = self.wish(task.row_key, task.handling.interval_ms)
        if task.handling.interval_ms and row.fetched:
            # Whoever wishes it again may want it read by another parser, which "not modified" would not bring about.
            row.forget_validators()
            self._put(task.row_key, row)
        # A row of the seen table may have expired; deliveries must stay unique.
        task.deliveries = max(task.deliveries, row.fetched, row.parsed)
        kind = PlaceKind.HELD_PARSE if row.awaits_parse else PlaceKind.WAITING
        self._life.claim(task, due_ms, known, kind)

    def wish(self, key: bytes, interval_ms: int) -> Recurrence:
        """Note an interval that is wished for a URL, 0 for none; the same again changes nothing."""
        row = self.get(key)
        if row is None or (interval_ms and row.wished_ms != interval_ms):
            row = replace(row or Recurrence(), wished_ms=interval_ms, interval_ms=interval_ms)
            self._put(key, row)
        return row

    def due_ms(self, row: Recurrence, now_ms: int) -> int:
        """Return when the next poll of a URL is due; after a longer pause at once, and once."""
        if row.started_ms == 0:
            return now_ms
        return max(now_ms, next_start_ms(row.started_ms, row.interval_ms, self._bounds(row), rates(row.habit)))

    def validators(self, row: Recurrence, now_ms: int) -> tuple[str | None, str | None]:
        """Return what the next request may be made conditional by: entity tag and date.

        Nothing where the site is distrusted, and nothing when the page was last brought longer ago than
        `trust_validators_s`: a site that says "not modified" for ever is found out that way.
        """
        is_stale = self._trust_ms > 0 and now_ms - row.brought_ms > self._trust_ms
        return (None, None) if row.is_distrusted or is_stale else (row.etag, row.last_modified)

    # ---- what comes of a poll

    def ended(self, out: OutRow, outcome: Mapping[str, Any], now_ms: int) -> bool:
        """Handle the last outcome of a poll.

        Args:
            out: the poll.
            outcome: a `FetchOutcome` record that makes its task wait no longer.
            now_ms: now.

        Returns:
            Whether the task waits for its next poll now; False: there is none, it was redirected here or withdrawn.
        """
        task, key = out.task, out.task.row_key
        row = self.get(key)
        if row is None:
            raise BugError(f"nothing is known of the polled URL {task.url}")
        row.started_ms = out.emitted_ms
        if outcome["outcome"] == "FETCHED":
            row.fetched = task.deliveries
            row.brought_ms = now_ms
            known_by = (outcome["etag"], outcome["last_modified"])
            if known_by == (row.etag, row.last_modified) != (None, None):
                row.same = task.deliveries
            row.etag, row.last_modified = known_by
            self._judge_site(row)
        elif outcome["outcome"] == "NOT_MODIFIED":
            self._adapt(row, Finding.NOTHING_NEW, now_ms)
        elif outcome["outcome"] not in NEUTRAL:
            self._counters["polls_failed"] += 1
            self._adapt(row, Finding.FAILURE, now_ms)
        self._put(key, row)
        if task.handling.interval_ms == 0:
            return False
        due_ms = self.due_ms(row, now_ms)
        handling = task.handling._replace(poll=task.handling.poll + 1)
        following = replace(task, born_ms=due_ms, attempts=0, replays=0, handling=handling)
        kind = PlaceKind.HELD_PARSE if row.awaits_parse else PlaceKind.WAITING
        self._life.next_poll(out, following, kind, due_ms)
        return True

    def parsed(self, parsed: Mapping[str, Any], now_ms: int) -> None:
        """Handle a `Parsed` record: of a page of a polled URL it says whether there is something new."""
        key = url_row_key(parsed["crawl"], parsed["url_key"])
        row = self.get(key)
        if row is None:
            return
        content_hash = parsed["content_hash"]
        if content_hash is not None and len(content_hash) != HASH_BYTES:
            content_hash = None
        is_first = row.parsed == 0
        is_new = content_hash is not None and row.says(content_hash)
        if parsed["delivery"] > row.parsed:  # else it comes back from the dead letters after its answer
            row.parsed = parsed["delivery"]
            if is_new:
                row.changed_ms = now_ms
                row.news = 0 if is_first else parsed["delivery"]
                self._judge_site(row)
            if parsed["kind"] == "DEAD_LETTER":
                row.forget_validators()  # what it says is not known, so "not modified" would say nothing
                self._adapt(row, Finding.FAILURE, now_ms)
            elif not is_first:  # the first page says nothing of how often it changes
                self._adapt(row, Finding.NEWS if is_new else Finding.NOTHING_NEW, now_ms)
        self._put(key, row)
        if not row.awaits_parse:
            self._let_wait(parsed["crawl"], key, row, now_ms)

    def _let_wait(self, crawl: str, key: bytes, row: Recurrence, now_ms: int) -> None:
        """Let the next poll wait for its time, where it was held for the page that is parsed now."""
        seen = self._seen.get(key)
        if seen is None or seen.state is not UrlState.PENDING:
            return
        if seen.place is None or seen.place.kind is not PlaceKind.HELD_PARSE:
            return
        task = self._life.held.read("", crawl, seen.place)
        due_ms = self.due_ms(row, now_ms) if task.handling.interval_ms else max(now_ms, seen.place.due_ms)
        task.born_ms = due_ms
        self._life.release_at(task, seen, due_ms)

    def _judge_site(self, row: Recurrence) -> None:
        """Distrust validators that stayed the same while the page did not; to be asked when either is known."""
        if row.same == row.news != 0 and not row.is_distrusted:
            row.is_distrusted = True
            self._counters["validators_distrusted"] += 1

    def _adapt(self, row: Recurrence, finding: Finding, now_ms: int) -> None:
        if row.wished_ms == 0:
            return
        rate = rates(row.habit)[hour_of(now_ms)]
        row.interval_ms = adapted_ms(row.interval_ms, finding, self._bounds(row), rate)
        if finding is Finding.NEWS:
            row.habit = with_news(row.habit, now_ms)

    def _bounds(self, row: Recurrence) -> Bounds:
        return bounds(row.wished_ms, self._floor_ms, self._span)

    def _put(self, key: bytes, row: Recurrence) -> None:
        self._view.put(RECURRING, key, pack_recurrence(row))
