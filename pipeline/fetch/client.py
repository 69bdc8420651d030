"""HTTP client: one request, one response, every limit held; redirects are the caller's.

httpx is the interface, called at the level of its transport: its client costs more than the request itself.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Self

import httpx

from pipeline.config import Fetch
from pipeline.errors import SiteError
from pipeline.fetch.address_limit import AddressLimiter
from pipeline.fetch.body import Body, BodyTooLarge, Limits, read_body
from pipeline.fetch.guard import AddressGuard, GuardedResolver, RefusedAddress
from pipeline.fetch.minimum_rate import MinimumRate, RatedChunks
from pipeline.fetch.steps import is_watched, tell
from pipeline.fetch.transport import WireTransport

ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING: Final = "gzip, deflate, br, zstd"
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
ARCHIVES: Final = frozenset(
    {"application/gzip", "application/x-gzip", "application/zstd", "application/octet-stream", "application/x-tar"}
)
"""Types whose compressed bytes are the content itself."""
SECRETS: Final = frozenset({b"cookie", b"set-cookie", b"authorization"})
HIDDEN: Final = "(hidden)"
MAX_SHOWN_BYTES: Final = 512


@dataclass(slots=True)
class Response:
    """An answer.

    Attributes:
        status: HTTP status.
        headers: as sent, in order; names in lower case.
        body: empty where it was not wanted, or could not be read; then it tells how much was received.
        address: the peer's address.
        elapsed_s: from the call to the last byte.
        error: why the body could not be read (`BodyTooLarge`, `SiteError`: a timeout, a coding); None when it was, also
            for a truncated one.
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    body: Body = field(default_factory=Body)
    address: str | None = None
    elapsed_s: float = 0.0
    error: SiteError | None = None

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of a header, in order.

        Args:
            name: in lower case.
        """
        return [value for key, value in self.headers if key == name]

    def text(self, name: bytes) -> str:
        """Return a header as one text, its lines joined by commas (RFC 9110 5.3); empty for none."""
        return ", ".join(value.decode("latin-1").strip() for value in self.values(name))

    @property
    def content_type(self) -> str:
        """Content-Type as sent, the last where there are several; empty for none."""
        values = self.values(b"content-type")
        return values[-1].decode("latin-1").strip() if values else ""

    @property
    def media_type(self) -> str:
        """Type and subtype in lower case; empty for none."""
        return self.content_type.partition(";")[0].strip().lower()


def want_all(response: Response) -> bool:
    """Want every body."""
    del response
    return True


class Client:
    """Asks sites. To be used within one event loop, as a context manager or with `start` and `close`.

    Args:
        settings: limits, times, user agent, fixed addresses.
        guard: judges every connection.
        may_send: asked right before each request is written.
        limiter: of requests by address; None for no limit.
        tls: a verifying context; None takes the usual certificate authorities.
    """

    def __init__(
        self,
        settings: Fetch,
        guard: AddressGuard,
        *,
        may_send: Callable[[], bool] = lambda: True,
        limiter: AddressLimiter | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._resolver = GuardedResolver(guard, settings.resolve)
        self._may_send = may_send
        self._limiter = limiter
        self._tls = tls
        self._transport: WireTransport | None = None
        self._headers = {"User-Agent": settings.user_agent, "Accept": ACCEPT, "Accept-Encoding": ACCEPT_ENCODING}
        self._limits = Limits(settings.max_wire_bytes, settings.max_decoded_bytes, settings.max_ratio)

    async def start(self) -> None:
        """Make the connection pool."""
        tls = self._tls or httpx.create_ssl_context()
        self._transport = WireTransport(self._guard, self._resolver, tls, self._may_send)

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        limits: Limits | None = None,
        wants: Callable[[Response], bool | Limits] = want_all,
    ) -> Response:
        """Ask for one URL, once.

        Args:
            url: a wire URL; it is asked for as it is.
            headers: added to those that every request has.
            timeout_s: time for all of it; None takes the configured one.
            limits: what the body may cost; None takes the configured ones.
            wants: called with the head; False leaves the body and closes its connection, limits read it by these.

        Raises:
            SiteError: there is no answer; `reason` as in `WireTransport.handle_async_request`, or `total_timeout`.
            StaleMembership: `may_send` said no; nothing was sent.
            AddressBusy: the address has as many requests as it may have; nothing was sent.
        """
        if self._transport is None:
            raise RuntimeError("the client is not started")
        settings = self._settings
        total_s = settings.total_s if timeout_s is None else timeout_s
        scheme, _, rest = url.partition("://")
        authority, slash, target = rest.partition("/")
        request = httpx.Request(
            "GET",
            _origin(f"{scheme}://{authority}/"),
            # Host too, since httpx would decode punycode for it, and refuse names that resolve all the same.
            headers={"Host": authority, **self._headers, **(headers or {})},
            extensions={"target": slash + target, "connect_s": settings.connect_s, "idle_s": settings.idle_s},
        )
        if is_watched():
            tell("request", url=url, headers=_shown(request.headers.raw))
        try:
            return await self._limited(request, total_s, limits or self._limits, wants)
        except SiteError as exc:
            tell("response", error=exc.reason, message=str(exc))
            raise

    async def _limited(
        self, request: httpx.Request, total_s: float, limits: Limits, wants: Callable[[Response], bool | Limits]
    ) -> Response:
        """Send a request when its address has a place."""
        if self._limiter is None:
            return await self._send(request, total_s, limits, wants)
        if self._transport is None:
            raise RuntimeError("the client is not started")
        began_s = time.monotonic()
        host, port = request.url.raw_host.decode("ascii"), request.url.port or DEFAULT_PORTS[request.url.scheme]
        addresses = await self._transport.addresses(host, port, min(self._settings.connect_s, total_s))
        left_s = total_s - (time.monotonic() - began_s)
        with await self._limiter.acquire(addresses):
            return await self._send(request, left_s, limits, wants)

    async def refusal(self, url: str) -> RefusedAddress | None:
        """Return why nobody may connect to the host of a URL; None where one may, or where its name has no address.

        Args:
            url: a wire URL.
        """
        if self._transport is None:
            raise RuntimeError("the client is not started")
        origin = _origin(url[: url.index("/", len("https://")) + 1])
        host, port = origin.raw_host.decode("ascii"), origin.port or DEFAULT_PORTS[origin.scheme]
        try:
            if await self._transport.addresses(host, port, self._settings.connect_s) == [host]:
                self._guard.check(host, port)  # no resolver is asked for what is an address
        except RefusedAddress as exc:
            return exc
        except SiteError:
            pass
        return None

    async def _send(
        self, request: httpx.Request, total_s: float, limits: Limits, wants: Callable[[Response], bool | Limits]
    ) -> Response:
        if self._transport is None:
            raise RuntimeError("the client is not started")
        began_s = time.monotonic()
        response: Response | None = None
        try:
            async with asyncio.timeout(total_s):
                answer = await self._transport.handle_async_request(request)
                response = Response(
                    answer.status_code,
                    [(name.lower(), value) for name, value in answer.headers.raw],
                    address=answer.extensions["address"],
                )
                if is_watched():
                    tell("response", status=response.status, headers=_shown(response.headers))
                try:
                    wanted = wants(response)
                    if wanted:
                        limits = wanted if isinstance(wanted, Limits) else limits
                        rate = MinimumRate(self._settings.min_bytes_per_s, self._settings.min_rate_window_s)
                        await _read(answer, response, limits, rate)
                except SiteError as exc:
                    response.error = exc
                finally:
                    await answer.stream.aclose()  # type: ignore[union-attr]  # the transport's streams are asynchronous
        except TimeoutError as exc:
            error = SiteError("total_timeout", f"not done within {total_s:g} s")
            if response is None:
                raise error from exc
            response.error = error
        response.elapsed_s = time.monotonic() - began_s
        if is_watched():
            tell("body", **_facts_of(response, limits))
        return response


def _shown(headers: Iterable[tuple[bytes, bytes]]) -> list[list[str]]:
    """Return headers for whoever looks: bounded, and without what only the other side should know."""
    return [
        [name.decode("latin-1"), HIDDEN if name.lower() in SECRETS else value[:MAX_SHOWN_BYTES].decode("latin-1")]
        for name, value in headers
    ]


def _facts_of(response: Response, limits: Limits) -> dict[str, Any]:
    body = response.body
    return {
        "codings": list(body.codings),
        "bytes_wire": body.bytes_wire,
        "bytes_decoded": len(body.data),
        "truncated": body.truncated,
        "error": None if response.error is None else response.error.reason,
        "limits": {"wire_bytes": limits.wire_bytes, "decoded_bytes": limits.decoded_bytes, "ratio": limits.ratio},
        "took_ms": round(response.elapsed_s * 1000),
    }


@lru_cache(maxsize=4096)
def _origin(url: str) -> httpx.URL:
    """Parse a site's URL once: httpx takes as long for it as for the rest of a request."""
    return httpx.URL(url)


async def _read(answer: httpx.Response, response: Response, limits: Limits, rate: MinimumRate) -> None:
    """Read the body of an answer into it; where that fails, it still tells how much came."""
    announced = response.text(b"content-length")
    if announced.isdigit() and int(announced[:19]) > limits.wire_bytes and not limits.cut:
        raise BodyTooLarge("wire_bytes", limits.wire_bytes)
    chunks = RatedChunks(aiter(answer.stream), rate)  # type: ignore[arg-type]  # the transport's streams are asynchronous
    coding, is_archive = response.text(b"content-encoding"), response.media_type in ARCHIVES
    body = None
    try:
        body = await read_body(chunks, coding, limits, sniff=not is_archive)
    finally:
        response.body = body or Body(bytes_wire=chunks.received_bytes)
