"""Server of the hostile web: plays the script of whatever host is asked for, plain and by TLS, on one port.

A client may vanish at any time, and is expected to.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from pipeline.local.hostile_certificates import Certificates
from pipeline.local.hostile_connection import Connection, first_bytes
from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_kinds import KINDS, PREFIX, host_name, kind_of
from pipeline.local.hostile_ports import INNER, Ports
from pipeline.local.hostile_ways import INNER_ANSWER
from pipeline.local.hostile_wire import NOT_FOUND, Asked
from pipeline.local.request_log import RequestLog, line, prefix

_HELLO: Final = b"\x16"
"""First byte of a TLS handshake (RFC 8446 5.1)."""
_NAME: Final = re.compile(rf"{PREFIX}[a-z0-9-]+\.test".encode("ascii"))


class HostileServer:
    """Serves the hostile web on ports that are taken already. For one event loop, as a context manager.

    Args:
        ports: where.
        certificates: for hosts that speak TLS.
        log: takes a line for each request when its script is over, and for each connection to where nobody may connect
            to.
    """

    def __init__(self, ports: Ports, certificates: Certificates, log: RequestLog) -> None:
        self._ports = ports
        self._certificates = certificates
        self._log = log
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        for kind in KINDS.values():
            kind.prepare(self._asked(host_name(kind, 1), "/"))
        self._begin(self._accept(self._ports.web, self._serve))
        for listener in self._ports.inner:
            self._begin(self._accept(listener, self._serve_inner))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            raise fault  # to the loop's handler: a fault of ours, not of a client

    async def _accept(
        self, listener: socket.socket, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            connected, _ = await asyncio.get_running_loop().sock_accept(listener)
            self._begin(self._until_gone(serve(connected)))

    async def _until_gone(self, work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(OSError):  # how a client that goes shows, in TLS too
            await work

    async def _serve_inner(self, connected: socket.socket) -> None:
        with connected:
            address, port = connected.getsockname()[:2]
            self._write_log(f"{INNER}:{port}", address, "", time.time_ns(), next(self._numbers))
            await asyncio.get_running_loop().sock_sendall(connected, INNER_ANSWER)

    async def _serve(self, connected: socket.socket) -> None:
        try:
            first = await first_bytes(connected)
            kind, context = None, None
            if first.startswith(_HELLO):
                kind, context = self._by_tls(first)
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connected, ssl=context)
        except BaseException:
            connected.close()
            raise
        connection = Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
        try:
            if kind is not None and kind.greeting is not None:
                await connection.play(kind.greeting, self._asked("", ""))
            else:
                await self._answer(connection, next(self._numbers))
        finally:
            connection.leave()

    def _by_tls(self, hello: bytes) -> tuple[HostileKind, ssl.SSLContext | None]:
        """Return what the host is that a handshake names, and by what it is answered; None for its own greeting.

        Raises:
            ConnectionError: it names no host that speaks TLS.
        """
        found = _NAME.search(hello)
        host = found.group().decode("ascii") if found else ""
        kind = kind_of(host)
        if kind is None or kind.certificate is None:
            raise ConnectionError(f"no TLS for {host or 'no name'}")
        return kind, None if kind.greeting is not None else self._certificates.context(host, kind.certificate)

    async def _answer(self, connection: Connection, number: int) -> None:
        while not connection.is_over and (head := await connection.next_head()):
            start_ns = time.time_ns()
            asked, agent = self._read(head)
            kind = kind_of(asked.host)
            try:
                await connection.play(NOT_FOUND if kind is None else kind.script(asked.target), asked)
            finally:
                self._write_log(asked.authority, asked.target, agent, start_ns, number)

    def _read(self, head: bytes) -> tuple[Asked, str]:
        """Read what is asked for, and who asks."""
        request_line, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
        target = [*request_line.split(" "), ""][1]
        asked = self._asked(fields.get("host", "").partition(":")[0].lower(), target, fields.get("cookie", ""))
        return asked, fields.get("user-agent", "").lower()

    def _asked(self, host: str, target: str, cookie: str = "") -> Asked:
        return Asked(host, self._ports.port, target, cookie, self._ports.inner_port)

    def _write_log(self, host: str, path: str, agent: str, start_ns: int, number: int) -> None:
        start = prefix(host.encode("latin-1"), path.encode("latin-1"), agent.encode("latin-1"))
        self._log.add(line(start, (0, start_ns, time.time_ns(), None, number, 0)))
