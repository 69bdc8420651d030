"""Where the hostile web lives on the loopback network: its port, and those where nobody may or can connect to."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from pipeline.errors import ConfigurationError

WEB_ADDRESS: Final = "127.0.0.3"
"""Not that of an honest site: a crawler may limit its requests by address."""
INNER_ADDRESSES: Final = ("127.0.0.1", "127.0.0.2", "::1")
INNER: Final = "inner"
"""Host in the log of a connection to where nobody may connect to; the path is the address."""
BACKLOG: Final = 1_024
_TRIES: Final = 32


class Ports(NamedTuple):
    """Sockets of the hostile web.

    Attributes:
        web: takes requests; plain and TLS.
        inner: listen on every `INNER_ADDRESSES` under the port of the web and under one of their own: whoever connects
            has passed its guard.
        inner_port: the second of these ports.
        closed: holds a port on which nobody listens.
        full: listens, and takes no connection any more.
    """

    web: socket.socket
    inner: tuple[socket.socket, ...]
    inner_port: int
    closed: socket.socket
    full: socket.socket

    @property
    def port(self) -> int:
        """Port of the web."""
        return port_of(self.web)


def port_of(taken: socket.socket) -> int:
    """Return the port of a socket."""
    port: int = taken.getsockname()[1]
    return port


@contextlib.contextmanager
def take_ports() -> Iterator[Ports]:
    """Take free ports, and give them back at the end.

    Raises:
        ConfigurationError: none could be had.
    """
    with contextlib.ExitStack() as stack:
        web, inner_at_web = _taken_everywhere(stack, WEB_ADDRESS)
        _, inner = _taken_everywhere(stack, None)
        closed = stack.enter_context(socket.socket())
        closed.bind((WEB_ADDRESS, 0))
        full = stack.enter_context(socket.create_server((WEB_ADDRESS, 0), backlog=0))
        _fill(stack, full)
        yield Ports(web, (*inner_at_web, *inner), port_of(inner[0]), closed, full)


def _taken_everywhere(
    stack: contextlib.ExitStack, first: str | None
) -> tuple[socket.socket, tuple[socket.socket, ...]]:
    """Listen under one port on `first` and on all inner addresses that this machine has."""
    addresses = [*([first] if first else []), *INNER_ADDRESSES]
    for _ in range(_TRIES):
        with contextlib.ExitStack() as attempt:
            taken: list[socket.socket] = []
            try:
                for address in addresses:
                    port = port_of(taken[0]) if taken else 0
                    taken.append(attempt.enter_context(_listening(address, port)))
            except OSError as exc:
                if len(taken) < len(addresses) - 1 or not _is_missing_v6(exc):
                    continue  # somebody has the port on one of them
            stack.push(attempt.pop_all())
            return taken[0], tuple(taken[1:] if first else taken)
    raise ConfigurationError("no port is free on all of " + ", ".join(addresses))


def _listening(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener


def _is_missing_v6(exc: OSError) -> bool:
    """Whether the machine has no IPv6."""
    return exc.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def _fill(stack: contextlib.ExitStack, listener: socket.socket) -> None:
    """Put connections into the queue of a listener that nobody takes, until it is full."""
    for _ in range(2):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex(listener.getsockname())
