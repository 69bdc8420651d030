"""Words in which the behaviour of a hostile site is written down: steps on the wire, as data. No sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

FOREIGN: Final = b"this answers no request of yours"
"""Stands in everything that must not become anybody's page: unasked answers, and what inner addresses say."""
PAUSE_S: Final = 0.1
"""Between two pieces of what drips: far below any idle limit, and so slow that a minimum rate should notice."""


class Asked(NamedTuple):
    """A request, and what an answer to it may have to name.

    Attributes:
        host: without the port.
        port: of the hostile web.
        target: path and query.
        cookie: the Cookie field; empty for none.
        inner_port: where nobody may connect to, on any address of this machine.
    """

    host: str
    port: int
    target: str
    cookie: str
    inner_port: int

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


Content = bytes | Callable[[Asked], bytes]
"""Bytes, or what makes them of the request that they answer. Long ones are made when they are first sent."""


class Send(NamedTuple):
    """Send it."""

    content: Content


class Flood(NamedTuple):
    """Send a piece again and again until the client goes, as fast as it is taken or with pauses (s)."""

    piece: Content
    pause_s: float = 0.0


class Unasked(NamedTuple):
    """Send it after a while (s), unless another request has come by then."""

    content: Content
    after_s: float = 0.05


class Hush(NamedTuple):
    """Say nothing more, until the client goes."""


class End(NamedTuple):
    """End the connection.

    Attributes:
        how: `close`: as one should, TLS's own end included; `cut`: without it; `reset`: TCP's RST.
    """

    how: Literal["close", "cut", "reset"] = "close"


Step = Send | Flood | Unasked | Hush | End
Script = tuple[Step, ...]
"""What is done about one request. Behind the last step the connection waits for the next one."""


def content_of(content: Content, asked: Asked) -> bytes:
    """Return the bytes."""
    return content if isinstance(content, bytes) else content(asked)


def prepare(script: Script, asked: Asked) -> None:
    """Make what a script sends, so that it is there when it is asked for."""
    for step in script:
        if isinstance(step, Send | Flood | Unasked):
            content_of(step[0], asked)


def head(*fields: str, status: str = "200 OK") -> bytes:
    """Return the head of an answer; characters are sent as Latin-1."""
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode("latin-1")


def answer(body: bytes, *fields: str, status: str = "200 OK", content_type: str = "text/html") -> bytes:
    """Return an answer with the length of its body; an empty `content_type` leaves that field out."""
    kind = (f"Content-Type: {content_type}",) if content_type else ()
    return head(f"Content-Length: {len(body)}", *kind, *fields, status=status) + body


def redirect(location: str, *fields: str, status: str = "302 Found") -> bytes:
    """Return a redirect without a body."""
    return answer(b"", f"Location: {location}", *fields, status=status, content_type="")


def page_of(asked: Asked) -> bytes:
    """Return an honest page that names what it answers."""
    title = f"{asked.host}{asked.target}"
    return f"<!DOCTYPE html><html><head><title>{title}</title></head><body><p>{title}</p></body></html>".encode()


def own_page(asked: Asked) -> bytes:
    """Return an honest answer with an honest page."""
    return answer(page_of(asked))


def packed(body: bytes, coding: str, content_type: str = "text/html") -> bytes:
    """Return an answer with a packed body, which says so."""
    return answer(body, f"Content-Encoding: {coding}", content_type=content_type)


NOT_FOUND: Final[Script] = (Send(answer(b"none", status="404 Not Found")),)
PAGE: Final[Script] = (Send(own_page),)
