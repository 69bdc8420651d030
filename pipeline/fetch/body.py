"""Body reader: bytes as a hostile site sends them, content codings undone, every limit held while they stream.

The same reader serves every path (page, robots.txt, sitemap, feed). It is fed chunks and knows neither socket nor
clock; idle time and total time are the caller's (`pipeline.fetch.client`).

Codings are those of RFC 9110 8.4.1 with br (RFC 7932) and zstd (RFC 8878): gzip with several members and rubbish behind
them, deflate with and without its zlib header, several codings on top of each other. A header can be wrong or missing:
where the first bytes contradict it, they are believed.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, Protocol

import brotli

from pipeline.errors import SiteError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STEP_BYTES: Final = 64 << 10
"""Most that a decoder gives out before the limits are looked at again."""
SLICE_BYTES: Final = 16 << 10
"""Most that zlib is given at once: it copies what is left over at each member's end."""
RATIO_FREE_BYTES: Final = 1 << 20
"""Decoded bytes from which on the ratio counts: a small page of blanks may shrink to nearly nothing."""
MAX_CODINGS: Final = 3
MAX_FRAMES: Final = 4_096
"""Most zstd frames after the first: each costs 25 µs, and a body of the longest kind has room for two million."""
REPLAY_BYTES: Final = 256 << 10
ZSTD_WINDOW_BYTES: Final = 8 << 20
"""Largest window that a decoder of the web must have (RFC 9659 3)."""

_NAMES: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "br": "br", "zstd": "zstd"}
_UNDECODABLE: Final = frozenset({"compress", "x-compress", "exi", "pack200-gzip", "aes128gcm", "dcb", "dcz"})
"""Registered codings that we never ask for. A word that is no coding at all (`utf-8`, `none`) is passed over."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_TEXT_START: Final = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*\Z")
_ASCII_START: Final = re.compile(rb"[\t\n\r\x20-\x7e]*\Z")
_MAGIC_BYTES: Final = 4
_ZLIB_METHOD_DEFLATE: Final = 8

Sink = Callable[[bytes], None]


class Limits(NamedTuple):
    """What a body may cost.

    Attributes:
        wire_bytes: as received.
        decoded_bytes: after decoding, of every coding on the way.
        ratio: decoded to received bytes, once `RATIO_FREE_BYTES` are decoded.
        cut: True: a body that is too long is cut there and `truncated` is `cut`; False: it is an error.
    """

    wire_bytes: int
    decoded_bytes: int
    ratio: float
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body.

    Attributes:
        data: decoded bytes; what came of them where the body is truncated.
        bytes_wire: bytes received.
        truncated: None for a whole body. `content_length`, `chunked`, `reset`, `tls_close`: the connection ended before
            the body did (as announced, without a last chunk, by a reset, or without TLS's own end). `encoding`: the
            body ended before its coding did. `bad_encoding`: the coding broke off in the middle. `cut`: cut at our
            limit.
        codings: that were undone, in the order in which they were applied, whatever the header said.
    """

    data: bytes = b""
    bytes_wire: int = 0
    truncated: str | None = None
    codings: tuple[str, ...] = field(default=(), compare=False)


class BodyTooLarge(SiteError):  # noqa: N818 - the name says what is wrong with the body
    """A limit was passed; `reason` says which: `wire_bytes`, `decoded_bytes`, `ratio`, `codings` or `frames`."""

    def __init__(self, reason: str, limit: float) -> None:
        super().__init__(reason, f"the body passes the limit of {reason}: {limit:g}")


class TruncatedBody(SiteError):  # noqa: N818 - the name says what is wrong with the body
    """The connection ended before the body did; `reason` as in `Body.truncated`. Raised by the stream of chunks."""


class _Undecodable(Exception):  # noqa: N818 - never leaves this module
    """The bytes are not of the coding, from here on."""


class _Enough(Exception):  # noqa: N818 - never leaves this module
    """The body is as long as was wished for."""


