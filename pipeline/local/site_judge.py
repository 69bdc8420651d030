"""Judge a crawler by what the site saw of it: pace, robots.txt, Retry-After. Pure: logs in, findings out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pipeline.local.expectation import Expectation
from pipeline.local.request_log import LoggedRequest
from pipeline.web.url import canonical_form

MS_NS = 10**6
SECOND_NS = 10**9
TOLERANCE_NS = 2 * MS_NS
"""Records carry whole milliseconds, and libuv's timers (uvloop) fire up to one early."""
SLACK_MS = 100
"""By how much a crawler's times of a request may lie inside the site's: both clocks are the machine's."""
HELD_NS = 10 * SECOND_NS
"""A killed process may have held an answer for so long; refusals are to be committed at once."""
ROBOTS = "/robots.txt"
GONE = 0
REFUSALS = frozenset({429, 503})


class Outcome(NamedTuple):
    """A fetch whose outcome was committed: the crawler can know what it was told in this time.

    Attributes:
        url: as any record has it.
        started_at_ms, ended_at_ms: of the fetch, milliseconds since the epoch.
    """

    url: str
    started_at_ms: int
    ended_at_ms: int


class RobotsRead(NamedTuple):
    """A robots.txt whose reading was committed.

    Attributes:
        origin: scheme://host:port.
        fetched_at_ms: milliseconds since the epoch.
    """

    origin: str
    fetched_at_ms: int


class Interruption(NamedTuple):
    """A time in which a process may have held what it had been told and never committed it.

    Attributes:
        began_ns, ended_ns: nanoseconds since the epoch; equal where a process was killed out of its work.
        agent: User-Agent of the process, in small letters; empty where it isn't known which one it was.
    """

    began_ns: int
    ended_ns: int
    agent: str = ""

    def may_have_lost(self, request: LoggedRequest) -> bool:
        """Whether the answer to a request may have been held then."""
        overlaps = request.start_ns <= self.ended_ns and self.began_ns <= request.end_ns + HELD_NS
        return overlaps and self.agent in {"", request.agent}


def killed(at_ns: int, agent: str = "") -> Interruption:
    """Return the interruption of a process that was killed out of its work."""
    return Interruption(at_ns, at_ns, agent)


class Closest(NamedTuple):
    """The pair of requests to one registrable domain with the least to spare.

    Attributes:
        url: what was asked for.
        after: the request before.
        pause_s: between the end of the one and the start of the other, seconds.
        allowed_s: least pause, seconds.
    """

    url: str
    after: str
    pause_s: float
    allowed_s: float

    @property
    def spare_s(self) -> float:
        """By how much the pause is longer than it must be."""
        return self.pause_s - self.allowed_s


Why = Literal["delay", "crawl-delay", "retry-after", "backoff"]


class TooClose(NamedTuple):
    """A request that came before its time.

    Attributes:
        url: what was asked for.
        after: the request before, or the one that was answered with Retry-After.
        why: which wish was broken; `backoff`: a refusal that named no time.
        early_s: by how much, seconds.
    """

    url: str
    after: str
    why: Why
    early_s: float


@dataclass(frozen=True, slots=True)
class SiteFindings:
    """What the log of a site tells.

    Attributes:
        requests: how many.
        statuses: how many by status; 0 where the client went away.
        too_close: requests before their time.
        excused: requests that only an answer forbade which nobody alive can have known of.
        disallowed: URLs that robots.txt forbids and that were asked, each as often as it was.
        before_robots: pages that were asked before robots.txt of their host had been answered.
        asked_twice: canonical URLs that were answered with 200 more than once (robots.txt apart): information, no
            fault.
        closest: the pair with the least to spare; None without a pair.
    """

    requests: int
    statuses: Mapping[int, int]
    too_close: tuple[TooClose, ...]
    excused: int
    disallowed: tuple[str, ...]
    before_robots: tuple[str, ...]
    asked_twice: tuple[str, ...]
    closest: Closest | None


class _Block(NamedTuple):
    request: LoggedRequest
    until_ns: int
    known: bool
    why: Why


