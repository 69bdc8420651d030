"""Packed bodies, within bounds: the zstd of page records and the gzip of files that are served as such."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import zstandard

from pipeline.errors import InputError

MAX_BODY_BYTES: Final = 64 << 20
"""No body that is unpacked is longer: of a gzip file the rest is left out, a page record that says more is refused."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_ZSTD: Final = zstandard.ZstdDecompressor()
_PIECE_BYTES: Final = 65_536


def body_of(page: Mapping[str, Any]) -> bytes:
    """Return the body of a page record.

    Args:
        page: a record of `crawl.pages.v1-value`.

    Raises:
        InputError: `policy` for a body that lies in a blob store (none is configured), `too_large`, `undecodable`.
    """
    packed, encoding, length = page["body"], page["body_encoding"], page["body_bytes"]
    if packed is None:
        raise InputError("policy", "the body lies in a blob store, and none is configured", field="body_ref")
    if length > MAX_BODY_BYTES:
        raise InputError("too_large", f"{length} bytes; at most {MAX_BODY_BYTES}", field="body_bytes")
    if encoding == "IDENTITY":
        return bytes(packed)
    if encoding != "ZSTD":
        raise InputError("undecodable", f"packed in an unknown way: {encoding}", field="body_encoding")
    try:
        # The frame's own length first: `decompress` would take as much memory as it says, whatever the limit.
        fits = length >= 0 and zstandard.frame_content_size(packed) in {length, -1}  # -1: the frame names none
        body = _ZSTD.decompress(packed, max_output_size=length) if fits else None
    except zstandard.ZstdError as exc:
        raise InputError("undecodable", str(exc), field="body") from exc
    if body is None or len(body) != length:
        raise InputError("undecodable", f"not the {length} bytes that the record names", field="body")
    return body


def gunzip(body: bytes, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    """Unpack a gzip file (RFC 1952, several members and all); anything else comes back as it is.

    Returns:
        At most `limit_bytes`. Of a damaged or cut file, what could be read. Content that only begins like a gzip file
        is left as it is.
    """
    if not body.startswith(_GZIP_MAGIC):
        return body
    once = _members(body, limit_bytes)
    # A .gz file that a server packed once more.
    twice = _members(once, limit_bytes) if once.startswith(_GZIP_MAGIC) else b""
    return twice or once


def _members(packed: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left, position = limit_bytes, 0
    view = memoryview(packed)
    while packed.startswith(_GZIP_MAGIC, position) and left > 0:
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            while position < len(view) and left > 0 and not member.eof:
                # In pieces: an error costs the last one only, and what is left over is never long.
                piece = view[position : position + _PIECE_BYTES]
                part = member.decompress(piece, min(left, _PIECE_BYTES))
                position += len(piece) - len(member.unused_data if member.eof else member.unconsumed_tail)
                parts.append(part)
                left -= len(part)
        except zlib.error:
            break
    return b"".join(parts)