class BodyReader:
    """Takes the chunks of one body.

    Args:
        content_encoding: the header's value, lines joined by commas; empty for none.
        limits: what the body may cost.
        sniff: whether gzip and zstd are recognised by their first bytes where no coding is named, also beneath those
            that are. Not for a type that is an archive itself.

    Raises:
        BodyTooLarge: more codings than `MAX_CODINGS`.
        SiteError: `unsupported_encoding`.
    """

    def __init__(self, content_encoding: str, limits: Limits, *, sniff: bool = True) -> None:
        self._limits = limits
        self._wire = 0
        self._decoded = 0
        self._pieces: list[bytes] = []
        self._broken: str | None = None
        self._layers: list[_Layer] = []
        self._entry: Sink = self._take
        codings = _codings(content_encoding)
        if len(codings) > MAX_CODINGS:
            raise BodyTooLarge("codings", MAX_CODINGS)
        # Innermost what no header names: a file that was packed by its author and once more by its server.
        for name in [*([""] if sniff else []), *codings]:
            layer = _Layer(name, self._metered(self._entry) if self._layers else self._entry)
            self._layers.append(layer)
            self._entry = layer.feed

    def feed(self, chunk: bytes) -> bool:
        """Take a chunk as received; False when no more is wanted.

        Raises:
            BodyTooLarge: a limit is passed.
            SiteError: `bad_encoding`, the coding that is named is not that of the first bytes, nor are they text.
        """
        self._wire += len(chunk)
        excess = self._wire - self._limits.wire_bytes
        if excess <= 0:
            return self._guarded(self._entry, chunk)
        if not self._limits.cut:
            raise BodyTooLarge("wire_bytes", self._limits.wire_bytes)
        if self._guarded(self._entry, chunk[:-excess]):
            self._broken = "cut"
        return False

    def end(self, truncated: str | None = None) -> Body:
        """Return the body.

        Args:
            truncated: why the stream ended early, None when it ended as announced.

        Raises:
            BodyTooLarge, SiteError: as `feed`, by bytes that were held back.
        """
        for layer in reversed(self._layers):
            if self._broken is not None or not self._guarded(layer.finish):
                break
            if not layer.is_whole():
                self._broken = "encoding"
        codings = tuple(layer.coding for layer in self._layers if layer.coding)
        return Body(b"".join(self._pieces), self._wire, truncated or self._broken, codings)

    def _guarded(self, step: Callable[..., None], *arguments: bytes) -> bool:
        try:
            step(*arguments)
        except _Enough:
            self._broken = "cut"
        except _Undecodable as exc:
            if not self._decoded:
                raise SiteError("bad_encoding", str(exc)) from exc
            self._broken = "bad_encoding"
        return self._broken is None

    def _take(self, piece: bytes) -> None:
        self._decoded += len(piece)
        limits = self._limits
        if self._decoded > limits.decoded_bytes:
            if limits.cut:
                self._pieces.append(piece[: len(piece) - (self._decoded - limits.decoded_bytes)])
                raise _Enough
            raise BodyTooLarge("decoded_bytes", limits.decoded_bytes)
        if self._decoded > RATIO_FREE_BYTES and self._decoded > limits.ratio * self._wire:
            raise BodyTooLarge("ratio", limits.ratio)
        self._pieces.append(piece)

    def _metered(self, target: Sink) -> Sink:
        """Hold the limits between two codings too: what the second throws away has been decoded all the same."""
        passed = 0

        def count(piece: bytes) -> None:
            nonlocal passed
            passed += len(piece)
            excess = passed - self._limits.decoded_bytes
            if excess > 0:
                if self._limits.cut:
                    target(piece[: len(piece) - excess])
                    raise _Enough
                raise BodyTooLarge("decoded_bytes", self._limits.decoded_bytes)
            if passed > RATIO_FREE_BYTES and passed > self._limits.ratio * self._wire:
                raise BodyTooLarge("ratio", self._limits.ratio)
            target(piece)

        return count


async def read_body(chunks: AsyncIterable[bytes], content_encoding: str, limits: Limits, *, sniff: bool = True) -> Body:
    """Read a body to its end, or as far as it is wished for.

    Args:
        chunks: the body as received; may raise `TruncatedBody`.
        content_encoding: see `BodyReader`.
        limits: what the body may cost.
        sniff: see `BodyReader`.

    Raises:
        BodyTooLarge, SiteError: see `BodyReader`; and what `chunks` raises otherwise.
    """
    reader = BodyReader(content_encoding, limits, sniff=sniff)
    try:
        async for chunk in chunks:
            if not reader.feed(chunk):
                break
    except TruncatedBody as exc:
        return reader.end(exc.reason)
    return reader.end()


