"""One partition of the frontier: records in, what is due out. The single writer for its domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pipeline import topics
from pipeline.config import Frontier, Politeness
from pipeline.contracts.codec import Codecs
from pipeline.delivery.api import Output, SourceRecord, StateView, is_answered
from pipeline.errors import InputError
from pipeline.frontier import politeness
from pipeline.frontier.budget import CrawlBudget
from pipeline.frontier.claims import Claims
from pipeline.frontier.crawls import CrawlBook, CrawlState
from pipeline.frontier.days import day_of, days_of
from pipeline.frontier.domain_budget import DomainBudget
from pipeline.frontier.domains import DomainBook, Slots
from pipeline.frontier.emission import Emission
from pipeline.frontier.expiry import Expiry
from pipeline.frontier.held import Group
from pipeline.frontier.insight import Insight
from pipeline.frontier.lifecycle import Lifecycle
from pipeline.frontier.outcomes import Fate, Verdict, judge
from pipeline.frontier.outstanding import Outstanding
from pipeline.frontier.overview import Overview, overview
from pipeline.frontier.parked import Parked, count_parked
from pipeline.frontier.policy import Policies
from pipeline.frontier.record_checks import check_crawl, check_grant, check_outcome
from pipeline.frontier.records import OutRow, PlaceKind, Task, url_row_key
from pipeline.frontier.recurring import RecurringWork
from pipeline.frontier.releases import Releases
from pipeline.frontier.seen import SeenTable
from pipeline.frontier.variants import Variants
from pipeline.frontier.waiting import WaitingQueue

TURNS_PER_TICK: Final = 256
"""Most tasks given out, and most held ones let go, by one tick: some 10 ms. While more is due, more ticks follow, as
long as the round has time."""
POLL_MS: Final = 1_000
"""How often definitions that are waited for and grants are looked at."""
SLOW_POLL_MS: Final = 10_000
"""How often definitions that may have changed and leases that have passed are looked at."""


class TaskDeadLetter(Protocol):
    """Makes the dead letter of a task that was given up."""

    def __call__(
        self, value: bytes, *, key: bytes, reason: str, message: str, attempts: int, replays: int, cause: SourceRecord
    ) -> Output:
        """Return the record for `crawl.tasks.v1-dlq`.

        Args:
            value: a `Task` record, as it can be replayed.
            key: registrable domain.
            reason: `retries_exhausted` or `deadline`.
            message: what happened, for people.
            attempts: attempts that failed.
            replays: how often the task came back from the dead letters.
            cause: the outcome that ended the task.
        """
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a partition needs from around it; the same for all partitions of a worker.

    Attributes:
        frontier: settings.
        politeness: settings.
        codecs: contracts.
        partitions: partition count of every topic.
        policies: what the crawls allow.
        task_dead_letter: makes dead letters of tasks.
        lane_record_is_lost: says whether the lane record of a task whose lease has passed will never be handled.
        counters: what is counted for the operator, by name.
        parked: what is parked, by partition that is open, when last looked at.
    """

    frontier: Frontier
    politeness: Politeness
    codecs: Codecs
    partitions: int
    policies: Policies
    task_dead_letter: TaskDeadLetter
    lane_record_is_lost: Callable[[OutRow], bool]
    counters: Counter[str]
    parked: dict[int, Parked]


