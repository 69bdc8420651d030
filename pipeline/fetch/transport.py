"""httpx transport over an aiohttp session: the one border to the HTTP library.

Beyond what `httpx_aiohttp` does it asks for exactly the URL it is given and only once, tells the address it was
connected to, and maps every exception of the library to a `SiteError` with a reason.
"""

from __future__ import annotations

import asyncio
import errno
import select
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError
from aiohttp.streams import StreamReader
from multidict import CIMultiDict
from yarl import URL

from pipeline.errors import BugError, HeadraceError, SiteError
from pipeline.fetch.body import BodyTooLarge, TruncatedBody
from pipeline.fetch.guard import AddressGuard, GuardedResolver
from pipeline.fetch.steps import is_watched, tell

DNS_CACHE_S: Final = 60
DNS_CACHE_HOSTS: Final = 50_000
KEEP_ALIVE_S: Final = 5.0
"""Servers close idle connections after 5 s and more; a longer pause would also hold a socket for each site seen."""
MAX_FIELD_BYTES: Final = 32 << 10
"""Longest header line; policies and cookies of real sites pass the library's own 8 KiB."""
MAX_FIELDS: Final = 256
MAX_HEAD_BYTES: Final = 512 << 10
"""Longest head, all interim answers (1xx) before it included."""
MAX_FRAMING_RATIO: Final = 4
"""Bytes on the connection to bytes of the body, once `FRAMING_FREE_BYTES` came: chunks of a byte each cost six."""
FRAMING_FREE_BYTES: Final = 1 << 20
_HEAD_END: Final = b"\r\n\r\n"
SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})

REASONS: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((aiohttp.ClientConnectorDNSError,), "dns"),
    ((aiohttp.ConnectionTimeoutError,), "connect_timeout"),
    ((aiohttp.ServerTimeoutError,), "idle_timeout"),
    ((aiohttp.ClientSSLError, ssl.SSLError), "tls"),
    ((aiohttp.ClientConnectorError,), "connect"),
    ((aiohttp.ClientConnectionError, OSError), "reset"),
    ((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), "bad_url"),
)
"""The library's exceptions, the special before the general; what is none of them is a `bad_response`."""
UNSENT: Final = frozenset(
    {
        "blocked_address",
        "blocked_port",
        "dns",
        "connect",
        "connect_timeout",
        "tls",
        "local_resources",
    }
)
"""Reasons of errors that end a fetch before its request is written."""


class StaleMembership(HeadraceError):  # noqa: N818 - the name says what is stale
    """This worker may have lost its partitions: it asks nobody. No site's fault, and no fetch's ending."""


class WireTransport(httpx.AsyncBaseTransport):
    """One connection pool for all hosts.

    A request's URL names the origin alone. Its extensions: `target`, path and query as they are to be written;
    `connect_s` and `idle_s`, seconds. A response's extension: `address`, the peer's.

    Args:
        guard: judges every connection.
        resolver: names to addresses that the guard lets pass.
        tls: the verifying context.
        may_send: asked right before each request is written; False raises `StaleMembership`.
    """

    def __init__(
        self, guard: AddressGuard, resolver: GuardedResolver, tls: ssl.SSLContext, may_send: Callable[[], bool]
    ) -> None:
        self._connector = _Connector(
            limit=0,
            resolver=resolver,
            socket_factory=guard.socket,
            ttl_dns_cache=DNS_CACHE_S,
            dns_cache_max_size=DNS_CACHE_HOSTS,
            keepalive_timeout=KEEP_ALIVE_S,
            ssl=tls,
        )
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            cookie_jar=_NoCookies(),
            request_class=_request_class(may_send),
            response_class=_AddressedResponse,
            middlewares=(_ask_once,),
            auto_decompress=False,
            trust_env=False,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_FIELDS,
        )

    async def addresses(self, host: str, port: int, timeout_s: float) -> list[str]:
        """Return the addresses that a connection to a host may be made to, from the pool's cache or by asking.

        Raises:
            SiteError: `dns`, `connect_timeout`; `RefusedAddress`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connector.addresses(host, port)
        except TimeoutError as exc:
            raise SiteError("connect_timeout", f"no address within {timeout_s:g} s") from exc
        except OSError as exc:
            raise SiteError("dns", str(exc)) from exc

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request without a body and return the response with its body unread.

        Raises:
            SiteError: `dns`, `connect`, `connect_timeout`, `tls`, `reset`, `idle_timeout`, `bad_response`, `bad_url`,
                `local_resources`; `RefusedAddress`, `StaleMembership`.
        """
        headers = CIMultiDict((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw)
        try:
            response = await self._session.request(
                request.method,
                _wire_url(request.url, request.extensions["target"]),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    connect=request.extensions.get("connect_s"), sock_read=request.extensions.get("idle_s")
                ),
            )
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise site_error(exc) from exc
        if not isinstance(response, _AddressedResponse):
            raise BugError("the session makes responses of another class")
        return httpx.Response(
            status_code=response.status,
            headers=list(response.raw_headers),
            stream=_WireStream(response),
            extensions={"address": response.address},
        )

    async def aclose(self) -> None:
        await self._session.close()