def judge_site(
    requests: Sequence[LoggedRequest],
    expectation: Expectation,
    delay_s: float,
    *,
    backoff_s: float = 0.0,
    outcomes: Iterable[Outcome] = (),
    robots_reads: Iterable[RobotsRead] = (),
    interruptions: Sequence[Interruption] | None = None,
) -> SiteFindings:
    """Judge the requests of a crawl.

    Args:
        requests: the site's log, by start.
        expectation: what the site asks for.
        delay_s: pause that the crawler is bound to keep after each request to a registrable domain, seconds; with 0
            only the site's own wishes count.
        backoff_s: pause that it is bound to keep after a page was refused with 429 or 503 and without a time, seconds.
        outcomes: fetches whose outcome was committed.
        robots_reads: robots.txt files whose reading was committed.
        interruptions: when processes were killed, or stopped and replaced: the only excuse for a request against a
            Retry-After without an outcome. None: it isn't known, any such answer may have been lost that way.
    """
    times: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        times[canonical_form(outcome.url)].append(outcome)
    by_domain: dict[str, list[LoggedRequest]] = defaultdict(list)
    for request in requests:
        by_domain[expectation.domain(request.host)].append(request)
    reads_ns: dict[str, list[int]] = defaultdict(list)
    for read in robots_reads:
        reads_ns[expectation.domain(read.origin.partition("://")[2])].append(read.fetched_at_ms * MS_NS)

    too_close: list[TooClose] = []
    closest: list[Closest] = []
    excused = 0
    for domain, ours in by_domain.items():
        blocks = [
            _Block(request, until_ns, not _may_be_lost(request, times[request.page], interruptions), why)
            for request in ours
            for until_ns, why in _wish(request, backoff_s)
        ]
        crawl_delay_s = expectation.crawl_delay_s.get(domain, 0.0)
        found, forgiven, nearest = _judge_pace(ours, delay_s, crawl_delay_s, reads_ns[domain], blocks)
        too_close += found
        excused += forgiven
        closest += nearest

    answered = Counter(request.page for request in requests if request.status == 200 and request.path != ROBOTS)
    pages = [request for request in requests if request.path != ROBOTS]
    return SiteFindings(
        requests=len(requests),
        statuses=Counter(request.status for request in requests),
        too_close=tuple(too_close),
        excused=excused,
        disallowed=tuple(page.url for page in pages if expectation.is_disallowed(page.host, page.path)),
        before_robots=_before_robots(requests),
        asked_twice=tuple(url for url, times_asked in answered.items() if times_asked > 1),
        closest=min(closest, key=lambda pair: pair.spare_s, default=None),
    )


def _judge_pace(
    requests: Sequence[LoggedRequest],
    delay_s: float,
    crawl_delay_s: float,
    reads_ns: Sequence[int],
    blocks: Sequence[_Block],
) -> tuple[list[TooClose], int, list[Closest]]:
    """Judge the requests to one registrable domain; also returns how many were excused, and the closest pair."""
    found = []
    closest: list[Closest] = []
    excused = 0
    previous: LoggedRequest | None = None  # the one that ended last
    robots_answered = False
    for request in requests:
        wishes: list[tuple[int, str, Why]] = []
        if previous is not None and delay_s > 0:
            wishes.append((previous.end_ns + round(delay_s * SECOND_NS), previous.url, "delay"))
        if previous is not None and crawl_delay_s > delay_s:
            # Who asks for robots.txt may be a successor of the one that was told: only what was committed counts then.
            known = any(read < request.start_ns for read in reads_ns) if request.path == ROBOTS else robots_answered
            if known:
                wishes.append((previous.end_ns + round(crawl_delay_s * SECOND_NS), previous.url, "crawl-delay"))
        if previous is not None and wishes:
            pause_ns = request.start_ns - previous.end_ns
            allowed_ns = max(wish[0] for wish in wishes) - previous.end_ns
            pair = Closest(request.url, previous.url, pause_ns / SECOND_NS, allowed_ns / SECOND_NS)
            closest = [min([*closest, pair], key=lambda one: one.spare_s)]
        standing = [block for block in blocks if block.request.end_ns <= request.start_ns]
        wishes += [(block.until_ns, block.request.url, block.why) for block in standing if block.known]
        earliest_ns, after, why = max(wishes, default=(0, "", "delay"))
        if request.start_ns < earliest_ns - TOLERANCE_NS:
            found.append(TooClose(request.url, after, why, (earliest_ns - request.start_ns) / SECOND_NS))
        elif any(request.start_ns < block.until_ns - TOLERANCE_NS for block in standing):
            excused += 1
        robots_answered = robots_answered or (request.path == ROBOTS and request.status == 200)
        if previous is None or request.end_ns > previous.end_ns:
            previous = request
    return found, excused, closest


def _wish(request: LoggedRequest, backoff_s: float) -> Iterable[tuple[int, Why]]:
    """Until when an answer asked to be left alone; nothing where it did not."""
    if request.retry_after_ns is not None:
        yield request.retry_after_ns, "retry-after"
    elif request.status in REFUSALS and request.path != ROBOTS and backoff_s > 0:
        yield request.end_ns + round(backoff_s * SECOND_NS), "backoff"


def _may_be_lost(
    request: LoggedRequest, outcomes: Sequence[Outcome], interruptions: Sequence[Interruption] | None
) -> bool:
    """Whether a process that was interrupted may have taken an answer with it."""
    for outcome in outcomes:
        started_ns = (outcome.started_at_ms - SLACK_MS) * MS_NS
        ended_ns = (outcome.ended_at_ms + SLACK_MS) * MS_NS
        if started_ns <= request.start_ns and request.end_ns <= ended_ns:
            return False
    return interruptions is None or any(one.may_have_lost(request) for one in interruptions)


def _before_robots(requests: Sequence[LoggedRequest]) -> tuple[str, ...]:
    answered_ns: dict[str, int] = {}
    for request in requests:
        if request.path == ROBOTS and request.status != GONE:
            answered_ns[request.host] = min(request.end_ns, answered_ns.get(request.host, request.end_ns))
    return tuple(
        request.url
        for request in requests
        if request.path != ROBOTS and request.start_ns < answered_ns.get(request.host, request.start_ns + 1)
    )
