"""Hostile sites whose bodies lie about their length, their end, their coding or their kind."""

from __future__ import annotations

import gzip
import random
from typing import Final

from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_wire import (
    FOREIGN,
    PAUSE_S,
    Asked,
    Content,
    End,
    Flood,
    Hush,
    Send,
    Step,
    answer,
    head,
    packed,
    page_of,
)

_KIB: Final = 1 << 10
_CHUNKED: Final = head("Content-Type: text/html", "Transfer-Encoding: chunked")
_START: Final = b"<!DOCTYPE html><html><head><title>a page</title></head><body><p>its beginning"
_LONG: Final = "Content-Length: 100000"
_NAMED_GZIP: Final = b"\x1f\x8b\x08\x08" + bytes(6)
"""Head of a gzip member with a file name, which has begun (RFC 1952 2.3.1)."""
_NOISE: Final = random.Random(2).randbytes(8 * _KIB)  # noqa: S311 - noise, no secret


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _html(*fields: str) -> bytes:
    return head("Content-Type: text/html", *fields)


def _kind(name: str, does: str, ending: tuple[str, str], *script: Step) -> HostileKind:
    return HostileKind(name, does, *ending, script)


def _cut(name: str, does: str, reason: str, *script: Step) -> HostileKind:
    """A page that is not whole: it is asked for once more."""
    return _kind(name, does, ("NETWORK_ERROR", f"truncated:{reason}"), *script)


def _page(name: str, does: str, content: Content) -> HostileKind:
    """Odd, and a page all the same."""
    return _kind(name, does, ("FETCHED", ""), Send(content))


def _lying(name: str, does: str, ending: tuple[str, str], *lengths: str) -> HostileKind:
    """A page with Content-Lengths of its own, and the end of the connection behind it."""
    fields = [f"Content-Length: {length}" for length in lengths]
    return _kind(name, does, ending, Send(lambda asked: _html(*fields) + page_of(asked)), End())


_BAD: Final = ("NETWORK_ERROR", "bad_response")
_WIRE: Final = ("TOO_LARGE", "wire_bytes")
_FRAMING: Final = ("TOO_LARGE", "framing")
_SLOW: Final = ("NETWORK_ERROR", "slow_body")
_IDLE: Final = ("NETWORK_ERROR", "idle_timeout")

