"""Hostile sites whose faults stand before the body: no answer, a head without end, a status line that is none."""

from __future__ import annotations

from typing import Final

from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_wire import (
    FOREIGN,
    PAUSE_S,
    Asked,
    End,
    Flood,
    Hush,
    Script,
    Send,
    Step,
    answer,
    head,
    own_page,
    page_of,
)

_KIB: Final = 1 << 10
_STATUS: Final = b"HTTP/1.1 200 OK\r\n"
_INTERIM: Final = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"


def _net(name: str, does: str, reason: str, *script: Step) -> HostileKind:
    return HostileKind(name, does, "NETWORK_ERROR", reason, script)


def _status(name: str, line: str, outcome: str, reason: str, *fields: str) -> HostileKind:
    """A site that says one status, and a page with it."""
    script = (Send(lambda asked: answer(page_of(asked), *fields, status=line)),)
    return HostileKind(name, f"status {line}" + "".join(f", {field[:60]}" for field in fields), outcome, reason, script)


def _field(name: str, does: str, outcome: str, reason: str, raw: bytes) -> HostileKind:
    """A page with one more piece of head."""
    return HostileKind(name, does, outcome, reason, (Send(lambda asked: _with(raw, asked)),))


def _with(raw: bytes, asked: Asked) -> bytes:
    status, _, rest = own_page(asked).partition(b"\r\n")
    return status + b"\r\n" + raw + rest


_SWITCH: Final = head("Upgrade: websocket", "Connection: Upgrade", status="101 Switching Protocols")
_GARBAGE: Final[Script] = (Send(bytes(range(256)) * 16), End())