class _Decoder(Protocol):
    """Undoes one coding."""

    coding: ClassVar[str]

    def feed(self, data: bytes, sink: Sink) -> None:
        """Decode in steps of at most about `STEP_BYTES`. Raises `_Undecodable`."""
        ...

    def is_whole(self) -> bool:
        """Whether the coding says that this was all."""
        ...


class _Layer:
    """One coding of the body, settled by its name and its first bytes.

    A coding can be named wrongly, and br and deflate show it only by failing; until the first bytes come out the input
    is kept, and the next guess gets it anew.
    """

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink = sink
        self._decoder: _Decoder = _Plain()
        self._guesses: list[Callable[[], _Decoder]] = []
        self._kept = b""
        self._is_chosen = self._is_settled = False

    def feed(self, data: bytes) -> None:
        if self._is_settled:
            self._decoder.feed(data, self._sink)
            return
        self._kept += data
        if self._is_chosen:
            self._try(data)
        elif len(self._kept) >= _MAGIC_BYTES:
            self._choose()

    def finish(self) -> None:
        """Give out what was held back."""
        if self._kept and not self._is_chosen:
            self._choose()

    def is_whole(self) -> bool:
        """Whether the coding says that this was all; to be asked after `finish`."""
        return self._decoder.is_whole()

    @property
    def coding(self) -> str:
        """The coding that was undone; empty for none."""
        return self._decoder.coding

    def _choose(self) -> None:
        self._is_chosen = True
        self._guesses = _guesses(self._name, self._kept)
        self._decoder = self._guesses.pop(0)()
        self._try(self._kept)

    def _try(self, data: bytes) -> None:
        try:
            self._decoder.feed(data, self._pass)
        except _Undecodable:
            if self._is_settled or not self._guesses:
                raise
            self._decoder = self._guesses.pop(0)()
            self._try(self._kept)
        if self._is_settled or len(self._kept) > REPLAY_BYTES:
            self._is_settled, self._kept = True, b""

    def _pass(self, piece: bytes) -> None:
        self._is_settled = True
        self._sink(piece)


def _codings(content_encoding: str) -> list[str]:
    """Return the codings in the order they were applied."""
    codings = []
    for word in content_encoding.lower().split(","):
        name = word.strip()
        if name in _UNDECODABLE:
            raise SiteError("unsupported_encoding", f"content coding {name}")
        if name in _NAMES:
            codings.append(_NAMES[name])
    return codings


def _guesses(name: str, head: bytes) -> list[Callable[[], _Decoder]]:
    """Return the decoders to try, the likeliest first."""
    shown: list[Callable[[], _Decoder]] = []
    if head.startswith(_GZIP_MAGIC):
        shown = [_Gzip]
    elif _ZSTD_MAGIC.match(head):
        shown = [_Zstd]
    if shown:  # br has no mark of its own: its bytes may happen to begin so
        return [_Brotli, *shown] if name == "br" else shown
    is_text = _TEXT_START.match(head[:64]) is not None
    named: list[Callable[[], _Decoder]] = []
    if name == "br":
        named = [_Brotli]
    elif name and _has_zlib_header(head):
        named = [_ZlibHeader, _RawDeflate] if name == "deflate" else [_ZlibHeader]
    elif name == "deflate":
        # Some text is deflate for a while (`{` begins a block): what starts in ASCII is text.
        named = [] if is_text and _ASCII_START.match(head[:16]) else [_RawDeflate]
    elif name and not is_text:
        named = [_ZlibHeader]  # has no such header: it says what is wrong
    return [*named, _Plain] if is_text or not name else named


def _has_zlib_header(head: bytes) -> bool:
    """RFC 1950 2.2: method 8, and the two bytes a multiple of 31."""
    return head[0] & 0x0F == _ZLIB_METHOD_DEFLATE and int.from_bytes(head[:2], "big") % 31 == 0


class _Plain:
    """No coding."""

    coding: ClassVar[str] = ""

    def feed(self, data: bytes, sink: Sink) -> None:
        sink(data)

    def is_whole(self) -> bool:
        return True


