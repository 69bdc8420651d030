"""Hostile sites whose robots.txt is the fault; their pages are honest."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from typing import Final

from pipeline.local.hostile_bombs import BLANKS
from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_wire import (
    PAUSE_S,
    Asked,
    End,
    Flood,
    Hush,
    Send,
    Step,
    answer,
    head,
    own_page,
    packed,
    redirect,
)

_DENY: Final = b"User-agent: *\nDisallow: /\n"
_ALLOW: Final = b"User-agent: *\nDisallow: /private/\n"
_TEXT: Final = "text/plain"
_ENDLESS: Final = head("Content-Type: text/plain")
_LINE_2: Final = ("ROBOTS_DENIED", "disallowed:2")
_OPEN: Final = ("FETCHED", "")


@cache
def _bomb() -> bytes:
    return gzip.compress(_DENY + BLANKS, 9, mtime=0) + gzip.compress(BLANKS, 9, mtime=0) * 63


@cache
def _wildcards() -> bytes:
    """10 MiB of rules that a backtracking matcher would never get through."""
    rules = b"".join(b"Disallow: /" + b"*a" * 20 + b"*%d$\n" % number for number in range(8_000))
    return (b"User-agent: *\n" + rules * 20)[: 10 << 20]


@cache
def _groups() -> bytes:
    return _ALLOW + b"".join(b"User-agent: bot%d\nDisallow: /\n\n" % number for number in range(30_000))


def _file(name: str, does: str, ending: tuple[str, str], body: bytes | Callable[[], bytes]) -> HostileKind:
    def send(_: Asked) -> bytes:
        return answer(body if isinstance(body, bytes) else body(), content_type=_TEXT)

    return _kind(name, does, ending, Send(send))


def _kind(name: str, does: str, ending: tuple[str, str], *script: Step) -> HostileKind:
    return HostileKind(f"robots-{name}", f"robots.txt: {does}", *ending, page=(Send(own_page),), robots=script)


def _closed(name: str, does: str, reason: str, *script: Step) -> HostileKind:
    """robots.txt that can't be had: nothing may be asked for (RFC 9309 2.3.1.4)."""
    return _kind(name, does, ("ROBOTS_UNREACHABLE", reason), *script)


def _status(line: str, *fields: str) -> Send:
    return Send(answer(b"no", *fields, status=line))


KINDS: Final = (
    _kind("bomb", "1 GiB of blanks behind two lines; what is within 500 KiB holds", _LINE_2,
          Send(lambda _: packed(_bomb(), "gzip", _TEXT))),
    _kind("endless", "lines without end behind two; what is within 500 KiB holds", _LINE_2,
          Send(_ENDLESS + _DENY), Flood(b"Allow: /public/\n" * 256)),
    _kind("endless-line", "one line without end behind two", _LINE_2,
          Send(_ENDLESS + _DENY + b"Allow: /"), Flood(b"x" * 4_096)),
    _file("wildcards", "10 MiB of wildcards", _OPEN, _wildcards),
    _file("groups", "30,000 groups for others", _OPEN, _groups),
    _file("noise", "bytes that are no text", _OPEN, bytes(range(256)) * 400),
    _file("html", "a page that says that nothing is here", _OPEN, b"<!DOCTYPE html><title>404</title><p>Not here"),
    _file("utf-16", "rules in UTF-16, with its mark", _LINE_2, _DENY.decode().encode("utf-16")),
    _file("old-mac", "lines that end with CR alone", _LINE_2, _DENY.replace(b"\n", b"\r")),
    _file("nul", "NUL bytes between the rules", _LINE_2, _DENY + b"\0" * 1_000),
    _kind("no-end", "a body without length whose connection ends as it may", _LINE_2,
          Send(_ENDLESS + _DENY), End()),
    _closed("cut", "a body that ends before its Content-Length", "truncated",
            Send(head("Content-Type: text/plain", "Content-Length: 1000") + _ALLOW), End()),
    _closed("drip", "a body that drips", "slow_body", Send(_ENDLESS), Flood(b"#", PAUSE_S)),
    _closed("slow-head", "a head that drips", "total_timeout",
            Send(b"HTTP/1.1 200 OK\r\n"), Flood(b"X: y\r\n", PAUSE_S)),
    _closed("silent", "no answer", "idle_timeout", Hush()),
    _closed("reset", "a reset instead of an answer", "reset", End("reset")),
    _closed("garbage", "an answer that is no HTTP", "bad_response", Send(b"\x16\x03\x01garbage\r\n\r\n"), End()),
    _closed("500", "status 500", "http_500", _status("500 Internal Server Error")),
    _closed("503", "status 503 with a Retry-After of 10^20 seconds", "http_503",
            _status("503 Service Unavailable", "Retry-After: 100000000000000000000")),
    _closed("999", "status 999", "http_999", _status("999 Request denied")),
    _closed("429", "status 429", "http_429", _status("429 Too Many Requests")),
    _kind("403", "status 403, which is as none (RFC 9309 2.3.1.3)", _OPEN, _status("403 Forbidden")),
    _kind("redirects", "500 redirects; five are followed (RFC 9309 2.3.1.2)", _OPEN,
          Send(lambda asked: redirect(_next(asked)))),
    _kind("circle", "a redirect to itself", _OPEN, Send(lambda asked: redirect(asked.target))),
    _closed("inner", "a redirect to an inner address", "blocked_address",
            Send(lambda asked: redirect(f"http://127.0.0.1:{asked.inner_port}/robots.txt"))),
)  # fmt: skip


def _next(asked: Asked) -> str:
    number = int("0" + asked.target.partition("?")[2])
    return f"/robots.txt?{number + 1}"