KINDS: Final = (
    # ---- no answer
    _net("silent", "takes the request and says nothing", "idle_timeout", Hush()),
    _net("hangs-up", "ends the connection instead of an answer", "reset", End()),
    _net("resets", "resets the connection instead of an answer", "reset", End("reset")),
    _net("resets-in-head", "resets the connection in the middle of the head", "reset", Send(_STATUS), End("reset")),
    _net("ends-in-head", "ends the connection in the middle of the head", "reset", Send(_STATUS), End()),
    _net("silent-in-head", "says nothing more in the middle of the head", "idle_timeout", Send(_STATUS), Hush()),
    # ---- no HTTP
    _net("garbage", "bytes that are nothing", "bad_response", *_GARBAGE),
    _net("nul-bytes", "a head in which every second byte is NUL, as UTF-16 has it", "bad_response",
         Send("HTTP/1.1 200 OK\r\n\r\n".encode("utf-16-le")), End()),
    _net("http09", "a page without a head, as HTTP/0.9 has it", "bad_response", Send(page_of), End()),
    _net("ssh", "the greeting of another protocol", "bad_response", Send(b"SSH-2.0-OpenSSH_9.9\r\n"), End()),
    _net("http3-line", "a version that is none", "bad_response", Send(b"HTTP/3.7 200 OK\r\n\r\n"), End()),
    _net("http2-frames", "HTTP/2 that nobody asked for", "bad_response",
         Send(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)), End()),
    _net("word-status", "a status that is no number", "bad_response", Send(b"HTTP/1.1 two-hundred OK\r\n\r\n"), End()),
    _net("long-status", "a status of five digits", "bad_response", Send(b"HTTP/1.1 20000 OK\r\n\r\n"), End()),
    # ---- heads without end
    _net("endless-fields", "header fields without end", "bad_response",
         Send(_STATUS), Flood(b"".join(b"X-Field-%d: value\r\n" % number for number in range(64)))),
    _net("endless-field", "one header field without end", "bad_response",
         Send(_STATUS + b"X-Field: "), Flood(b"x" * 4 * _KIB)),
    _net("endless-name", "one header name without end", "bad_response", Send(_STATUS), Flood(b"x" * 4 * _KIB)),
    _net("endless-reason", "a status line without end", "bad_response",
         Send(b"HTTP/1.1 200 "), Flood(b"OK " * _KIB)),
    _net("endless-blanks", "empty lines before the head, without end", "total_timeout",
         Flood(b"\r\n" * 8, PAUSE_S)),
    _net("slow-head", "a head that drips", "total_timeout", Send(_STATUS), Flood(b"X-Field: value\r\n", PAUSE_S)),
    _net("slow-status", "a status line that drips", "total_timeout",
         Send(b"HTTP/1.1 200 "), Flood(b"O", PAUSE_S)),
    HostileKind("endless-interim", "interim answers (103) without end", "TOO_LARGE", "head_bytes",
                (Flood(_INTERIM * 64),)),
    _net("slow-interim", "an interim answer now and then, without end", "total_timeout", Flood(_INTERIM, PAUSE_S)),
    HostileKind("few-interim", "three interim answers before a page, as HTTP allows", "FETCHED",
                page=(Send(_INTERIM * 3), Send(own_page))),
    HostileKind("endless-cookies", "cookies of 30 KiB without end", "TOO_LARGE", "head_bytes",
                (Send(_STATUS), Flood(b"Set-Cookie: a=" + b"x" * 30 * _KIB + b"\r\n"))),
    # ---- fields
    _field("huge-cookies", "ten cookies of 30 KiB each before a page; none is kept", "FETCHED", "",
           (b"Set-Cookie: a=" + b"x" * 30 * _KIB + b"\r\n") * 10),
    _field("nul-in-field", "a header field with a NUL byte", "NETWORK_ERROR", "bad_response", b"X-Field: a\0b\r\n"),
    _field("injected-field", "a line end within a header field", "NETWORK_ERROR", "bad_response",
           b"X-Field: a\rSet-Cookie: b=c\r\n"),
    _field("no-colon", "a header line without a colon", "NETWORK_ERROR", "bad_response", b"this is no field\r\n"),
    _field("no-name", "a header line without a name", "NETWORK_ERROR", "bad_response", b": value\r\n"),
    _field("raw-bytes", "header fields of bytes that are no UTF-8", "FETCHED", "", b"X-Field: \xff\xfe\xe9\x80\r\n"),
    _field("doubled-fields", "ETag, Last-Modified, Retry-After and Content-Type twice, and different", "FETCHED", "",
           b'ETag: "a"\r\nETag: "b"\r\nLast-Modified: never\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n'
           b"Content-Type: text/html; charset=nonsense\r\n"),
    # ---- statuses
    _status("status-999", "999 Request denied", "HTTP_ERROR", "http_999"),
    _status("status-408", "408 Request Timeout", "HTTP_ERROR", "http_408"),
    _status("status-417", "417 Expectation Failed", "HTTP_ERROR", "http_417"),
    _status("status-426", "426 Upgrade Required", "HTTP_ERROR", "http_426", "Upgrade: h2c", "Connection: upgrade"),
    _status("status-204", "204 No Content", "HTTP_ERROR", "http_204"),
    _status("status-206", "206 Partial Content", "HTTP_ERROR", "http_206", "Content-Range: bytes 0-99/100"),
    _status("status-226", "226 IM Used", "HTTP_ERROR", "http_226"),
    _status("status-300", "300 Multiple Choices", "HTTP_ERROR", "http_300", "Location: /other"),
    _status("status-304", "304 Not Modified", "NETWORK_ERROR", "unasked_304"),
    _status("status-451", "451 Unavailable For Legal Reasons", "HTTP_ERROR", "http_451"),
    _status("always-429", "429 Too Many Requests", "RATE_LIMITED", "http_429", "Retry-After: 99999999999999999999"),
    _status("always-429-silent", "429 Slow down", "RATE_LIMITED", "http_429"),
    _status("always-503", "503 Service Unavailable", "HTTP_ERROR", "http_503", "Retry-After: -1"),
    _status("riddle", "200 OK", "RATE_LIMITED", "told:cloudflare", "cf-mitigated: challenge"),
    HostileKind("switches-protocols", "status 101 that nobody asked for, and another protocol behind it", "HTTP_ERROR",
                "http_101", (Send(_SWITCH + FOREIGN), Hush())),
)  # fmt: skip
