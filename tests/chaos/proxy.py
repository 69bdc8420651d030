"""A TCP proxy on the loopback that can be told to spoil the connection: what a bad network does to one worker.

A Kafka client goes where the broker's metadata says. So the broker has a listener for each proxy that advertises the
proxy's port:

    proxies = [Proxy() for _ in workers]
    broker = LocalBroker(directory, advertised_ports=[proxy.port for proxy in proxies])
    broker.start()
    for proxy, address in zip(proxies, broker.proxied_addresses, strict=True):
        proxy.start(address)        # the worker's bootstrap is proxy.address
    proxies[0].set(Mode.STALL)

Ports stay over the broker's restarts, and each connection is made anew to the broker, so a proxy outlives them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from enum import Enum
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
CHUNK_BYTES = 64 << 10
CHUNKS_IN_WAY = 64
END_S = 10.0


class Mode(Enum):
    """What the proxy does with bytes and connections."""

    PASS = "pass"
    STALL = "stall"
    """Accepts and holds the bytes both ways: a firewall that drops packets, a cable pulled."""
    HOLD_REQUESTS = "hold requests"
    """Holds what goes to the broker; its answers pass."""
    HOLD_ANSWERS = "hold answers"
    """Holds what comes from the broker: it does what is asked, and nobody hears of it."""
    DELAY = "delay"
    """Every byte comes later, in order."""
    RESET = "reset"
    """Resets all connections (RST), and each new one at once."""


_HELD = {
    Mode.STALL: {"requests", "answers"},
    Mode.HOLD_REQUESTS: {"requests"},
    Mode.HOLD_ANSWERS: {"answers"},
}


class Proxy:
    """Stands between one worker and the broker, on a thread of its own; also a context manager that stops it.

    Args:
        port: to listen on; None takes a free one.
    """

    def __init__(self, port: int | None = None) -> None:
        self._socket = socket.create_server((HOST, port or 0))
        self.port: int = self._socket.getsockname()[1]
        """Where it listens; known, and taken, from the beginning."""
        self._target = ("", 0)
        self._mode = Mode.PASS
        self._delay_s = 0.0
        self._connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._free = {"requests": asyncio.Event(), "answers": asyncio.Event()}
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)

    @property
    def address(self) -> str:
        """Where clients connect to, host:port."""
        return f"{HOST}:{self.port}"

    @property
    def mode(self) -> Mode:
        """What it does now."""
        return self._mode

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def start(self, target: str) -> None:
        """Begin to take connections.

        Args:
            target: where they go, host:port; it need not answer yet.
        """
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._thread.start()
        self._call(self._listen())
        self.set(Mode.PASS)

    def set(self, mode: Mode, delay_s: float = 0.0) -> None:
        """Change what it does, for connections that are there and those to come; returns when it does so.

        Args:
            mode: from now on.
            delay_s: for `Mode.DELAY`: how much later each byte comes.
        """
        self._call(self._set(mode, delay_s))

    def stop(self) -> None:
        """Close everything; may be called twice."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)
        if not self._loop.is_closed():
            self._loop.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- in the thread

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(END_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._socket)

    async def _set(self, mode: Mode, delay_s: float) -> None:
        self._mode, self._delay_s = mode, delay_s
        for way, event in self._free.items():
            event.clear() if way in _HELD.get(mode, ()) else event.set()
        if mode is Mode.RESET:
            for connection in self._connections:
                connection.close(reset=True)

    async def _close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.task.cancel()
        await asyncio.gather(*(connection.task for connection in self._connections), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            if self._mode is not Mode.RESET:
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                connection.writers.append(far_writer)
                await self._carry_both_ways((reader, writer), (far_reader, far_writer))
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens there, or the proxy stops: the client is told by the close
        finally:
            self._connections.discard(connection)
            connection.close(reset=self._mode is Mode.RESET)

    async def _carry_both_ways(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Carry until one of the ends has nothing more to say."""
        tasks = set()
        for way, reader, writer in (("requests", near[0], far[1]), ("answers", far[0], near[1])):
            chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_IN_WAY)
            tasks.add(asyncio.create_task(self._take(reader, chunks)))
            tasks.add(giving := asyncio.create_task(self._give(writer, chunks, self._free[way])))
            giving.set_name("giving")
        pending = tasks
        try:
            while not any(task.done() and (task.get_name() == "giving" or task.exception()) for task in tasks):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]]) -> None:
        chunk = b"first"
        while chunk:
            chunk = await reader.read(CHUNK_BYTES)
            delay_s = self._delay_s if self._mode is Mode.DELAY else 0.0
            await chunks.put((self._loop.time() + delay_s, chunk))

    async def _give(
        self, writer: asyncio.StreamWriter, chunks: asyncio.Queue[tuple[float, bytes]], free: asyncio.Event
    ) -> None:
        while True:
            due_s, chunk = await chunks.get()
            await asyncio.sleep(due_s - self._loop.time())
            await free.wait()
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()


class _Connection:
    """Both ends of one connection, and the task that carries between them."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.writers = [near]
        self.task = asyncio.current_task()

    def close(self, *, reset: bool = False) -> None:
        for writer in self.writers:
            if reset:
                # Lingering for no time: what is unsent is thrown away and the peer gets RST instead of FIN.
                with contextlib.suppress(OSError):  # closed already
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
            writer.transport.abort()