def site_error(exc: Exception) -> SiteError:
    """Map an exception of the HTTP library, raised before the head of the response was there."""
    return SiteError(_reason(exc), str(exc) or type(exc).__name__)


def _reason(exc: Exception) -> str:
    if isinstance(exc, OSError) and exc.errno in SHORTAGES:
        return "local_resources"
    return next((reason for kinds, reason in REASONS if isinstance(exc, kinds)), "bad_response")


def _wire_url(origin: httpx.URL, target: str) -> URL:
    """Return the URL with its target as it is written: yarl would rewrite some escapes and drop a lone `?`."""
    return URL.build(scheme=origin.scheme, authority=origin.netloc.decode("ascii"), path=target, encoded=True)


class _Handler(ResponseHandler):
    """A connection whose site can't keep us busy with what is no content: the library bounds each line, not their sum.

    What comes while no request is out ends it, and is never the answer to a later one (RFC 9112 9.2); the library would
    keep it for the next request. It also tells a fault in the middle of a body to who reads it; the library leaves the
    reader waiting for ever.
    """

    _received = 0
    _last = b""
    _is_answered = False

    def set_response_params(self, **given: Any) -> None:
        self._received, self._last, self._is_answered = 0, b"", False
        super().set_response_params(**given)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._is_answered = self._is_answered or data[0].code >= 200
        super().feed_data(data, size)

    def is_connected(self) -> bool:
        """Whether a request may be sent; what has come unasked may still lie in the socket."""
        return super().is_connected() and not (self._is_idle() and _has_input(self.transport))

    def _is_idle(self) -> bool:
        return self._is_answered and (self._payload is None or self._payload.is_eof())

    def data_received(self, data: bytes) -> None:
        start = 0
        while not self._is_answered and (end := self._end_of_head(data, start)) < len(data):
            # By itself: the library drops a head together with what is wrong behind it, if both came at once.
            self._take(data[start:end])
            start = end
        self._take(data[start:])

    def _end_of_head(self, data: bytes, start: int) -> int:
        """Return where the first head ends from `start` on; the end of the data where none does."""
        before = len(self._last)
        found = (self._last + data[start : start + len(_HEAD_END)]).find(_HEAD_END)
        if found >= 0:
            return start + found + len(_HEAD_END) - before
        found = data.find(_HEAD_END, start)
        return found + len(_HEAD_END) if found >= 0 else len(data)

    def _take(self, data: bytes) -> None:
        if self._is_idle():
            if data.strip(b"\r\n"):  # an empty line is nothing (RFC 9112 2.2)
                self.force_close()
                if self.transport is not None:
                    self.transport.close()
            return
        self._received += len(data)
        if not self._is_answered:
            self._last = (self._last + data[-len(_HEAD_END) :])[1 - len(_HEAD_END) :]
        super().data_received(data)
        body = self._payload
        if not self._is_answered:
            if self._received > MAX_HEAD_BYTES:
                self._give_up(BodyTooLarge("head_bytes", MAX_HEAD_BYTES))
        elif body is not None and self._received > MAX_FRAMING_RATIO * body.total_bytes + FRAMING_FREE_BYTES:
            self._give_up(BodyTooLarge("framing", MAX_FRAMING_RATIO))

    def _give_up(self, fault: SiteError) -> None:
        if self.transport is not None:
            self.transport.close()
        self.set_exception(fault)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        body = self._payload
        if body is not None and body.exception() is None and not body.is_eof():
            if not isinstance(exc, aiohttp.ClientError | SiteError):
                fault = aiohttp.ClientPayloadError(str(exc))
                fault.__cause__ = exc
                exc = fault
            body.set_exception(exc)