KINDS: Final = (
    # ---- without end
    _kind("endless-body", "a body without end or length", _WIRE, Send(_html()), Flood(b"<p>more</p>" * 6_000)),
    _kind("endless-chunks", "chunks without end", _WIRE, Send(_CHUNKED), Flood(_chunk(b"<p>more</p>" * 6_000))),
    _kind("small-chunks", "chunks of one byte without end", _FRAMING, Send(_CHUNKED), Flood(b"1\r\nx\r\n" * 8_000)),
    _kind("endless-extension", "a chunk extension without end", _FRAMING,
          Send(_CHUNKED + b"5;x="), Flood(b"y" * 64 * _KIB)),
    _kind("chunk-extensions", "an extension of 1 KiB with each chunk of a byte, without end", _FRAMING,
          Send(_CHUNKED), Flood((b"1;" + b"y" * _KIB + b"\r\nx\r\n") * 32)),
    _cut("endless-trailers", "trailer fields without end behind the last chunk", "chunked",
          Send(_CHUNKED + _chunk(_START) + b"0\r\n"), Flood(b"X-Trailer: value\r\n" * 1_000)),
    _kind("slow-body", "a body that drips", _SLOW, Send(_html(_LONG)), Flood(b"x", PAUSE_S)),
    _kind("slow-chunks", "chunks of one byte that drip", _SLOW, Send(_CHUNKED), Flood(b"1\r\nx\r\n", PAUSE_S)),
    _kind("slow-extension", "a chunk extension that drips", ("NETWORK_ERROR", "total_timeout"),
          Send(_CHUNKED + b"5;x="), Flood(b"y", PAUSE_S)),
    _kind("slow-gzip", "a packed body that drips, in the name of its file", _SLOW,
          Send(_html("Content-Encoding: gzip") + _NAMED_GZIP), Flood(b"x", PAUSE_S)),
    _kind("endless-gzip-name", "a packed body whose file has a name without end", _WIRE,
          Send(_html("Content-Encoding: gzip") + _NAMED_GZIP), Flood(b"x" * 64 * _KIB)),
    _kind("silent-body", "a body that stops in the middle", _IDLE, Send(_html(_LONG) + _START), Hush()),
    _kind("silent-chunks", "chunks that stop in the middle", _IDLE, Send(_CHUNKED + _chunk(_START)), Hush()),
    # ---- cut
    _cut("cut-length", "a body that ends before its Content-Length", "content_length",
         Send(_html(_LONG) + _START), End()),
    _cut("cut-chunks", "a body without its last chunk", "chunked", Send(_CHUNKED + _chunk(_START)), End()),
    _cut("cut-chunk", "a body that ends within a chunk", "chunked", Send(_CHUNKED + b"ff\r\n" + _START), End()),
    _cut("cut-extension", "a body that ends within the extension of its first chunk", "chunked",
         Send(_CHUNKED + b"5;x=y"), End()),
    _cut("cut-gzip", "a packed body that ends before its coding does", "encoding",
         Send(lambda _: packed(gzip.compress(_START * 100 + _NOISE, mtime=0)[:4_000], "gzip"))),
    _cut("bad-chunk", "a chunk whose length is no number", "chunked", Send(_CHUNKED + _chunk(_START) + b"zz\r\n")),
    _cut("huge-chunk", "a chunk of 2^64 bytes and more", "chunked",
         Send(_CHUNKED + _chunk(_START) + b"fffffffffffffffffff\r\nx"), Hush()),
    _cut("negative-chunk", "a chunk of less than no bytes", "chunked",
         Send(_CHUNKED + _chunk(_START) + b"-5\r\nx"), Hush()),
    # ---- lengths that lie
    _page("short-length", "a body longer than its Content-Length; what is behind it is nobody's answer",
          lambda asked: answer(page_of(asked)) + FOREIGN),
    _lying("zero-length", "a page with Content-Length: 0", ("HTTP_ERROR", "empty_body"), "0"),
    _lying("huge-length", "a Content-Length of 10 GB", _WIRE, "10000000000"),
    _lying("absurd-length", "a Content-Length of 30 digits", _BAD, "9" * 30),
    _lying("negative-length", "a Content-Length of -1", _BAD, "-1"),
    _lying("word-length", "a Content-Length that is a word", _BAD, "many"),
    _lying("hex-length", "a Content-Length in hexadecimal", _BAD, "0x10"),
    _lying("two-lengths", "two Content-Lengths that differ", _BAD, "10", "20"),
    _kind("length-and-chunks", "Content-Length beside chunks, as smugglers send it", _BAD,
          Send(lambda asked: _html("Content-Length: 5", "Transfer-Encoding: chunked")
               + _chunk(page_of(asked)) + b"0\r\n\r\n"), End()),
    # ---- codings
    _page("wrong-coding", "gzip that is named br", lambda asked: packed(gzip.compress(page_of(asked)), "br")),
    _page("not-packed", "text that is named gzip", lambda asked: packed(page_of(asked), "gzip")),
    _page("unnamed-gzip", "gzip that nothing names", lambda asked: answer(gzip.compress(page_of(asked)))),
    _page("nonsense-coding", "a coding that is none", lambda asked: packed(page_of(asked), "utf-8")),
    _kind("noise-as-br", "noise that is named br", ("NETWORK_ERROR", "bad_encoding"), Send(packed(_NOISE, "br"))),
    _kind("unknown-coding", "a coding that nobody asked for", ("REFUSED", "unsupported_encoding"),
          Send(lambda asked: packed(page_of(asked), "compress"))),
    # ---- kinds
    _kind("empty", "a page of no bytes", ("HTTP_ERROR", "empty_body"), Send(answer(b""))),
    _kind("endless-video", "a film without end", ("REFUSED", "content_type"),
          Send(head("Content-Type: video/mp4")), Flood(bytes(64 * _KIB))),
    _page("wrong-charset", "GB18030 that is named UTF-8",
          lambda asked: answer(page_of(asked) + "今天早晨".encode("gb18030"), content_type="text/html; charset=utf-8")),
    _page("nonsense-charset", "a charset that is none",
          lambda asked: answer(page_of(asked), content_type='text/html; charset="\x01no such"')),
    _page("noise-as-html", "noise that is named HTML", answer(_NOISE)),
    _page("nul-page", "a page with NUL bytes", lambda asked: answer(page_of(asked).replace(b"p>", b"p>\0\0"))),
    _page("deep-page", "100,000 elements within each other", lambda asked: answer(page_of(asked) + b"<div>" * 100_000)),
    _page("long-attribute", "an attribute of 4 MiB", lambda asked: answer(_long_attribute(asked))),
)  # fmt: skip


def _long_attribute(asked: Asked) -> bytes:
    return page_of(asked) + b'<a href="/' + b"x" * (4 << 20) + b'">x</a>'
