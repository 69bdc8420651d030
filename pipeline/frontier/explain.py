"""Why a URL was or wasn't fetched, read from the state of the partition that owns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, Final

from pipeline.frontier.days import day_of, days_of, on_day
from pipeline.frontier.insight import MAX_COUNTED, Insight
from pipeline.frontier.outcomes import SUCCESSES
from pipeline.frontier.policy import CrawlPolicy, why
from pipeline.frontier.raw_records import find_task
from pipeline.frontier.records import (
    OUT,
    SEEN,
    PlaceKind,
    SeenRow,
    Task,
    UrlState,
    unpack_out,
    unpack_seen,
    url_row_key,
)
from pipeline.frontier.recurring import recurrence
from pipeline.frontier.refusals import Refusal
from pipeline.frontier.variants import max_queries
from pipeline.frontier.waits import Wait, domain_waits, own_wait

TRAPS: Final = frozenset({
    "parameters", "repeated_parameter", "nested_url", "path_depth", "path_repetition", "calendar",
    "parameter_explosion", "session_id",
})  # fmt: skip
"""Reasons of `pipeline.frontier.traps` and `pipeline.frontier.variants`."""
WHY_HELD: Final[Mapping[PlaceKind, tuple[str, str]]] = {
    PlaceKind.HELD_BUDGET: ("budget", "crawl_budget"),
    PlaceKind.HELD_DOMAIN: ("budget", "domain_budget"),
    PlaceKind.HELD_DAY: ("budget", "domain_day_budget"),
    PlaceKind.HELD_UNKNOWN: ("definition", "crawl_unknown"),
    PlaceKind.RAW_UNKNOWN: ("definition", "crawl_unknown"),
    PlaceKind.HELD_PARSE: ("parse", "awaits_parse"),
}
"""What holds a task → (why, reason)."""
EPOCH: Final = date(1970, 1, 1)
_ROBOTS: Final = frozenset({"ROBOTS_DENIED", "ROBOTS_UNREACHABLE"})


@dataclass(frozen=True, slots=True)
class Standing:
    """How a URL stands in a crawl; None stands for what is not kept.

    Attributes:
        crawl: id of the crawl.
        state: `unknown`, `waiting`, `held`, `out`, `done` or `refused`.
        why: what decided. For done `seen`, `redirected`, `robots` or `failed`; for refused `scope`, `depth`, `budget`,
            `trap`, `withdrawn` or `url`; for held `budget`, `definition` or `parse`; for waiting what it waits for
            first (see `Wait`); `out`; for unknown what would refuse its link, `definition`, or `unknown`.
        reason: machine-readable, as it is recorded; empty where there is none.
        facts: what the decision rests on, such as a limit and what it is compared with.
        depth: links followed from a start point.
        source: name of the sender or source package.
        priority: 1 to 5.
        lane: of its priority; for out the one it went to.
        attempts: attempts that failed.
        deliveries: how often it was given out.
        replays: how often it came back from the dead letters.
        submitted_ms: when it was wished, or its link found, milliseconds since the epoch.
        since_ms: for out: when it was given out.
        due_ms: for waiting and held: when its own time comes.
        ahead: for waiting: tasks of its domain that stand before it in its lane, at most `MAX_COUNTED`.
        day: for done and refused: UTC day of that, YYYY-MM-DD.
        outcome: for done: the last one.
        status: for done: its HTTP status.
        waits: for waiting: what it waits for, the decisive one first.
    """

    crawl: str
    state: str
    why: str
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    depth: int | None = None
    source: str | None = None
    priority: int | None = None
    lane: str | None = None
    attempts: int | None = None
    deliveries: int = 0
    replays: int | None = None
    submitted_ms: int | None = None
    since_ms: int | None = None
    due_ms: int | None = None
    ahead: int | None = None
    day: str | None = None
    outcome: str | None = None
    status: int | None = None
    waits: tuple[Wait, ...] = ()


class _Asked:
    """One question about a URL, in one crawl after the other.

    Args:
        insight: of the partition that owns the domain.
        domain: registrable domain of the URL.
        url: canonical.
        key: of the URL.
        now_ms: now.
    """

    def __init__(self, insight: Insight, domain: str, url: str, key: bytes, now_ms: int) -> None:
        self._insight = insight
        self._domain = domain
        self._url = url
        self._key = key
        self._now_ms = now_ms

    def kept(self, crawl: str) -> Standing | None:
        """It may be among what came for a crawl without a definition; that is looked through within bounds."""
        insight = self._insight
        if insight.policies.get(crawl) is not None:
            return None
        found = find_task(insight.view, insight.decode_task, crawl, self._domain, self._key, most=MAX_COUNTED)
        if found is None:
            return None
        record, replays = found
        word, reason = WHY_HELD[PlaceKind.RAW_UNKNOWN]
        return Standing(
            crawl, "held", word, reason, depth=record["depth"], source=record["source"], priority=record["priority"],
            replays=replays, submitted_ms=record["submitted_at_ms"],
        )  # fmt: skip

    def unknown(self, crawl: str) -> Standing:
        """Nothing is known of it: what would become of it as a link."""
        policy = self._insight.policies.get(crawl)
        if policy is None:
            return Standing(crawl, "unknown", "definition", "crawl_unknown")
        refusal = why(policy, self._url, "", None, self._now_ms)
        if refusal is None:
            return Standing(crawl, "unknown", "unknown")
        return Standing(crawl, "unknown", why_refused(refusal.reason), refusal.reason, _facts(refusal))

    def known(self, crawl: str, row: SeenRow) -> Standing:
        """It has a row in the seen table."""
        about = Standing(crawl, "", "", depth=row.depth, deliveries=row.deliveries)
        if row.state is not UrlState.PENDING:
            about = replace(about, day=str(EPOCH + timedelta(days=row.day)))
        if row.state is UrlState.DONE:
            status = row.status or None
            word = why_done(row.outcome)
            return replace(about, state="done", why=word, reason=row.reason, outcome=row.outcome, status=status)
        policy = self._insight.policies.get(crawl)
        if row.state is UrlState.REFUSED:
            facts = self._limit(crawl, policy, row.reason) or self._rule(policy, row)
            return replace(about, state="refused", why=why_refused(row.reason), reason=row.reason, facts=facts)
        packed = self._insight.view.get(OUT, url_row_key(crawl, self._key))
        if packed is not None:
            out = unpack_out(packed)
            about = replace(_with_task(about, out.task), facts=self._polling(crawl, out.task))
            return replace(about, state="out", why="out", lane=out.lane.name.lower(), since_ms=out.emitted_ms)
        return self._pending(about, row, policy)

    def _pending(self, about: Standing, row: SeenRow, policy: CrawlPolicy | None) -> Standing:
        insight, place = self._insight, row.place
        if place is None:
            return replace(about, state="waiting", why="turn")
        task = insight.task(self._domain, about.crawl, place)
        about = replace(about, lane=place.lane.name.lower(), due_ms=place.due_ms)
        if task is not None:
            about = replace(_with_task(about, task), facts=self._polling(about.crawl, task))
        if place.kind is not PlaceKind.WAITING:
            word, reason = WHY_HELD[place.kind]
            facts = {**about.facts, **self._limit(about.crawl, policy, reason)}
            return replace(about, state="held", why=word, reason=reason, facts=facts)
        ahead = insight.waiting(self._domain, place.lane, place)
        waits = own_wait(task, place.due_ms, self._now_ms)
        waits += domain_waits(insight, self._domain, policy, self._now_ms, task)
        # A time that lies ahead decides before the order of those that could go: the latest first.
        ahead_of_all = sorted((wait for wait in waits if wait.why in _TIMED), key=lambda wait: -(wait.until_ms or 0))
        busy = [wait for wait in waits if wait.why not in _TIMED]
        turn = Wait("turn", None, {"ahead": ahead})
        ordered = (*ahead_of_all, turn, *busy) if ahead else (*ahead_of_all, *busy, turn)
        return replace(about, state="waiting", why=ordered[0].why, ahead=ahead, waits=ordered)

    def _limit(self, crawl: str, policy: CrawlPolicy | None, reason: str) -> dict[str, Any]:
        """Return what a budget is and what of it is used, by today's definition of the crawl."""
        if policy is None:
            return {}
        usage = self._insight.usage(crawl, self._domain)
        facts: dict[str, Any] = {}
        match reason:
            case "crawl_budget":
                facts = {"limit": policy.max_pages, "of_day": policy.max_pages_per_day, "of_bytes": policy.max_bytes}
            case "domain_budget":
                facts = {"limit": policy.max_pages_per_domain, "value": usage.brought, "charged": usage.charged}
            case "domain_bytes":
                facts = {"limit": policy.max_bytes_per_domain, "value": usage.bytes}
            case "domain_day_budget":
                _, brought = on_day(usage.day, usage.brought_on_day, day_of(self._now_ms))
                facts = {"limit": policy.max_pages_per_domain_per_day, "value": brought}
            case "parameter_explosion":
                facts = {"limit": max_queries(self._url, self._insight.frontier)}
        return facts

    def _polling(self, crawl: str, task: Task) -> dict[str, Any]:
        """Return how a URL is polled; empty for work that is done once."""
        row = recurrence(self._insight.view, url_row_key(crawl, self._key)) if task.handling.interval_ms else None
        if row is None:
            return {}
        return {
            "poll": task.handling.poll,
            "wished_ms": row.wished_ms,
            "interval_ms": row.interval_ms,
            "changed_ms": row.changed_ms or None,
        }

    def _rule(self, policy: CrawlPolicy | None, row: SeenRow) -> dict[str, Any]:
        """Return the rule of today's definition that refuses the URL; its value alone where none does any more."""
        refusal = None if policy is None else why(policy, self._url, "", row.depth, self._now_ms)
        if refusal is not None and refusal.reason == row.reason:
            return _facts(refusal)
        if row.reason == "scope" and policy is not None and policy.scope.by_source:
            return {"detail": "a rule for its source, which is not kept"}
        # A start point may have set a lower depth than its crawl, and definitions change.
        return {"value": row.depth} if row.reason == "depth" else {}