def _has_input(transport: asyncio.BaseTransport | None) -> bool:
    """Whether a connection has something to read, its end included."""
    connected = None if transport is None else transport.get_extra_info("socket")
    if connected is None or connected.fileno() < 0:
        return False
    poll = select.poll()
    poll.register(connected.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _make_handler(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Handler(loop=loop)


class _Connector(aiohttp.TCPConnector):
    """Makes connections with our handler."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = partial(_make_handler, self._loop)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return what a host resolves to; a connection that follows finds it in the cache."""
        return [found["host"] for found in await self._resolve_host(host, port)]


class _NoCookies(aiohttp.DummyCookieJar):
    """Keeps nothing, and reads nothing either."""

    def update_cookies_from_headers(self, headers: object, response_url: URL) -> None:
        """Take no cookie."""


class _AddressedResponse(aiohttp.ClientResponse):
    """Remembers its connection: a short body is whole, and the connection given back, before anyone can ask."""

    address: str | None = None
    _handler: ResponseHandler | None = None
    _tls: ssl.SSLObject | None = None

    async def start(self, connection: Connection) -> Self:
        self._handler = connection.protocol
        if self._handler is not None and self._handler.transport is not None:
            peer = self._handler.transport.get_extra_info("peername")
            self.address = peer[0] if peer else None
            self._tls = self._handler.transport.get_extra_info("ssl_object")
        await super().start(connection)
        return self

    @property
    def cut(self) -> str | None:
        """Why a body that ends with its connection is not whole, though to the library it looks so; None where it is.

        `reset`: the connection ended by one. `tls_close`: it ended without TLS's own end, which says that nobody on the
        way ended it (RFC 9112 9.8).
        """
        if self._handler is None or "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            return None
        if isinstance(self._handler.exception(), OSError):
            return "reset"
        return None if self._tls is None or _has_ended(self._tls) else "tls_close"


def _has_ended(tls: ssl.SSLObject) -> bool:
    """Whether the peer has said that it will send no more; to be asked when its connection has ended."""
    try:
        return not tls.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


class _Request(aiohttp.ClientRequest):
    """Knows whether its connection has answered before."""

    is_on_used_connection = False


def _request_class(may_send: Callable[[], bool]) -> type[_Request]:
    used: WeakSet[object] = WeakSet()

    class CheckedRequest(_Request):
        """Asks for leave when the connection is there and nothing is written yet."""

        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            if not may_send():
                raise StaleMembership("the last good heartbeat is too old")
            self.is_on_used_connection = conn.protocol in used
            used.add(conn.protocol)
            if is_watched():
                tell("connection", **_facts_of(conn), reused=self.is_on_used_connection)
            return await super().send(conn)

    return CheckedRequest


def _facts_of(connection: Connection) -> dict[str, Any]:
    """Return what a connection is, for whoever looks: the peer, and by which TLS it is known to be the host."""
    transport = connection.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    facts: dict[str, Any] = {"address": peer[0] if peer else None, "port": peer[1] if peer else None, "tls": None}
    if tls is not None:
        certificate = tls.getpeercert() or {}
        facts["tls"] = {
            "version": tls.version(),
            "cipher": (tls.cipher() or ("",))[0],
            "names": [value for _, value in certificate.get("subjectAltName", ())],
            "issuer": ", ".join(value for part in certificate.get("issuer", ()) for _, value in part),
            "not_after": certificate.get("notAfter"),
        }
    return facts


async def _ask_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep the library from asking again by itself, without the gate's leave, when a connection breaks.

    But for a connection that was used before: a site may close it while it is idle, and then it never saw the request
    (RFC 9112 9.3.1).
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
        if isinstance(request, _Request) and request.is_on_used_connection:
            raise
        raise site_error(exc) from exc


class _WireStream(httpx.AsyncByteStream):
    """The body as received."""

    def __init__(self, response: _AddressedResponse) -> None:
        self._response = response

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        content = self._response.content
        try:
            # What came before a fault is of the body all the same; the library would drop it.
            has_rest = content.exception() is not None and content._buffer  # noqa: SLF001 - nothing public tells
            chunk = content._read_nowait(-1) if has_rest else await content.readany()  # noqa: SLF001 - same
        except aiohttp.ClientPayloadError as exc:
            raise TruncatedBody(_truncation(exc), str(exc)) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise site_error(exc) from exc
        if not chunk:
            if (reason := self._response.cut) is not None:
                raise TruncatedBody(reason)
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Give the connection back, or close it where the body was not read to its end."""
        self._response.release()


def _truncation(exc: aiohttp.ClientPayloadError) -> str:
    if isinstance(exc.__cause__, ContentLengthError):
        return "content_length"
    # Nothing else can be wrong with the form of a body.
    return "chunked" if isinstance(exc.__cause__, HttpProcessingError) else "reset"
