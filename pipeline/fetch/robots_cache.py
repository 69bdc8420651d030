"""robots.txt of each origin: asked once a day, kept with the partition, closed while it can't be read.

RFC 9309 2.3 and 2.4:

- 2xx: its rules hold for 24 h.
- 4xx but 429, a redirect without a usable Location, more than five redirects: everything is allowed for 24 h.
- 429, 5xx, a body that breaks off: nothing is allowed, for 60 s, doubling to 1 h, and never for less than Retry-After
  says.
- No answer, or a refused address: nothing is allowed, for 1 s, doubling to 1 h: the pace at which the frontier tries
  again after connection noise.

A file that a redirect led to holds for the origin that was asked, not for the one it was found on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.delivery.api import Change, StateView
from pipeline.errors import InputError, SiteError
from pipeline.fetch import redirects
from pipeline.fetch.address_limit import AddressBusy
from pipeline.fetch.body import Limits
from pipeline.fetch.client import Client, Response
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.slots import Deferred
from pipeline.fetch.wishes import read_wishes
from pipeline.web.robots import MAX_BYTES, RobotsRules
from pipeline.web.url import CanonicalUrl

TABLE: Final = "r"
KEPT_S: Final = 86_400.0
CLOSED_S: Final = 60.0
UNANSWERED_S: Final = 1.0
LONGEST_CLOSED_S: Final = 3_600.0
MAX_REDIRECTS: Final = 5
CACHED_ORIGINS: Final = 8_192
CACHED_BYTES: Final = 64 << 20

log = logging.getLogger(__name__)

State = Literal["RULES", "OPEN", "CLOSED"]


@dataclass(slots=True)
class Robots:
    """What holds for one origin.

    Attributes:
        state: RULES: `rules` decide; OPEN: everything is allowed; CLOSED: nothing is.
        rules: of the file; None where there is none.
        status: HTTP status of the answer; None without one.
        reason: why it is closed, machine-readable; empty where it is not.
        fetched_at_ms: ms since the epoch.
        expires_at_ms: when it is asked for again, ms since the epoch.
        wish_until_ms: until when the site wants to be left alone, ms since the epoch; None where it said nothing. Only
            in memory: the frontier is told.
        size_bytes: length of the file, as far as it was read.
        unsaved: the contract record, while it is not on its way to the partition's state.
    """

    state: State
    rules: RobotsRules | None
    status: int | None
    reason: str
    fetched_at_ms: int
    expires_at_ms: int
    wish_until_ms: int | None = None
    size_bytes: int = 0
    unsaved: bytes | None = None


class RobotsCache:
    """Robots by origin. For one event loop.

    What is known is in memory, the least recently used given up first, and in the state of the origin's partition. What
    is not committed yet is only in memory, which is far larger than what one commit interval brings.

    Args:
        client: asks for the files.
        gate: each request, every hop of a redirect included, takes a slot of the domain that is asked for.
        codecs: of the contracts.
        max_wait_s: longest wait for somebody else's request for the same file.
        max_ratio: decoded to received bytes of a file.
        now: wall clock, s since the epoch.
    """

    def __init__(
        self,
        client: Client,
        gate: DomainGate,
        codecs: Codecs,
        *,
        max_wait_s: float,
        max_ratio: float,
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._gate = gate
        self._encode = codecs.encoder(topics.ROBOTS.subject)
        self._decode = codecs.decoder(topics.ROBOTS.subject)
        self._max_wait_s = max_wait_s
        # One byte more than is read, so that the parser sees that there was more.
        self._limits = Limits(MAX_BYTES + 1, MAX_BYTES + 1, max_ratio, cut=True)
        self._now = now
        self._views: dict[int, StateView] = {}
        self._cached: OrderedDict[tuple[int, str], Robots] = OrderedDict()
        self._cached_bytes = 0
        self._flights: dict[tuple[int, str], asyncio.Future[None]] = {}
        self._redirected: dict[tuple[int, str], tuple[str, int]] = {}

    def opened(self, partition: int, view: StateView | None) -> None:
        """The partition is ours; `view` is its committed state."""
        self.closed(partition)
        if view is not None:
            self._views[partition] = view

    def closed(self, partition: int) -> None:
        """Forget the partition."""
        self._views.pop(partition, None)
        for key in [key for key in self._cached if key[0] == partition]:
            self._cached_bytes -= self._cached.pop(key).size_bytes
        for key in [key for key in self._redirected if key[0] == partition]:
            del self._redirected[key]

    async def get(
        self,
        url: CanonicalUrl,
        domain: str,
        partition: int,
        *,
        delay_s: float,
        not_before: float = 0.0,
        urgent: bool = False,
    ) -> Robots | Deferred:
        """Return what holds for the origin of a URL, asking for its robots.txt where that is not known.

        Args:
            url: any URL of the origin.
            domain: registrable domain whose slots the requests take.
            partition: the one it belongs to.
            delay_s: pause between requests to the domain.
            not_before: earliest request, gate clock.
            urgent: whether the request passes others of the domain.

        Returns:
            `Deferred` (gate clock) where a request would have to wait too long.

        Raises:
            StaleMembership: nobody may be asked now.
        """
        key = (partition, origin_of(url))
        while True:
            known = self._known(key)
            if known is not None and known.expires_at_ms > self._now() * 1000:
                return known
            flight = self._flights.get(key)
            if flight is None:
                break
            await asyncio.wait([flight], timeout=self._max_wait_s)
            if not flight.done():
                return Deferred(self._gate.now() + delay_s)
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._ask(key, url, domain, delay_s, not_before, urgent=urgent)
            if isinstance(answer, Deferred):
                return answer
            robots = self._read(key[1], answer, known)
            self._remember(key, robots)
        finally:
            del self._flights[key]
            flight.set_result(None)
        if robots.rules is not None and robots.rules.truncated:
            log.warning("rules beyond %d bytes of %s/robots.txt are left out", MAX_BYTES, key[1])
        return robots

    def changes(self, url: CanonicalUrl, partition: int) -> list[Change]:
        """Return the state change that is to travel with the record at hand; each is handed out once."""
        key = (partition, origin_of(url))
        robots = self._cached.get(key)
        if robots is None or robots.unsaved is None:
            return []
        value, robots.unsaved = robots.unsaved, None
        return [Change(TABLE, key[1].encode(), value)]

    def _known(self, key: tuple[int, str]) -> Robots | None:
        robots = self._cached.get(key)
        if robots is not None:
            self._cached.move_to_end(key)
            return robots
        partition, origin = key
        view = self._views.get(partition)
        value = None if view is None else view.get(TABLE, origin.encode())
        if value is None:
            return None
        try:
            robots = _from_record(self._decode(value))
        except InputError as exc:
            log.warning("robots of %s are asked for anew: %s", origin, exc)
            return None
        self._remember(key, robots)
        return robots

    def _remember(self, key: tuple[int, str], robots: Robots) -> None:
        before = self._cached.pop(key, None)
        self._cached_bytes += robots.size_bytes - (before.size_bytes if before else 0)
        self._cached[key] = robots
        while len(self._cached) > CACHED_ORIGINS or (self._cached_bytes > CACHED_BYTES and len(self._cached) > 1):
            _, oldest = self._cached.popitem(last=False)
            self._cached_bytes -= oldest.size_bytes

    async def _ask(
        self, key: tuple[int, str], url: CanonicalUrl, domain: str, delay_s: float, not_before: float, *, urgent: bool
    ) -> Response | SiteError | Deferred | None:
        """Ask for the file and follow its redirects; None where they lead nowhere.

        When the gate puts a hop off, the next call goes on with that hop: a site with a long delay and a redirect would
        never be read otherwise.
        """
        partition = key[0]
        place, hops = self._redirected.pop(key, (_place_of(url), 0))
        while hops <= MAX_REDIRECTS:
            slot = await self._gate.acquire(domain, partition, delay_s=delay_s, not_before=not_before, urgent=urgent)
            if isinstance(slot, Deferred):
                if hops:
                    self._redirected[key] = (place, hops)
                return slot
            with slot:
                try:
                    response = await self._client.get(place, limits=self._limits, wants=_is_success)
                except SiteError as exc:
                    return exc
                except AddressBusy as exc:
                    slot.discard()
                    if hops:
                        self._redirected[key] = (place, hops)
                    return Deferred(exc.not_before)
                read_wishes(response, self._now()).heed(self._gate, domain, partition)
            if response.status not in redirects.STATUSES:
                return response
            try:
                place = redirects.target(response, place).wire
            except SiteError:
                return None
            hops += 1
        return None

    def _read(self, origin: str, answer: Response | SiteError | None, before: Robots | None) -> Robots:
        """Say what holds from now on.

        Args:
            origin: whose file it is.
            answer: from `_ask`.
            before: what held; a closed origin stays so for twice as long.
        """
        now = self._now()
        now_ms = int(now * 1000)
        status, fault, file, wish_ms = None, "", b"", None
        state: State = "OPEN"
        if isinstance(answer, SiteError):
            fault = answer.reason
        elif answer is not None:
            status, fault = answer.status, _fault(answer)
            rest_s = read_wishes(answer, now).rest_s
            wish_ms = None if rest_s is None else math.ceil(rest_s * 1000)
            if not fault and _is_success(answer):
                state, file = "RULES", answer.body.data
        pause_ms = int(KEPT_S * 1000)
        if fault:
            first_s = UNANSWERED_S if status is None else CLOSED_S
            state, pause_ms = "CLOSED", max(_closed_ms(first_s, before), wish_ms or 0)
        record = {
            "origin": origin,
            "state": state,
            "status": status,
            "body": file,
            "fetched_at_ms": now_ms,
            "expires_at_ms": now_ms + pause_ms,
        }
        robots = _from_record(record)
        robots.reason = fault
        robots.wish_until_ms = None if wish_ms is None else now_ms + wish_ms
        robots.unsaved = self._encode(record)
        return robots


def origin_of(url: CanonicalUrl) -> str:
    """Return scheme, host and port, the port always written."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{url.port}"


