"""A site that answers with exact bytes: what no well-behaved server can be made to send."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

SITE_PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGXA0JMENlRAfEp1p
L+Z2qyl1+bXsT4pB77+8NXpCP3OhRANCAAQ3KhnLIW+GaBzvveiTEEisd1bU7Uy2
qrux1/VHnbGVXXbJYHPzGvc2hRqG2FYeayC/RbqWgaY+bPUc3v71iVKg
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBYTCCAQegAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlzaXRlLnRl
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CXNpdGUudGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDcqGcshb4ZoHO+9
6JMQSKx3VtTtTLaqu7HX9UedsZVddslgc/Ma9zaFGobYVh5rIL9FupaBpj5s9Rze
/vWJUqCjSDBGMBQGA1UdEQQNMAuCCXNpdGUudGVzdDAPBgNVHRMBAf8EBTADAQH/
MB0GA1UdDgQWBBSUTFosYOD2otLPvO7wsLYQ+PyqrzAKBggqhkjOPQQDAgNIADBF
AiEA2+6h9tf/xUxfWB/QmcLLkVU8ke7OyBlyEJsb5gcXn4gCIFaR/TSKK3U9379U
E1o7CtcwQzGs8V4kmxfvwEKV9jbP
-----END CERTIFICATE-----
"""
"""Key and self-signed certificate of `site.test`, valid until 2120; good for nothing but tests."""

Answer = bytes | Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


def server_tls(directory: Path) -> ssl.SSLContext:
    """TLS of `site.test` for a server; `directory` takes the key for the moment it is read."""
    file = directory / "site.pem"
    file.write_text(SITE_PEM, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


class Request(NamedTuple):
    """A request as it came: host header, target, other headers in lower case, and when (event loop's time)."""

    host: str
    target: str
    headers: Mapping[str, str]
    at: float


def response(
    body: bytes = b"", *headers: str, status: str = "200 OK", content_type: str = "text/html", length: int | None = None
) -> bytes:
    """Bytes of a response with Content-Length, right unless `length` says otherwise."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers]
    if content_type:
        lines.append(f"Content-Type: {content_type}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(location: str | None, *headers: str, status: str = "302 Found") -> bytes:
    """Bytes of a redirect; None leaves the Location out. Characters are sent as Latin-1."""
    return response(b"", *([] if location is None else [f"Location: {location}"]), *headers, status=status)


class RawSite:
    """Serves on a free port of a loopback address, whatever the Host.

    `answers` maps `host/target`, else `target`, else `*`; without an answer it is 404.

    A connection is closed after each answer unless the site is made with `keep_alive`.
    """

    def __init__(
        self, answers: Mapping[str, Answer] | None = None, *, keep_alive: bool = False, address: str = "127.0.0.1"
    ) -> None:
        self.address = address
        self.answers: dict[str, Answer] = dict(answers or {})
        self.requests: list[Request] = []
        self.connections = 0
        self.keep_alive = keep_alive
        self.tls: ssl.SSLContext | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """Where it listens, while it does."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    def url(self, target: str = "/", host: str = "") -> str:
        """URL on the site: its port, any host."""
        return f"{'https' if self.tls else 'http'}://{host or self.address}:{self.port}{target}"

    @property
    def targets(self) -> list[str]:
        """Paths and queries that were asked for, in order."""
        return [request.target for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.address, 0, ssl=self.tls)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                host = headers.get("host", "")
                target = head[0].split(" ")[1]
                request = Request(host, target, headers, asyncio.get_running_loop().time())
                self.requests.append(request)
                name = host.partition(":")[0]
                answer = self.answers.get(name + target) or self.answers.get(target) or self.answers.get("*")
                if answer is None:
                    writer.write(response(b"none", status="404 Not Found"))
                elif isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(request, writer)
                await writer.drain()
                if not self.keep_alive:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)
