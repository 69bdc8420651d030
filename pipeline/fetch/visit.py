"""The way of one page, from its URL to an ending; for the stage, and for a person who looks at one page.

In this order: what robots.txt says, leave from the domain gate, a look whether the partition is still ours, one
request, one ending. Nothing lasting is decided: what can't run soon ends as DEFERRED.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pipeline.config import Fetch
from pipeline.errors import SiteError
from pipeline.fetch import redirects
from pipeline.fetch.address_limit import AddressBusy
from pipeline.fetch.body import Limits
from pipeline.fetch.client import Client, Response
from pipeline.fetch.endings import OVERLOADED, Ending, judge, judge_error, told_limit, wants_page
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.robots_answer import Robots
from pipeline.fetch.robots_cache import RobotsCache, origin_of
from pipeline.fetch.slots import Deferred
from pipeline.fetch.steps import is_watched, tell
from pipeline.fetch.told_limits import ToldLimits
from pipeline.fetch.transport import UNSENT, StaleMembership
from pipeline.fetch.validators import NO_VALIDATORS, Validators
from pipeline.fetch.wishes import NOTHING, Wishes, read_wishes
from pipeline.web.robots import RobotsRules
from pipeline.web.url import CanonicalUrl


@dataclass(slots=True)
class Visit:
    """One page on its way.

    Attributes:
        url: where it goes; within the fetch it may become another spelling of the same page.
        domain: registrable domain, whose gate it passes.
        partition: the one that the domain belongs to.
        chain: URLs that led to it, as they were asked for, the oldest first.
        validators: make the request conditional.
        delay_s: pause between requests to the domain.
        not_before_ms: earliest request, ms since the epoch.
        dealt_at_ms: what is known of the domain is from then, ms since the epoch; None for now.
        source: name of the source that wished it; empty for none.
        timeout_s: time for all its requests; 0 for the configured one.
        is_urgent: whether it passes others of its domain.
        retries_truncated: whether a page that is not whole may be asked for again; else it is taken as it is.
        began_ms: when the first request for the page was made, ms since the epoch; else when work on it began.
        requests: requests for the page.
        spent_s: time they took.
        rules: of robots.txt; None where there are none.
        crawl_delay_s: what robots.txt asks for; None for nothing.
        response: the last answer.
        asked: what its headers ask for.
        told: name of the rule by which it is a refusal in disguise; None where it is what its status says.
        robots_wish_ms: until when the answer that brought robots.txt asked to be left alone, ms since the epoch; None
            for nothing.
    """

    url: CanonicalUrl
    domain: str
    partition: int
    began_ms: int
    chain: tuple[str, ...] = ()
    validators: Validators = NO_VALIDATORS
    delay_s: float = 0.0
    not_before_ms: int = 0
    dealt_at_ms: int | None = None
    source: str = ""
    timeout_s: float = 0.0
    is_urgent: bool = False
    retries_truncated: bool = False
    requests: int = 0
    spent_s: float = 0.0
    rules: RobotsRules | None = None
    crawl_delay_s: float | None = None
    response: Response | None = None
    asked: Wishes = NOTHING
    told: str | None = None
    robots_wish_ms: int | None = None


class Visitor:
    """Goes the way of a page.

    Args:
        settings: limits, the user agent.
        client: asks.
        gate: gives leave, and is told at once what a site asked for.
        robots: what holds for each origin.
        told_limits: tell refusals in disguise.
        unsaid_rest_s: rest for a site that was overloaded and named no time.
        now: wall clock, s since the epoch.
        counters: counts `rate_limits_ignored`, and `told_limit:` with the name of each rule that was met.
        wants: whether the body of an answer from a URL is to be read.
    """

    def __init__(
        self,
        settings: Fetch,
        *,
        client: Client,
        gate: DomainGate,
        robots: RobotsCache,
        told_limits: ToldLimits,
        unsaid_rest_s: float,
        now: Callable[[], float],
        counters: Counter[str],
        wants: Callable[[Response, str], bool] = wants_page,
    ) -> None:
        self._settings = settings
        self._client = client
        self._gate = gate
        self._robots = robots
        self._told_limits = told_limits
        self._unsaid_rest_s = unsaid_rest_s
        self._now = now
        self._counters = counters
        self._wants = wants

    async def go(self, visit: Visit) -> Ending:
        """Return how the visit ended; what came of it on the way is noted in it."""
        try:
            ending = await self._go(visit)
        except StaleMembership:
            ending = Ending("DEFERRED", "stale_membership", not_before_ms=self._now_ms())
        return self._with_robots_wish(visit, ending)

    async def _go(self, visit: Visit) -> Ending:
        if self._settings.robots:
            denied = await self._ask_robots(visit)
            if denied is not None:
                return denied
        return await self._ask_page(visit)

    async def _ask_robots(self, visit: Visit) -> Ending | None:
        """Return the ending of a page that may not be asked for; None lets it."""
        robots = await self._robots.get(
            visit.url,
            visit.domain,
            visit.partition,
            delay_s=visit.delay_s,
            not_before=self._at_gate(visit.not_before_ms),
            urgent=visit.is_urgent,
        )
        if isinstance(robots, Deferred):
            return self._deferred(robots, "robots_gate")
        visit.robots_wish_ms = robots.wish_until_ms
        if is_watched():
            tell("robots", **self._verdict(visit, robots))
        if robots.state == "CLOSED":
            # Where nobody may connect to the host, robots.txt is not what is missing, and no later attempt will do.
            refusal = await self._client.refusal(visit.url.wire) if robots.status is None else None
            if refusal is not None:
                return judge_error(refusal)
            return Ending("ROBOTS_UNREACHABLE", robots.reason, robots.status, not_before_ms=robots.expires_at_ms)
        if robots.rules is None:
            return None
        visit.rules = robots.rules
        visit.crawl_delay_s = robots.rules.crawl_delay_s(self._settings.user_agent)
        denied = self._denied(visit)
        if denied is None or visit.url.wire == visit.url.href:
            return denied
        # A rule against tracking links means the links; the page itself may be free.
        visit.url = visit.url._replace(wire=visit.url.href)
        return self._denied(visit)

    def _verdict(self, visit: Visit, robots: Robots) -> dict[str, Any]:
        """Return what robots.txt says of the page, for whoever looks."""
        facts = {"origin": origin_of(visit.url), "state": robots.state.lower(), "status": robots.status}
        agent, rules = self._settings.user_agent, robots.rules
        if rules is None:
            return {**facts, "reason": robots.reason, "allowed": robots.state == "OPEN", "line": None, "rule": None}
        verdict = rules.verdict(agent, visit.url.wire)
        return {**facts, "reason": "", **verdict._asdict(), "crawl_delay_s": rules.crawl_delay_s(agent)}

    def _denied(self, visit: Visit) -> Ending | None:
        """Return the ending of a page whose URL robots.txt disallows, as it is written."""
        if visit.rules is None:
            return None
        verdict = visit.rules.verdict(self._settings.user_agent, visit.url.wire)
        # The number is a line of robots.txt.
        return None if verdict.allowed else Ending("ROBOTS_DENIED", f"disallowed:{verdict.line}", asked=visit.asked)

    async def _ask_page(self, visit: Visit) -> Ending:
        """Ask for the page, again where its site leads back to it."""
        page = redirects.SamePage(visit.url)
        for hop in range(self._settings.max_redirects + 1):
            slot = await self._gate.acquire(
                visit.domain,
                visit.partition,
                delay_s=visit.delay_s,
                host_delay_s=visit.crawl_delay_s or 0.0,
                not_before=self._at_gate(visit.not_before_ms),
                dealt_at=math.inf if visit.dealt_at_ms is None else self._at_gate(visit.dealt_at_ms),
                urgent=visit.is_urgent,
            )
            if isinstance(slot, Deferred):
                # An attempt, for put off each time a cookie gate behind a long delay would be asked for ever.
                return Ending("NETWORK_ERROR", "hop_deferred") if hop else self._deferred(slot, "gate")
            with slot:
                try:
                    response = await self._request(visit, page.headers())
                except SiteError as exc:
                    return judge_error(exc)
                except AddressBusy as exc:
                    slot.discard()
                    if hop:
                        return Ending("NETWORK_ERROR", "hop_deferred")
                    return self._deferred(Deferred(exc.not_before), "address_gate")
            if visit.told is not None or not page.goes_on(response):
                break
            tell("hop", kind="same_page", url=page.url.wire)
            visit.url = page.url
            denied = self._denied(visit)
            if denied is not None:
                return denied
        return self._judged(visit, response)

    def _judged(self, visit: Visit, response: Response) -> Ending:
        if visit.told is not None:
            return told_limit(response, visit.told, visit.asked)
        return judge(
            response,
            url=visit.url.wire,
            chain=visit.chain,
            max_redirects=self._settings.max_redirects,
            longest_refresh_s=self._settings.max_refresh_s,
            is_conditional=bool(visit.validators.headers()),
            retry_truncated=visit.retries_truncated,
            asked=visit.asked,
        )

    async def _request(self, visit: Visit, cookies: dict[str, str]) -> Response:
        """Ask once; whatever comes of it is noted in the visit."""
        allowed_s = visit.timeout_s or self._settings.total_s
        began = self._now()
        if not visit.requests:
            visit.began_ms = int(began * 1000)
        try:
            response = visit.response = await self._client.get(
                visit.url.wire,
                headers={**visit.validators.headers(), **cookies},
                timeout_s=max(0.0, allowed_s - visit.spent_s),
                wants=partial(self._wanted, visit),
            )
        except SiteError as exc:
            visit.requests += exc.reason not in UNSENT
            visit.spent_s += max(0.0, self._now() - began)
            raise
        if not visit.requests:
            visit.began_ms = int((self._now() - response.elapsed_s) * 1000)  # without the wait for its address
        visit.requests += 1
        visit.spent_s += response.elapsed_s
        visit.asked = read_wishes(response, self._now())
        self._counters["rate_limits_ignored"] += visit.asked.limits_ignored
        # Before the slot is given back: whoever waits for it must know.
        visit.asked.heed(self._gate, visit.domain, visit.partition)
        visit.told = self._told_limits.told(response, visit.url.href, visit.source)
        if visit.told is not None:
            tell("limit", rule=visit.told)
            self._counters[f"told_limit:{visit.told}"] += 1
        if visit.told is not None or response.status in OVERLOADED:
            if visit.asked.rest_s is None:
                self._gate.hold(visit.domain, visit.partition, self._gate.now() + self._unsaid_rest_s)
            self._gate.refuse(visit.domain, visit.partition)
        return response

    def _wanted(self, visit: Visit, response: Response) -> bool | Limits:
        """Say how much of a body is to be read: all of what may become a page, and what a rule must see."""
        return self._wants(response, visit.url.wire) or (
            self._told_limits.body_limits(response.status, visit.url.href, visit.source) or False
        )

    def _with_robots_wish(self, visit: Visit, ending: Ending) -> Ending:
        """Tell what the answer that brought robots.txt asked for, too, while it holds."""
        now_ms = self._now_ms()
        until_ms = visit.robots_wish_ms
        if until_ms is None or until_ms <= now_ms:
            return ending
        wish_s = max((until_ms - now_ms) / 1000, ending.asked.wish_s or 0.0)
        return replace(ending, asked=ending.asked._replace(wish_s=wish_s))

    # ---- clocks: the gate's is monotonic, records carry wall time

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _at_gate(self, at_ms: int) -> float:
        return self._gate.now() + at_ms / 1000 - self._now()

    def _deferred(self, deferred: Deferred, reason: str) -> Ending:
        at = self._now() + deferred.not_before - self._gate.now()
        return Ending("DEFERRED", reason, not_before_ms=math.ceil(at * 1000))