def _place_of(url: CanonicalUrl) -> str:
    """Return the canonical URL of the origin's robots.txt."""
    return url.href[: url.href.index("/", len("https://"))] + "/robots.txt"


def _is_success(response: Response) -> bool:
    return 200 <= response.status < 300


def _fault(response: Response) -> str:
    """Say why an answer closes the origin; empty where it does not."""
    status = response.status
    if status == 429 or status >= 500 or status < 200:
        return f"http_{status}"
    if not _is_success(response):
        return ""
    if response.error is not None:
        return response.error.reason
    return "" if response.body.truncated in (None, "cut") else "truncated"


def _closed_ms(first_s: float, before: Robots | None) -> int:
    first_ms = int(first_s * 1000)
    if before is None or before.state != "CLOSED":
        return first_ms
    return max(first_ms, min(2 * (before.expires_at_ms - before.fetched_at_ms), int(LONGEST_CLOSED_S * 1000)))


def _from_record(record: dict[str, Any]) -> Robots:
    """Read a contract record; a state that is not known closes."""
    state, status = record["state"], record["status"]
    is_closed = state not in ("RULES", "OPEN")
    reason = "" if not is_closed else "unreachable" if status is None else f"http_{status}"
    return Robots(
        "CLOSED" if is_closed else state,
        RobotsRules.parse(record["body"]) if state == "RULES" else None,
        status,
        reason,
        record["fetched_at_ms"],
        record["expires_at_ms"],
        size_bytes=len(record["body"]),
    )