class FrontierPartition:
    """Decides for the domains of one partition what is fetched, when, and why not.

    Memory (heap, book, counters, known keys) is derived from the view alone: the object can be thrown away at any time
    and opened anew on the same view. A record that raises `InputError` has changed nothing.

    Args:
        around: settings and what else is shared.
        partition: its number.
        view: its state.

    Attributes:
        leases_overdue: tasks that are out for longer than their lease, when last looked at; should be 0.
    """

    def __init__(self, around: Surroundings, partition: int, view: StateView) -> None:
        self._around = around
        self._partition = partition
        self._view = view
        self._lease_ms = politeness.milliseconds(around.frontier.lease_s)
        codecs, policies = around.codecs, around.policies
        self._crawls = crawls = CrawlBook(view, around.partitions)
        self._outstanding = Outstanding(view)
        self._domains = DomainBook(view, self._outstanding.by_domain)
        self._slots = slots = Slots(self._domains, policies, around.politeness, around.frontier)
        self._waiting = WaitingQueue(view, slots.ready_ms)
        self._seen = seen = SeenTable(view, days_of(around.frontier.seen_horizon_s))
        self._expiry = Expiry(view, seen)
        self._life = life = Lifecycle(
            view,
            crawls=crawls,
            seen=seen,
            waiting=self._waiting,
            outstanding=self._outstanding,
            domains=self._domains,
        )
        self._recurring = RecurringWork(view, seen=seen, life=life, settings=around.frontier, counters=around.counters)
        self._domain_budget = DomainBudget(view)
        self._budget = CrawlBudget(
            view,
            partition,
            around.partitions,
            crawls=crawls,
            policies=policies,
            encode=codecs.encoder(topics.GRANTS.subject),
            granted=lambda crawl: self._releases.note(Group(PlaceKind.HELD_BUDGET, crawl)),
        )
        self._claims = Claims(
            partition,
            around.partitions,
            settings=around.frontier,
            policies=policies,
            crawls=crawls,
            seen=seen,
            life=life,
            recurring=self._recurring,
            domain_budget=self._domain_budget,
            variants=Variants(view, around.frontier, seen),
            codecs=codecs,
            counters=around.counters,
        )
        self._releases = Releases(
            life, self._claims, crawls, policies, crawl_budget=self._budget, domain_budget=self._domain_budget
        )
        self._emission = Emission(
            partition,
            waiting=self._waiting,
            domains=self._domains,
            slots=slots,
            crawls=crawls,
            policies=policies,
            crawl_budget=self._budget,
            domain_budget=self._domain_budget,
            life=life,
            recurring=self._recurring,
            encode=codecs.encoder(topics.LANE_NORMAL.subject),
        )
        self._decode_outcome = codecs.decoder(topics.FETCHES.subject)
        self._decode_parsed = codecs.decoder(topics.PARSED.subject)
        self._decode_grant = codecs.decoder(topics.GRANTS.subject)
        self._encode_task = codecs.encoder(topics.TASKS.subject)
        self._encode_progress = codecs.encoder(topics.PROGRESS.subject)
        self._handlers: dict[str, Callable[[SourceRecord, int], list[Output]]] = {
            topics.TASKS.name: self._claims.take_task,
            topics.TASKS_URGENT.name: self._claims.take_task,
            topics.LINKS.name: self._claims.take_links,
            topics.PARSED.name: self._on_parsed,
            topics.FETCHES.name: self._on_outcome,
            topics.GRANTS.name: self._on_grant,
        }
        self._polled_ms = 0
        self.leases_overdue = 0

    # ---- an ordered partition

    def handle(self, record: SourceRecord, now: float) -> list[Output]:
        now_ms = politeness.milliseconds(now)
        self._seen.turn_to(day_of(now_ms))
        outputs = self._handlers[record.topic](record, now_ms)
        outputs += self._settle(now_ms)
        return outputs

    def due(self) -> float | None:
        if self._releases:
            return 0.0
        moments = (self._waiting.next_ms(), self._crawls.report_ms(), self._next_poll_ms(), self._expiry.due_ms())
        due_ms = min((moment for moment in moments if moment is not None), default=None)
        return None if due_ms is None else due_ms / 1000

    def tick(self, now: float) -> list[Output]:
        now_ms = politeness.milliseconds(now)
        self._seen.turn_to(day_of(now_ms))
        poll_ms = self._next_poll_ms()
        outputs = self._poll(now_ms) if poll_ms is not None and poll_ms <= now_ms else []
        outputs += self._releases.run(TURNS_PER_TICK, now_ms)
        outputs += self._emission.run(TURNS_PER_TICK, now_ms)
        self._around.counters["urls_forgotten"] += self._expiry.run(now_ms)
        outputs += self._settle(now_ms)
        for progress in self._crawls.reports(self._partition, now_ms):
            key = f"{progress['crawl']}/{self._partition}".encode()
            outputs.append(Output(topics.PROGRESS.name, self._encode_progress(progress), key))
        return outputs

    def before_commit(self, positions: dict[str, tuple[int, int]], now: float) -> list[Output]:
        del positions, now
        return []

    def committed(self) -> None:
        """Do nothing: all there is to keep is in the view."""

    def aborted(self) -> None:
        """Do nothing: all there is to keep is in the view."""

    def close(self) -> None:
        """Take back what is told of it; all there is to keep is in the view."""
        self._around.parked.pop(self._partition, None)

    # ---- for people

    def insight(self) -> Insight:
        """Return what may be looked at between two rounds; nothing is changed by it."""
        around = self._around
        decode_task = around.codecs.decoder(topics.TASKS.subject)
        return Insight(self._view, around.policies, around.politeness, around.frontier, self._domains.out, decode_task)

    def overview(self, domains: int, now: float) -> Overview:
        """Return what is under way, with the domains that have most of it."""
        now_ms = politeness.milliseconds(now)
        return overview(self.insight(), self._waiting, self._domains, self._crawls.states(), domains, now_ms)

    # ---- records

    def _on_parsed(self, record: SourceRecord, now_ms: int) -> list[Output]:
        parsed = self._decode_parsed(record.value)
        check_crawl(parsed["crawl"], "schema_rejected")
        targets = parsed["link_records"]
        if any(not 0 <= target < self._around.partitions for target in targets):
            raise InputError("schema_rejected", "a partition that there is not", field="link_records")
        state = self._crawls.change(parsed["crawl"])
        if parsed["poll"] <= 1:
            state.pages_parsed += not is_answered(record.headers)
            for target in targets:
                state.announce(target)
        self._recurring.parsed(parsed, now_ms)
        return []

    def _on_grant(self, record: SourceRecord, now_ms: int) -> list[Output]:
        grant = self._decode_grant(record.value)
        check_grant(grant)
        return list(self._budget.receive(grant, record.value or b"", now_ms))

    def _on_outcome(self, record: SourceRecord, now_ms: int) -> list[Output]:
        outcome = self._decode_outcome(record.value)
        check_outcome(outcome)
        brought = outcome["outcome"] == "FETCHED"
        state = self._crawls.change(outcome["crawl"])
        received_bytes = outcome["bytes_wire"]
        state.bytes_received += received_bytes
        out = self._outstanding.get(url_row_key(outcome["crawl"], outcome["url_key"]))
        if out is None or out.task.deliveries != outcome["delivery"]:
            out = None
        if out is not None and out.task.is_later_poll:
            state.pages_polled += brought
        else:
            state.pages_fetched += brought
            state.redirects_sent += outcome["outcome"] == "REDIRECTED"
        if out is None:
            self._around.counters["stale_outcomes"] += 1
            return []
        task = out.task
        verdict = judge(task, outcome, self._domains.get(task.domain).pace, self._around.frontier, now_ms)
        self._note_pace(task, outcome, verdict, now_ms)
        outputs = self._settle_charges(out, state, now_ms, brought=brought, received_bytes=received_bytes)
        task.attempts = verdict.attempts
        if verdict.fate is Fate.WAITS:
            self._life.wait_again(out, verdict.due_ms)
            return outputs
        is_poll = task.handling.poll > 0
        if is_poll and self._recurring.ended(out, outcome, now_ms):
            return outputs
        reason = outcome["reason"] or verdict.reason
        self._life.end(out, outcome["outcome"], outcome["status"] or 0, reason, failed=verdict.failed)
        self._emission.release(task.domain)
        if verdict.fate is Fate.DIES and not is_poll:  # a poll that failed is followed by the next one
            outputs.append(self._dead_letter(task, verdict, record))
        return outputs

    def _note_pace(self, task: Task, outcome: Mapping[str, Any], verdict: Verdict, now_ms: int) -> None:
        host = task.url.split("/", 3)[2]
        pace = politeness.after_outcome(
            self._domains.get(task.domain).pace,
            task.domain,
            host,
            outcome,
            incident=verdict.incident,
            granted_ms=self._slots.granted_ms(task.domain, self._around.policies.get(task.crawl)),
            first_backoff_ms=politeness.milliseconds(self._around.politeness.backoff_s),
            now_ms=now_ms,
        )
        self._domains.set_pace(task.domain, pace)

    def _settle_charges(
        self, out: OutRow, state: CrawlState, now_ms: int, *, brought: bool, received_bytes: int
    ) -> list[Output]:
        """A page that was brought is spent; a charge that brought none goes back to where it came from."""
        task = out.task
        policy = self._around.policies.get(task.crawl)
        counts_bytes = policy is not None and policy.max_bytes_per_domain is not None
        if out.charged_domain or counts_bytes:
            self._domain_budget.settle(
                task.crawl, task.domain, now_ms, charged=out.charged_domain, brought=brought,
                received_bytes=received_bytes if counts_bytes else 0,
            )  # fmt: skip
            self._releases.note(Group(PlaceKind.HELD_DOMAIN, task.crawl, task.domain))
            if not brought:
                self._releases.note(Group(PlaceKind.HELD_DAY, task.crawl, task.domain), 1)
        outputs: list[Output] = []
        if out.charged_crawl and not brought:
            outputs += self._budget.refund(state, out, now_ms)
            self._releases.note(Group(PlaceKind.HELD_BUDGET, task.crawl), 1)
        elif not out.charged_crawl and state.unspent_bytes > 0:
            # For each task that ends two may go on: the estimate of how many the bytes will do is corrected as it goes.
            self._releases.note(Group(PlaceKind.HELD_BUDGET, task.crawl), 2)
        return outputs

    def _dead_letter(self, task: Task, verdict: Verdict, cause: SourceRecord) -> Output:
        self._around.counters["dead_tasks"] += 1
        record = {
            "crawl": task.crawl,
            "url": task.url,
            "priority": task.priority,
            "depth": task.depth,
            "source": task.source,
            "submitted_at_ms": task.submitted_at_ms,
            "not_before_ms": 0,
            "timeout_ms": task.timeout_ms,
            "redirects": list(task.redirects),
            "concurrency": task.concurrency,
            **task.handling._asdict(),
            "replay": False,
        }
        return self._around.task_dead_letter(
            self._encode_task(record),
            key=task.domain.encode(),
            reason=verdict.reason,
            message=verdict.message,
            attempts=verdict.attempts,
            replays=task.replays,
            cause=cause,
        )

    def _settle(self, now_ms: int) -> list[Output]:
        """Ask for pages that are missing, and write the counters: after each record and each tick."""
        outputs: list[Output] = []
        for state in self._crawls.touched():
            outputs += self._budget.ask_for(state, now_ms)
        self._crawls.write()
        return outputs

    # ---- what is looked at now and then

    def _next_poll_ms(self) -> int | None:
        """Return when definitions, grants and leases are to be looked at, None while there is nothing to look at."""
        held = self._life.held
        moments = []
        if held.waits_for_definition() or self._crawls.granted:
            moments.append(self._polled_ms + POLL_MS)
        if held.groups or self._budget.pending:
            moments.append(self._polled_ms + SLOW_POLL_MS)
        if any(self._domains.slow()):
            moments.append(self._polled_ms + SLOW_POLL_MS)
        oldest_ms = self._outstanding.oldest_ms()
        if oldest_ms is not None:
            moments.append(max(oldest_ms + self._lease_ms, self._polled_ms + SLOW_POLL_MS))
        return min(moments, default=None)

    def _poll(self, now_ms: int) -> list[Output]:
        self._polled_ms = now_ms
        self._around.parked[self._partition] = count_parked(self._domains, self._slots, self._waiting, now_ms)
        self._releases.note_new_policies()
        self._releases.note_new_day(now_ms)
        outputs = list(self._budget.serve_pending(now_ms))
        outputs += self._budget.give_back_unused(now_ms)
        overdue = list(self._outstanding.emitted_before(now_ms - self._lease_ms))
        self.leases_overdue = len(overdue)
        for out in overdue:
            if self._around.lane_record_is_lost(out):
                self._around.counters["lane_records_lost"] += 1
                outputs += self._emission.again(out, now_ms)
        return outputs
