"""robots.txt of each origin: asked once a day, kept with the partition, closed while it can't be read.

What an answer means is `robots_answer`'s; nothing is asked for again while it holds (RFC 9309 2.4).

A file that a redirect led to holds for the origin that was asked, not for the one it was found on.

In the last hour of its day a file that is in use is asked for anew while it still holds, so that no page waits for it.
When that fails what is known holds to its end: a site that is unwell for a moment is not closed for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.delivery.api import Change, StateView
from pipeline.errors import InputError, SiteError
from pipeline.fetch import redirects
from pipeline.fetch.address_limit import AddressBusy
from pipeline.fetch.body import Limits
from pipeline.fetch.client import Client, Response
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.robots_answer import Robots, fault_of, from_record, is_success, read_answer
from pipeline.fetch.slots import Deferred
from pipeline.fetch.transport import StaleMembership
from pipeline.fetch.wishes import read_wishes
from pipeline.web.robots import MAX_BYTES
from pipeline.web.url import CanonicalUrl

TABLE: Final = "r"
REFRESH_PAUSE_S: Final = 600.0
"""Between two tries to bring a file anew while it still holds."""
MAX_REDIRECTS: Final = 5
CACHED_ORIGINS: Final = 8_192
CACHED_BYTES: Final = 64 << 20

log = logging.getLogger(__name__)


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
        self._refreshes: dict[tuple[int, str], asyncio.Task[None]] = {}

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
        for key in [key for key in self._refreshes if key[0] == partition]:
            self._refreshes.pop(key).cancel()

    def stop(self) -> None:
        """Ask for nothing any more."""
        for task in self._refreshes.values():
            task.cancel()
        self._refreshes.clear()

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
                if known.refreshed_from_ms <= self._now() * 1000:
                    self._begin_refresh(key, url, domain, delay_s, known)
                return known
            flight = self._flights.get(key)
            if flight is None:
                break
            await asyncio.wait([flight], timeout=self._max_wait_s)
            if not flight.done():
                return Deferred(self._gate.now() + delay_s)
        with self._flight(key):
            answer = await self._ask(key, url, domain, delay_s, not_before, urgent=urgent)
            return answer if isinstance(answer, Deferred) else self._take(key, answer, known)

    @contextlib.contextmanager
    def _flight(self, key: tuple[int, str]) -> Iterator[None]:
        """Let others who want the same file wait for this request."""
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._flights[key]
            flight.set_result(None)

    def _take(self, key: tuple[int, str], answer: Response | SiteError | None, known: Robots | None) -> Robots:
        robots, record = read_answer(key[1], answer, known, self._now())
        robots.unsaved = self._encode(record)
        self._remember(key, robots)
        if robots.rules is not None and robots.rules.truncated:
            log.warning("rules beyond %d bytes of %s/robots.txt are left out", MAX_BYTES, key[1])
        return robots

    def _begin_refresh(
        self, key: tuple[int, str], url: CanonicalUrl, domain: str, delay_s: float, known: Robots
    ) -> None:
        known.refreshed_from_ms = int((self._now() + REFRESH_PAUSE_S) * 1000)
        if key not in self._flights:
            task = self._refreshes[key] = asyncio.create_task(self._refresh(key, url, domain, delay_s, known))
            task.add_done_callback(partial(self._end_refresh, key))

    async def _refresh(
        self, key: tuple[int, str], url: CanonicalUrl, domain: str, delay_s: float, known: Robots
    ) -> None:
        """Bring a file anew while what is known of it still holds."""
        with self._flight(key):
            try:
                answer = await self._ask(key, url, domain, delay_s, 0.0, urgent=False)
            except StaleMembership:
                return
            if isinstance(answer, SiteError | Deferred) or (answer is not None and fault_of(answer)):
                return
            self._take(key, answer, known)

    def _end_refresh(self, key: tuple[int, str], task: asyncio.Task[None]) -> None:
        if self._refreshes.get(key) is task:
            del self._refreshes[key]
        if not task.cancelled() and (fault := task.exception()) is not None:
            raise fault  # to the loop's handler: it is nobody's who waits

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
            robots = from_record(self._decode(value))
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
                    response = await self._client.get(place, limits=self._limits, wants=is_success)
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


def origin_of(url: CanonicalUrl) -> str:
    """Return scheme, host and port, the port always written."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.scheme}://{host}:{url.port}"


def _place_of(url: CanonicalUrl) -> str:
    """Return the canonical URL of the origin's robots.txt."""
    return url.href[: url.href.index("/", len("https://"))] + "/robots.txt"
