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
        overlaps = request.start_ns - request.late_ns <= self.ended_ns and self.began_ns <= request.end_ns + HELD_NS
        return overlaps and self.agent in {"", request.agent}


def killed(at_ns: int, agent: str = "") -> Interruption:
    """Return the interruption of a process that was killed out of its work."""
    return Interruption(at_ns, at_ns, agent)


class Closest(NamedTuple):
    """The pair of requests to one registrable domain with the least to spare, whatever the site read late.

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
        site_late: requests before their time by the log alone: not by more than the site's own process, which stood
            still, may have logged the earlier one too late.
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
    site_late: int
    excused: int
    disallowed: tuple[str, ...]
    before_robots: tuple[str, ...]
    asked_twice: tuple[str, ...]
    closest: Closest | None


class _Wish(NamedTuple):
    after: LoggedRequest
    until_ns: int
    why: Why
    known: bool = True

    @property
    def sure_ns(self) -> int:
        """Its end, if the request came in as early as it may have."""
        return self.until_ns - self.after.late_ns


class _Pace(NamedTuple):
    too_close: list[TooClose]
    site_late: int
    excused: int
    closest: Closest | None


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

    paces: list[_Pace] = []
    for domain, ours in by_domain.items():
        told = [
            _Wish(request, until_ns, why, not _may_be_lost(request, times[request.page], interruptions))
            for request in ours
            for until_ns, why in _wish(request, backoff_s)
        ]
        crawl_delay_s = expectation.crawl_delay_s.get(domain, 0.0)
        paces.append(_judge_pace(ours, delay_s, crawl_delay_s, reads_ns[domain], told))

    answered = Counter(request.page for request in requests if request.status == 200 and request.path != ROBOTS)
    pages = [request for request in requests if request.path != ROBOTS]
    return SiteFindings(
        requests=len(requests),
        statuses=Counter(request.status for request in requests),
        too_close=tuple(found for pace in paces for found in pace.too_close),
        site_late=sum(pace.site_late for pace in paces),
        excused=sum(pace.excused for pace in paces),
        disallowed=tuple(page.url for page in pages if expectation.is_disallowed(page.host, page.path)),
        before_robots=_before_robots(requests),
        asked_twice=tuple(url for url, times_asked in answered.items() if times_asked > 1),
        closest=_closest(pace.closest for pace in paces),
    )


def _judge_pace(
    requests: Sequence[LoggedRequest],
    delay_s: float,
    crawl_delay_s: float,
    reads_ns: Sequence[int],
    told: Sequence[_Wish],
) -> _Pace:
    """Judge the requests to one registrable domain.

    A request is excused by no more than the lateness that the log tells of the one before: its own doesn't count.
    """
    too_close = []
    closest: Closest | None = None
    site_late = excused = 0
    last: LoggedRequest | None = None  # the one that ended last
    surely_last: LoggedRequest | None = None  # the same, if each ended as early as it may have
    robots_answered = False
    for request in requests:
        wishes: list[_Wish] = []
        if last is not None and surely_last is not None:
            # Who asks for robots.txt may be a successor of the one that was told: only what was committed counts then.
            known = any(read < request.start_ns for read in reads_ns) if request.path == ROBOTS else robots_answered
            pause_s, why = _pause(delay_s, crawl_delay_s if known else 0.0)
            pause_ns = round(pause_s * SECOND_NS)
            if pause_ns > 0:
                wishes += [_Wish(one, one.end_ns + pause_ns, why) for one in (last, surely_last)]
                paused_s = (request.start_ns - surely_last.earliest_end_ns) / SECOND_NS
                closest = _closest([closest, Closest(request.url, surely_last.url, paused_s, pause_s)])
        standing = [wish for wish in told if wish.after.end_ns <= request.start_ns]
        wishes += [wish for wish in standing if wish.known]
        latest_ns = request.start_ns + TOLERANCE_NS
        surest = max(wishes, key=lambda wish: wish.sure_ns, default=None)
        if surest is not None and latest_ns < surest.sure_ns:
            early_s = (surest.sure_ns - request.start_ns) / SECOND_NS
            too_close.append(TooClose(request.url, surest.after.url, surest.why, early_s))
        elif any(latest_ns < wish.until_ns for wish in wishes):
            site_late += 1
        elif any(latest_ns < wish.until_ns for wish in standing):
            excused += 1
        robots_answered = robots_answered or (request.path == ROBOTS and request.status == 200)
        if last is None or request.end_ns > last.end_ns:
            last = request
        if surely_last is None or request.earliest_end_ns > surely_last.earliest_end_ns:
            surely_last = request
    return _Pace(too_close, site_late, excused, closest)


def _pause(delay_s: float, crawl_delay_s: float) -> tuple[float, Why]:
    return (crawl_delay_s, "crawl-delay") if crawl_delay_s > delay_s else (delay_s, "delay")


def _closest(pairs: Iterable[Closest | None]) -> Closest | None:
    return min((pair for pair in pairs if pair is not None), key=lambda pair: pair.spare_s, default=None)


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
