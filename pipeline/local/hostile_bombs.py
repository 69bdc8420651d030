"""Hostile sites whose bodies are small on the wire and large behind it, or cost more than their bytes."""

from __future__ import annotations

import gzip
import sys
import zlib
from functools import cache
from typing import Final

import brotli

from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_wire import Asked, Flood, Script, Send, head, packed, page_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB: Final = 1 << 20
BLANKS: Final = b" " * (16 * MIB)
MEMBERS: Final = 64
"""Of 16 MiB each: 1 GiB in about 1 MiB."""
_START: Final = b"<!DOCTYPE html><title>a page</title><p>"
_ENTITIES: Final = "".join(
    f'<!ENTITY lol{level} "{f"&lol{level - 1};" * 10}">' if level else '<!ENTITY lol0 "ha">' for level in range(10)
)
"""Ten levels of ten: 10^9 copies of the innermost."""


@cache
def _gzip_bomb() -> bytes:
    return gzip.compress(_START + BLANKS, 9, mtime=0) + gzip.compress(BLANKS, 9, mtime=0) * (MEMBERS - 1)


@cache
def _deflate_bomb(window_bits: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    return packer.compress(_START) + b"".join(packer.compress(BLANKS) for _ in range(4)) + packer.flush()


@cache
def _br_bomb() -> bytes:
    return bytes(brotli.compress(_START + BLANKS * 8, quality=5))


@cache
def _zstd_bomb() -> bytes:
    return zstd.compress(_START + BLANKS) + zstd.compress(BLANKS) * (MEMBERS - 1)


@cache
def _double_bomb() -> bytes:
    return gzip.compress(gzip.compress(BLANKS, 9, mtime=0) * (MEMBERS * 16), 9, mtime=0)


@cache
def _large() -> bytes:
    """More than 64 MiB at a ratio of about 120: no bomb by its ratio."""
    words = b"".join(b"%08x" % (number * 2_654_435_761 % 2**32) for number in range(1_000))
    return gzip.compress(_START, mtime=0) + gzip.compress(words + BLANKS[:MIB], 6, mtime=0) * 72


def _wide_window(asked: Asked) -> bytes:
    """One raw block in a frame whose header wants a window of 2 GiB (RFC 8878 3.1.1.1.2)."""
    body = page_of(asked)
    frame = b"\x28\xb5\x2f\xfd" + b"\x00\xa8" + (len(body) << 3 | 1).to_bytes(3, "little") + body
    return packed(frame, "zstd")


@cache
def _empty_member() -> bytes:
    return gzip.compress(b"", mtime=0) * 512


@cache
def _empty_frames() -> bytes:
    return zstd.compress(_START) + zstd.compress(b"") * 100_000


def _five_codings(asked: Asked) -> bytes:
    body = page_of(asked)
    for _ in range(5):
        body = gzip.compress(body, mtime=0)
    return packed(body, ", ".join(["gzip"] * 5))


def _entities(root: str) -> bytes:
    return f'<?xml version="1.0"?><!DOCTYPE {root} [{_ENTITIES}]>'.encode()


def _feed(asked: Asked) -> bytes:
    link = f"http://{asked.authority}/"
    body = (
        b'<rss version="2.0"><channel><title>&lol9;</title><item><title>&lol9;</title><link>%s</link></item></channel>'
        b"</rss>" % link.encode()
    )
    return packed(gzip.compress(_entities("rss") + body), "gzip", "application/rss+xml")


def _sitemap(asked: Asked) -> bytes:
    body = (
        b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://%s/&lol9;</loc></url></urlset>'
        % asked.authority.encode()
    )
    return packed(gzip.compress(_entities("urlset") + body), "gzip", "application/xml")


def _packed_sitemap(_: Asked) -> bytes:
    """A file that is an archive itself: what is in it is the parse stage's to unpack."""
    return head("Content-Type: application/gzip", f"Content-Length: {len(_gzip_bomb())}") + _gzip_bomb()


def _bomb(name: str, does: str, coding: str, reason: str, script: Script) -> HostileKind:
    said = f" named {coding}" if coding else ""
    return HostileKind(name, f"{does}{said}", "TOO_LARGE", reason, script)


KINDS: Final = (
    _bomb("gzip-bomb", "1 GiB of blanks, 64 members", "gzip", "ratio", (Send(lambda _: packed(_gzip_bomb(), "gzip")),)),
    _bomb("br-bomb", "128 MiB of blanks", "br", "ratio", (Send(lambda _: packed(_br_bomb(), "br")),)),
    _bomb("zstd-bomb", "1 GiB of blanks, 64 frames", "zstd", "ratio", (Send(lambda _: packed(_zstd_bomb(), "zstd")),)),
    _bomb(
        "deflate-bomb", "64 MiB of blanks", "deflate", "ratio", (Send(lambda _: packed(_deflate_bomb(15), "deflate")),)
    ),
    _bomb(
        "raw-deflate-bomb",
        "64 MiB of blanks without the zlib header",
        "deflate",
        "ratio",
        (Send(lambda _: packed(_deflate_bomb(-15), "deflate")),),
    ),
    _bomb(
        "double-bomb",
        "16 GiB of blanks, packed twice",
        "gzip, gzip",
        "ratio",
        (Send(lambda _: packed(_double_bomb(), "gzip, gzip")),),
    ),
    _bomb("unnamed-bomb", "1 GiB of blanks by gzip, which no field names", "", "ratio", (
        Send(lambda _: head("Content-Type: text/html", f"Content-Length: {len(_gzip_bomb())}") + _gzip_bomb()),
    )),
    _bomb("deep-codings", "a page packed five times", "gzip, five times", "codings", (Send(_five_codings),)),
    _bomb(
        "large-page",
        "72 MiB of text at a ratio that is no bomb's",
        "gzip",
        "decoded_bytes",
        (Send(lambda _: packed(_large(), "gzip")),),
    ),
    _bomb(
        "empty-frames",
        "a page and 100,000 empty frames behind it",
        "zstd",
        "frames",
        (Send(lambda _: packed(_empty_frames(), "zstd")),),
    ),
    _bomb(
        "empty-members",
        "empty members without end",
        "gzip",
        "wire_bytes",
        (Send(head("Content-Type: text/html", "Content-Encoding: gzip")), Flood(lambda _: _empty_member())),
    ),
    HostileKind(
        "wide-window",
        "zstd whose window is larger than decoders must have (RFC 9659 3)",
        "NETWORK_ERROR",
        "bad_encoding",
        (Send(_wide_window),),
    ),
    HostileKind(
        "feed-entities", "a feed whose title is 10^9 entities; it is small, so it is a page", "FETCHED",
        page=(Send(_feed),),
    ),
    HostileKind(
        "sitemap-entities",
        "a sitemap whose one address is 10^9 entities; it is small, so it is a page",
        "FETCHED",
        page=(Send(_sitemap),),
        targets=("/sitemap.xml",),
    ),
    HostileKind(
        "sitemap-bomb",
        "a packed sitemap file of 1 GiB; packed it is small, so it is a page",
        "FETCHED",
        page=(Send(_packed_sitemap),),
        targets=("/sitemap.xml.gz",),
    ),
)  # fmt: skip
