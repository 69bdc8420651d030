"""Fetch stage: ready tasks in, outcomes and pages out; the way between is `pipeline.fetch.visit`.

The stage decides nothing lasting: what can't run soon goes back as DEFERRED, and retries, budgets and pace are the
frontier's.
"""

from __future__ import annotations

import hashlib
import math
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import zstandard

from pipeline import topics
from pipeline.config import Settings
from pipeline.contracts import Codecs
from pipeline.delivery.api import Change, Output, Result, SourceRecord, StateView
from pipeline.errors import InputError
from pipeline.fetch.address_limit import AddressLimiter
from pipeline.fetch.body import Body
from pipeline.fetch.client import Client, Response
from pipeline.fetch.endings import Ending
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.guard import AddressGuard
from pipeline.fetch.holds import Holds
from pipeline.fetch.robots_cache import RobotsCache, origin_of
from pipeline.fetch.slots import GateClock
from pipeline.fetch.told_limits import ToldLimits
from pipeline.fetch.validators import NO_VALIDATORS, Validators, validators_of
from pipeline.fetch.visit import Visit, Visitor
from pipeline.web.domains import registrable_domain
from pipeline.web.url import CanonicalUrl, canonicalize

PACK_FROM_BYTES: Final = 1024
"""Smaller bodies are not worth packing."""
PACK_LEVEL: Final = 1
URGENT_PRIORITY: Final = 1
MAX_FIELD_CHARACTERS: Final = 1024
"""Longest header value that goes into a record: a site could fill records, and the frontier's state, with them."""
MAX_ROBOTS_FIELDS: Final = 16

Task = dict[str, Any]
"""A `FrontierTask` record."""