class _Zlib:
    """zlib's family; what follows the end is ignored."""

    coding: ClassVar[str] = "deflate"

    window_bits = zlib.MAX_WBITS

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(self.window_bits)
        self._is_whole = False
        self._is_over = False

    def feed(self, data: bytes, sink: Sink) -> None:
        for start in range(0, len(data), SLICE_BYTES):
            self._feed_slice(data[start : start + SLICE_BYTES], sink)

    def is_whole(self) -> bool:
        return self._is_whole

    def _feed_slice(self, data: bytes, sink: Sink) -> None:
        is_full = False
        while (data or is_full) and not self._is_over:
            try:
                piece = self._stream.decompress(data, STEP_BYTES)
            except zlib.error as exc:
                raise _Undecodable(str(exc)) from exc
            if piece:
                sink(piece)
            # A full step may leave output behind although all input is taken.
            is_full = len(piece) == STEP_BYTES
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                data, is_full = self._after_end(self._stream.unused_data), False

    def _after_end(self, rest: bytes) -> bytes:
        """The stream has ended; return what of the rest is to be decoded."""
        del rest
        self._is_whole = self._is_over = True
        return b""


class _ZlibHeader(_Zlib):
    """deflate as RFC 9110 8.4.1.2 has it: with the zlib header."""


class _RawDeflate(_Zlib):
    """deflate as some servers have it: without."""

    window_bits = -zlib.MAX_WBITS


class _Gzip(_Zlib):
    """gzip: any number of members (RFC 1952 2.2); rubbish behind a member ends the body."""

    coding: ClassVar[str] = "gzip"
    window_bits = zlib.MAX_WBITS | 16

    def __init__(self) -> None:
        super().__init__()
        self._between = b""

    def feed(self, data: bytes, sink: Sink) -> None:
        if self._is_whole and not self._is_over:
            data, self._between = self._between + data, b""
            data = self._after_end(data)
        super().feed(data, sink)

    def _after_end(self, rest: bytes) -> bytes:
        self._is_whole = True
        if rest.startswith(_GZIP_MAGIC):
            self._stream = zlib.decompressobj(self.window_bits)
            self._is_whole = False
            return rest
        if _GZIP_MAGIC.startswith(rest):  # nothing yet, or half of the magic
            self._between = rest
        else:
            self._is_over = True
        return b""


class _Brotli:
    """br."""

    coding: ClassVar[str] = "br"

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes, sink: Sink) -> None:
        while not self._stream.is_finished():
            try:
                piece = self._stream.process(data, output_buffer_limit=STEP_BYTES)
            except brotli.error as exc:
                raise _Undecodable(str(exc)) from exc
            if piece:
                sink(piece)
            if self._stream.can_accept_more_data():
                return
            data = b""

    def is_whole(self) -> bool:
        return bool(self._stream.is_finished())


class _Zstd:
    """zstd: frame upon frame (RFC 8878 3.1), up to `MAX_FRAMES`; rubbish behind a frame ends the body, as with gzip."""

    coding: ClassVar[str] = "zstd"
    _OPTIONS: Final[Mapping[int, int]] = {
        zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_BYTES.bit_length() - 1
    }

    def __init__(self) -> None:
        self._stream = zstd.ZstdDecompressor(options=self._OPTIONS)
        self._frames = 0
        self._between = b""
        self._is_whole = self._is_over = False

    def feed(self, data: bytes, sink: Sink) -> None:
        for start in range(0, len(data), SLICE_BYTES):
            if self._is_over:
                return
            self._feed_slice(data[start : start + SLICE_BYTES], sink)

    def is_whole(self) -> bool:
        return self._is_whole

    def _feed_slice(self, data: bytes, sink: Sink) -> None:
        if self._is_whole:
            data = self._next_frame(self._between + data)
        while data or not (self._is_whole or self._stream.needs_input):
            try:
                piece = self._stream.decompress(data, STEP_BYTES)
            except zstd.ZstdError as exc:
                raise _Undecodable(str(exc)) from exc
            data = b""
            if piece:
                sink(piece)
            if self._stream.eof:
                data = self._next_frame(self._stream.unused_data)

    def _next_frame(self, rest: bytes) -> bytes:
        """A frame has ended; return what of the rest is to be decoded."""
        self._is_whole, self._between = True, b""
        if len(rest) < _MAGIC_BYTES:
            self._between = rest
            return b""
        if not _ZSTD_MAGIC.match(rest):
            self._is_over = True
            return b""
        self._frames += 1
        if self._frames > MAX_FRAMES:
            raise BodyTooLarge("frames", MAX_FRAMES)
        self._stream = zstd.ZstdDecompressor(options=self._OPTIONS)
        self._is_whole = False
        return rest
