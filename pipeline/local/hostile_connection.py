"""One connection of the hostile web: plays scripts on it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Final

from pipeline.local.hostile_wire import Asked, End, Flood, Hush, Script, Send, Unasked, content_of

LOOKED_AT_BYTES: Final = 4_096
_RESET: Final = struct.pack("ii", 1, 0)


class Connection:
    """Reads requests ahead, so that it is known whether the client has gone or asked for more.

    Args:
        reader, writer: of the connection, above TLS.

    Attributes:
        is_over: whether a script has ended it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ahead = asyncio.ensure_future(self._read_head())
        self.is_over = False

    async def next_head(self) -> bytes:
        """Return the head of the next request, without the empty line behind it; nothing when there is none."""
        head = await self._ahead
        if head:
            self._ahead = asyncio.ensure_future(self._read_head())
        return head

    async def play(self, script: Script, asked: Asked) -> None:
        """Do what a script says, as far as the client lets it.

        Raises:
            OSError: the client has gone.
        """
        for step in script:
            match step:
                case Send(content):
                    await self._send(content_of(content, asked))
                case Flood(piece, pause_s):
                    await self._flood(content_of(piece, asked), pause_s)
                case Unasked(content, after_s):
                    await asyncio.sleep(after_s)
                    if self._ahead.done():
                        return
                    await self._send(content_of(content, asked))
                case Hush():
                    await self._wait_for_end()
                case End(how):
                    await self._end(how)

    def leave(self) -> None:
        """End it, whatever is under way."""
        self._ahead.cancel()
        self._writer.transport.abort()

    async def _read_head(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\r\n\r\n"))[:-4]
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return b""

    async def _send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError("the client has gone")
        self._writer.write(data)
        await self._writer.drain()

    async def _flood(self, piece: bytes, pause_s: float) -> None:
        while True:
            await self._send(piece)
            await asyncio.sleep(pause_s)  # 0: the other connections have their turn

    async def _wait_for_end(self) -> None:
        self.is_over = True
        while await self.next_head():
            pass

    async def _end(self, how: str) -> None:
        self.is_over = True
        connected = self._writer.get_extra_info("socket")
        if how == "reset":
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._writer.transport.abort()
        elif how == "cut":
            with socket.socket(fileno=os.dup(connected.fileno())) as beneath:  # below TLS
                beneath.shutdown(socket.SHUT_WR)
            await self._wait_for_end()
        else:
            self._writer.close()
            await self._writer.wait_closed()


async def first_bytes(connected: socket.socket) -> bytes:
    """Return what a client has said first, and leave it in the socket; nothing when it has gone."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connected.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connected.fileno())
    return connected.recv(LOOKED_AT_BYTES, socket.MSG_PEEK)