class FetchStage:
    """A `ParallelStage`.

    Args:
        settings: of the worker.
        codecs: of the contracts.
        membership_is_fresh: whether the last good heartbeat is young enough that nobody else can own the partitions;
            asked right before each request is written. False: no request is made. Such a task ends as DEFERRED, which
            is published only if the membership was not lost after all.
        now: wall clock, s since the epoch.
        gate_clock: of the domain gate; injected by tests.
        tls: a verifying context; None takes the usual certificate authorities.

    Attributes:
        counters: since the worker started: `rate_limits_ignored`, `https_downgrades`, `told_limit:` and a rule's name.
    """

    def __init__(
        self,
        settings: Settings,
        codecs: Codecs,
        *,
        membership_is_fresh: Callable[[], bool],
        now: Callable[[], float] = time.time,
        gate_clock: GateClock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        fetch = settings.fetch
        self.counters: Counter[str] = Counter()
        self._settings = fetch
        self._retries_truncated = settings.frontier.max_attempts > 1
        self._worker = settings.worker.name
        self._unsaid_rest_s = settings.politeness.backoff_s
        self._now = now
        limiter = AddressLimiter(
            in_flight=fetch.per_address,
            interval_s=fetch.address_interval_s,
            max_wait_s=fetch.max_wait_s,
            clock=gate_clock,
        )
        guard = AddressGuard(fetch.allow_addresses)
        self._client = Client(fetch, guard, may_send=membership_is_fresh, limiter=limiter, tls=tls)
        self._gate = DomainGate(max_wait_s=fetch.max_wait_s, per_domain=fetch.per_domain, clock=gate_clock)
        self._robots = RobotsCache(
            self._client, self._gate, codecs, max_wait_s=fetch.max_wait_s, max_ratio=fetch.max_ratio, now=now
        )
        self._holds = Holds(self._gate, codecs, now)
        self._visitor = Visitor(
            fetch,
            told_limits=ToldLimits(fetch.told_limits),
            client=self._client,
            gate=self._gate,
            robots=self._robots,
            unsaid_rest_s=self._unsaid_rest_s,
            now=now,
            counters=self.counters,
        )
        self._decode = codecs.decoder(topics.LANE_NORMAL.subject)
        self._encode_outcome = codecs.encoder(topics.FETCHES.subject)
        self._encode_page = codecs.encoder(topics.PAGES.subject)
        self._encode_task = codecs.encoder(topics.TASKS.subject)
        self._packer = zstandard.ZstdCompressor(level=PACK_LEVEL)

    async def start(self) -> None:
        await self._client.start()

    async def stop(self) -> None:
        self._robots.stop()
        await self._client.close()

    def opened(self, partition: int, view: StateView | None) -> None:
        self._gate.opened(partition)
        self._robots.opened(partition, view)
        self._holds.opened(partition, view)

    def closed(self, partition: int) -> None:
        self._gate.closed(partition)
        self._robots.closed(partition)
        self._holds.closed(partition)

    async def handle(self, record: SourceRecord, *, backlog: bool) -> Result:
        """Fetch what a lane record names; see `ParallelStage.handle`.

        A backlog record goes back unasked: since it was written the frontier may have heard a site's wish that the
        record does not know.
        """
        task = self._decode(record.value)
        visit = self._visit(task, record)
        if backlog:
            ending = Ending("DEFERRED", "backlog", not_before_ms=visit.began_ms)
        else:
            ending = await self._visitor.go(visit)
        return self._result(record, task, visit, ending)

    async def dead_letter_outputs(self, record: SourceRecord, reason: str) -> list[Output]:
        """End the task for the frontier too, where the record can be read."""
        try:
            task = self._decode(record.value)
        except InputError:
            return []
        now_ms = self._now_ms()
        outcome = self._encode_outcome(
            {
                **_named(task),
                "outcome": "DEAD_LETTER",
                "reason": reason,
                "started_at_ms": now_ms,
                "ended_at_ms": now_ms,
                "worker": self._worker,
            }
        )
        return [Output(topics.FETCHES.name, outcome, record.key, record.partition)]

    def _visit(self, task: Task, record: SourceRecord) -> Visit:
        # The frontier has judged the length already, by its own configuration.
        url = canonicalize(task["url"], max_bytes=len(task["url"]))
        return Visit(
            url,
            record.key.decode("utf-8", "replace") if record.key else registrable_domain(url.host),
            record.partition,
            self._now_ms(),
            chain=tuple(task["redirects"]),
            validators=Validators(task["etag"], task["last_modified"]),
            delay_s=task["delay_ms"] / 1000,
            not_before_ms=task["not_before_ms"],
            dealt_at_ms=task["emitted_at_ms"],
            timeout_s=task["timeout_ms"] / 1000,
            source=task["source"],
            is_urgent=task["priority"] <= URGENT_PRIORITY,
            retries_truncated=self._retries_truncated and task["attempt"] == 0,
        )

    def _rest(self, visit: Visit, ending: Ending) -> list[Change]:
        """Keep what is in the lane already from a site that asked for rest; the frontier hears of it only later."""
        pause_s = ending.asked.rest_s
        if pause_s is None and ending.is_refusal:
            pause_s = self._unsaid_rest_s
        if pause_s is None:
            return self._holds.over(visit.domain, visit.partition)
        return [self._holds.hold(visit.domain, visit.partition, origin_of(visit.url), ending.status, pause_s)]

    # ---- records

    def _result(self, record: SourceRecord, task: Task, visit: Visit, ending: Ending) -> Result:
        key, here = record.key or visit.domain.encode(), record.partition
        outputs = []
        response = visit.response
        if ending.outcome == "FETCHED" and response is not None:
            encoding, packed = self._pack(response.body.data)
            if len(packed) > self._settings.max_inline_bytes:
                ending = replace(ending, outcome="TOO_LARGE", reason="inline_bytes")
            else:
                outputs.append(Output(topics.PAGES.name, self._page(task, response, encoding, packed), key, here))
        outputs.append(Output(topics.FETCHES.name, self._outcome(task, visit, ending), key, here))
        if ending.location is not None:
            outputs.append(self._redirect(task, visit.url, ending.location))
        return Result(
            outputs,
            changes=self._robots.changes(visit.url, visit.partition) + self._rest(visit, ending),
            urgent=record.topic == topics.LANE_URGENT.name or ending.is_overload,
        )

    def _pack(self, body: bytes) -> tuple[str, bytes]:
        return ("ZSTD", self._packer.compress(body)) if len(body) > PACK_FROM_BYTES else ("IDENTITY", body)

    def _page(self, task: Task, response: Response, encoding: str, packed: bytes) -> bytes:
        return self._encode_page(
            {
                **_named(task),
                "depth": task["depth"],
                "priority": task["priority"],
                "source": task["source"],
                **{name: task[name] for name in ("parser", "max_depth", "poll", "render", "known_content_hashes")},
                "status": response.status,
                "content_type": response.content_type[:MAX_FIELD_CHARACTERS],
                "robots_header": "\n".join(
                    value.decode("latin-1")[:MAX_FIELD_CHARACTERS]
                    for value in response.values(b"x-robots-tag")[:MAX_ROBOTS_FIELDS]
                ),
                "body_encoding": encoding,
                "body": packed,
                "body_bytes": len(response.body.data),
                "body_sha256": hashlib.sha256(response.body.data).digest(),
                "truncated": response.body.truncated,
                "redirects": task["redirects"],
                "submitted_at_ms": task["submitted_at_ms"],
                "fetched_at_ms": self._now_ms(),
            }
        )

    def _outcome(self, task: Task, visit: Visit, ending: Ending) -> bytes:
        response = visit.response
        body = response.body if response else Body()
        known_by = validators_of(response, self._now()) if response else NO_VALIDATORS
        now_ms = self._now_ms()
        wish_s, limit, _ = ending.asked
        return self._encode_outcome(
            {
                **_named(task),
                "outcome": ending.outcome,
                "status": ending.status,
                "reason": ending.reason,
                "location": ending.location and ending.location.wire,
                "address": ending.address,
                "retry_after_ms": None if wish_s is None else now_ms + math.ceil(wish_s * 1000),
                "rate_limit_reset_ms": limit and now_ms + math.ceil(limit.reset_s * 1000),
                "rate_limit_remaining": limit and limit.remaining,
                "not_before_ms": ending.not_before_ms,
                "crawl_delay_ms": None if visit.crawl_delay_s is None else math.ceil(visit.crawl_delay_s * 1000),
                "requests": visit.requests,
                "started_at_ms": visit.began_ms,
                "ended_at_ms": now_ms,
                "bytes_wire": body.bytes_wire,
                "bytes_decoded": len(body.data),
                "etag": known_by.etag,
                "last_modified": known_by.last_modified,
                "worker": self._worker,
            }
        )

    def _redirect(self, task: Task, url: CanonicalUrl, location: CanonicalUrl) -> Output:
        """The same wish for the target of a redirect; its domain's frontier claims it.

        Headers stay with the origin they were meant for, also when the way leads back to it (Fetch Standard, "HTTP-
        redirect fetch": what was removed on the way does not come again).
        """
        if url.scheme == "https" and location.scheme == "http":
            self.counters["https_downgrades"] += 1
        topic = topics.TASKS_URGENT if task["priority"] == URGENT_PRIORITY else topics.TASKS
        value = self._encode_task(
            {
                "crawl": task["crawl"],
                "url": location.wire,
                "priority": task["priority"],
                "depth": task["depth"],
                "source": task["source"],
                "submitted_at_ms": task["submitted_at_ms"],
                "not_before_ms": 0,
                "timeout_ms": task["timeout_ms"],
                **{name: task[name] for name in _HANDED_ON},
                "headers_ref": task["headers_ref"] if origin_of(url) == origin_of(location) else "",
                "redirects": [*task["redirects"], task["url"]],
                "replay": False,
            }
        )
        return Output(topic.name, value, registrable_domain(location.host).encode())

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


_HANDED_ON: Final = ("parser", "concurrency", "max_depth", "interval_ms", "poll", "render")
"""What a redirect hands on as it is."""


def _named(task: Task) -> dict[str, Any]:
    """What names the task in every record that comes of it."""
    return {name: task[name] for name in ("crawl", "url", "url_key", "delivery")}