_TIMED: Final = frozenset({"not_before", "retry", "deferred", "interval", "backoff", "hold", "rate_limit"})
"""Waits that have a time of their own; the others last as long as the domain is busy."""


def why_done(outcome: str) -> str:
    """Return what an outcome means: `seen`, `redirected`, `robots` or `failed`."""
    if outcome == "REDIRECTED":
        return "redirected"
    if outcome in SUCCESSES:
        return "seen"
    return "robots" if outcome in _ROBOTS else "failed"


def why_refused(reason: str) -> str:
    """Return what a refusal is about: `scope`, `depth`, `budget`, `trap`, `withdrawn`, or the `url` itself."""
    if reason in {"scope", "depth", "withdrawn"}:
        return reason
    if reason.endswith(("_budget", "_bytes")):
        return "budget"
    return "trap" if reason in TRAPS else "url"


def explain(  # noqa: PLR0917  # one URL in its four forms
    insight: Insight, domain: str, url: str, key: bytes, now_ms: int, crawl: str | None = None
) -> list[Standing]:
    """Say how a URL stands.

    Args:
        insight: of the partition that owns the domain.
        domain: registrable domain of the URL.
        url: canonical.
        key: of the URL.
        now_ms: now.
        crawl: in this crawl only; None for all that know it.

    Returns:
        One row for each crawl that knows the URL; for a crawl that is named always one.
    """
    asked = _Asked(insight, domain, url, key, now_ms)
    crawls = list(insight.crawls()) if crawl is None else [crawl]
    rows = insight.view.get_many(SEEN, [url_row_key(name, key) for name in crawls])
    found = []
    for name, packed in zip(crawls, rows, strict=True):
        row = None if packed is None else unpack_seen(packed)
        if row is not None and _is_forgotten(row, insight, now_ms):
            row = None
        standing = asked.kept(name) if row is None else asked.known(name, row)
        if standing is not None:
            found.append(standing)
    return found or ([] if crawl is None else [asked.unknown(crawl)])


def _is_forgotten(row: SeenRow, insight: Insight, now_ms: int) -> bool:
    """Return whether a URL lies beyond the horizon: it is new again, though its row may still be there."""
    horizon_days = days_of(insight.frontier.seen_horizon_s)
    return bool(horizon_days) and row.state is not UrlState.PENDING and row.day < day_of(now_ms) - horizon_days


def _with_task(about: Standing, task: Task) -> Standing:
    return replace(
        about,
        depth=task.depth,
        source=task.source,
        priority=task.priority,
        attempts=task.attempts,
        deliveries=task.deliveries,
        replays=task.replays,
        submitted_ms=task.submitted_at_ms,
    )


def _facts(refusal: Refusal) -> dict[str, Any]:
    return {name: said for name, said in refusal._asdict().items() if name != "reason" and said not in {None, ""}}
