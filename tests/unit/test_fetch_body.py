from __future__ import annotations

import gzip
import time
import tracemalloc
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import SiteError
from pipeline.fetch.body import Body, BodyReader, BodyTooLarge, Limits, TruncatedBody, read_body

LIMITS = Limits(wire_bytes=1 << 20, decoded_bytes=4 << 20, ratio=200.0)
PAGE = b"<html>" + bytes(range(256)) * 40 + b"</html>"


def raw_deflate(data: bytes) -> bytes:
    """Deflate without its zlib header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "DEFLATE": raw_deflate,
    "br": lambda data: brotli.compress(data, quality=3),
    "zstd": zstandard.compress,
}


def read(data: bytes, encoding: str = "", step: int | None = None, limits: Limits = LIMITS, **options: bool) -> Body:
    """Read a body that comes in chunks of `step` bytes."""
    reader = BodyReader(encoding, limits, **options)
    for start in range(0, len(data), step or len(data) or 1):
        if not reader.feed(data[start : start + (step or len(data))]):
            break
    return reader.end()


@pytest.mark.parametrize("step", [None, 1, 7, 1000])
@pytest.mark.parametrize("coding", CODERS)
def test_each_coding_is_undone_however_it_is_cut(coding, step):
    """The network cuts anywhere, also in the first bytes by which codings are told."""
    wire = CODERS[coding](PAGE)
    assert Body(PAGE, len(wire)) == read(wire, coding, step)


@given(
    data=st.binary(max_size=3000),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=40),
    coding=st.sampled_from(["gzip", "deflate", "br", "zstd"]),
)
@settings(max_examples=60, deadline=None)
def test_reading_in_pieces_is_reading_at_once(data, cuts, coding):
    """What a page says must not depend on the size of packets."""
    wire = CODERS[coding](data)
    reader, at = BodyReader(coding, LIMITS), 0
    for cut in [*cuts, len(wire)]:
        reader.feed(wire[at : at + cut])
        at += cut
    assert Body(data, len(wire)) == reader.end()


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "deflate", "br", "zstd", "gzip, br", "zstd, gzip"]))
@settings(max_examples=200, deadline=None)
def test_any_bytes_end_as_a_body_or_a_reason(data, encoding):
    """A decoder's own exception would be a dead letter instead of an outcome."""
    try:
        body = read(data, encoding, 3)
        assert len(data) == body.bytes_wire or body.truncated == "bad_encoding"  # then the rest is not read
    except SiteError as exc:
        assert exc.reason in {"bad_encoding", "ratio"}  # noqa: PT017


@pytest.mark.parametrize("step", [None, 1])
def test_gzip_has_any_number_of_members(step):
    """Servers that compress block by block send one member a block."""
    wire = b"".join(map(gzip.compress, (b"one ", b"", b"two ", b"three")))
    assert Body(b"one two three", len(wire)) == read(wire, "gzip", step)


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("rubbish", [b"\0" * 20, b"\x1f", b"<!-- served by -->", b"\x1f\x00more"])
def test_rubbish_behind_gzip_is_ignored(rubbish, step):
    """The page is whole; browsers show it."""
    wire = gzip.compress(PAGE) + rubbish
    assert Body(PAGE, len(wire)) == read(wire, "gzip", step)


def test_zstd_has_any_number_of_frames():
    """RFC 8878 3.1: frames are independent and simply follow one another."""
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    wire = skippable + zstandard.compress(b"one ") + skippable + zstandard.compress(b"") + zstandard.compress(b"two")
    for step in (None, 1, 5):
        assert Body(b"one two", len(wire)) == read(wire, "zstd", step)


@pytest.mark.parametrize("step", [None, 1, 13])
@pytest.mark.parametrize("rubbish", [b"\0" * 20, b"<!-- served by -->", b"\x28\xb5more"])
def test_rubbish_behind_zstd_is_ignored(rubbish, step):
    """As behind gzip: the page is whole."""
    wire = zstandard.compress(PAGE) + rubbish
    assert Body(PAGE, len(wire)) == read(wire, "zstd", step)


def test_a_zstd_frame_that_is_cut_is_no_frame_with_rubbish_behind_it():
    """At whatever byte it is cut."""
    for packer in (zstandard.ZstdCompressor(write_checksum=False), zstandard.ZstdCompressor(write_content_size=False)):
        first, wire = packer.compress(b"first"), packer.compress(bytes(range(256)))
        for end in range(4, len(wire)):
            assert "encoding" == read(wire[:end], "zstd").truncated
            assert "encoding" == read(first + wire[:end], "zstd").truncated


def test_rubbish_behind_br_is_ignored():
    """Its stream says where it ends (RFC 7932 9.2)."""
    wire = brotli.compress(PAGE) + b"<!-- served by -->"
    assert Body(PAGE, len(wire)) == read(wire, "br", 7)


def test_codings_stand_on_top_of_each_other():
    """RFC 9110 8.4: they are listed in the order in which they were applied."""
    assert PAGE == read(gzip.compress(brotli.compress(PAGE)), "br, gzip", 11).data
    assert PAGE == read(zstandard.compress(gzip.compress(gzip.compress(PAGE))), "gzip, gzip,zstd").data


@pytest.mark.parametrize(
    "text", [PAGE[:6] + b"plain</html>", b'{"a": [1, 2]}', b"\xef\xbb\xbf<p>", b"<p>\xe6\x96\xb0\xe9\x97\xbb", b"{}"]
)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("step", [None, 1])
def test_a_coding_that_was_not_applied_is_passed_over(text, encoding, step):
    """A proxy that unpacks and keeps the header is common; the text is what was meant."""
    assert Body(text, len(text)) == read(text, encoding, step)


def test_a_coding_under_a_wrong_name_is_undone():
    """The first bytes tell gzip and zstd; the header does not."""
    assert PAGE == read(gzip.compress(PAGE), "deflate").data
    assert PAGE == read(gzip.compress(PAGE), "zstd").data
    assert PAGE == read(zstandard.compress(PAGE), "gzip").data
    assert PAGE == read(zlib.compress(PAGE), "gzip").data
    assert PAGE == read(gzip.compress(PAGE), "br", 3).data
    assert PAGE == read(zstandard.compress(PAGE), "br").data


def test_a_coding_without_a_name_is_undone_where_it_can_be_no_content():
    """A page of compressed bytes is nobody's wish; an archive is its own content."""
    wire = gzip.compress(PAGE)
    assert PAGE == read(wire, "").data
    assert PAGE == read(wire, "utf-8, identity").data
    assert wire == read(wire, "", sniff=False).data


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_a_coding_beneath_those_that_are_named_is_undone(coding):
    """A file that its author packed and its server packed once more, with one coding named."""
    wire = CODERS[coding](gzip.compress(PAGE))
    assert Body(PAGE, len(wire)) == read(wire, coding, 5)
    assert gzip.compress(PAGE, mtime=0) == read(CODERS[coding](gzip.compress(PAGE, mtime=0)), coding, sniff=False).data
    assert PAGE == read(CODERS[coding](PAGE), coding).data


def test_a_bomb_beneath_a_named_coding_is_a_bomb():
    """What was not announced costs as much as what was."""
    bomb = gzip.compress(gzip.compress(bytes(64 << 20)))
    with pytest.raises(BodyTooLarge) as caught:
        read(bomb, "gzip", 4096, Limits(16 << 20, 20 << 20, 200.0))
    assert caught.value.reason in {"ratio", "decoded_bytes"}


def test_a_coding_that_nobody_asked_for_is_named():
    """Undecoded bytes must not become a page."""
    with pytest.raises(SiteError) as caught:
        read(b"...", "compress")
    assert "unsupported_encoding" == caught.value.reason


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_bytes_that_are_neither_the_coding_nor_text_are_an_error(encoding):
    """They would become a page of noise."""
    with pytest.raises(SiteError) as caught:
        read(bytes([0xFE, 0, 1, 2, 3, 0xFF]) * 50, encoding)
    assert "bad_encoding" == caught.value.reason


@pytest.mark.parametrize("coding", ["gzip", "deflate", "DEFLATE", "br", "zstd"])
@pytest.mark.parametrize("step", [None, 100])
def test_a_coding_that_ends_too_early_is_told(coding, step):
    """Half an article must not pass for the article."""
    body = read(CODERS[coding](PAGE * 3)[:-12], coding, step)
    assert "encoding" == body.truncated
    assert (PAGE * 3).startswith(body.data)


def test_a_coding_that_breaks_off_in_the_middle_is_told():
    """What came before is text, what follows is not."""
    wire = bytearray(gzip.compress(bytes(range(256)) * 2000, 0))
    wire[100_000:100_010] = b"\xff" * 10
    body = read(bytes(wire), "gzip", 5000)
    assert "bad_encoding" == body.truncated
    assert body.data


def test_an_empty_body_is_whole_whatever_its_coding():
    """A 200 without a byte is not a broken gzip."""
    for encoding in ("", "gzip", "br", "zstd", "deflate"):
        assert Body() == read(b"", encoding)


def test_received_bytes_are_limited():
    """Identity has no ratio: the wire is the only measure."""
    with pytest.raises(BodyTooLarge) as caught:
        read(b"x" * 1001, limits=Limits(1000, 10_000, 200.0), step=100)
    assert "wire_bytes" == caught.value.reason


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_stopped_while_it_goes_off(coding):
    """The limit has to hold on decoded bytes while they stream: memory and time stay bounded."""
    bomb = CODERS[coding](bytes(64 << 20))
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(BodyTooLarge) as caught:
        read(bomb, coding, 65_536, Limits(16 << 20, 20 << 20, 200.0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.reason in {"ratio", "decoded_bytes"}
    assert peak < 30 << 20
    assert time.process_time() - began < 2


def test_decoded_bytes_are_limited_whatever_the_ratio():
    """A long body of modest ratio fills the memory too."""
    with pytest.raises(BodyTooLarge) as caught:
        read(gzip.compress(PAGE * 500), "gzip", limits=Limits(1 << 20, 1 << 20, 1e9))
    assert "decoded_bytes" == caught.value.reason


def test_a_small_page_of_blanks_is_no_bomb():
    """The ratio counts only past the first MiB."""
    assert 900_000 == len(read(gzip.compress(b" " * 900_000), "gzip").data)


def test_what_a_second_coding_throws_away_is_limited_too():
    """A gzip that ends early and 10 GB of rubbish behind it, packed again, decode to nothing, for ever."""
    inner = gzip.compress(b"small") + bytes(64 << 20)
    with pytest.raises(BodyTooLarge) as caught:
        read(gzip.compress(inner), "gzip, gzip", 65_536)
    assert caught.value.reason in {"ratio", "decoded_bytes"}


def test_codings_are_counted():
    """Each one multiplies."""
    with pytest.raises(BodyTooLarge) as caught:
        BodyReader("gzip, gzip, gzip, gzip", LIMITS)
    assert "codings" == caught.value.reason


def test_a_flood_of_empty_members_costs_its_bytes_and_no_more():
    """Twenty bytes a member: copying the rest of the chunk at each end would be quadratic."""
    flood = gzip.compress(b"") * 20_000
    began = time.process_time()
    assert Body(b"", len(flood)) == read(flood, "gzip")
    assert time.process_time() - began < 2


def test_a_flood_of_empty_frames_is_stopped():
    """Nine bytes a frame, and each needs a decoder of its own."""
    flood = zstandard.compress(b"") * 20_000
    began = time.process_time()
    with pytest.raises(BodyTooLarge) as caught:
        read(flood, "zstd")
    assert "frames" == caught.value.reason
    assert time.process_time() - began < 2


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_a_body_can_be_cut_instead(coding):
    """The rules in the first 500 KiB of a robots.txt hold, however long it is."""
    text = bytes(range(256)) * 20
    wire = CODERS[coding](text) if coding else text
    body = read(wire, coding, 100, Limits(1 << 20, 1000, 200.0, cut=True))
    assert (text[:1000], "cut") == (body.data, body.truncated)
    body = read(text, "", 300, Limits(1000, 1 << 20, 200.0, cut=True))
    assert (text[:1000], "cut") == (body.data, body.truncated)


async def test_a_connection_that_ends_too_early_is_told():
    """Its reason comes from the transport, and outweighs the coding's."""

    async def chunks():
        yield gzip.compress(PAGE)[:200]
        raise TruncatedBody("content_length")

    body = await read_body(chunks(), "gzip", LIMITS)
    assert ("content_length", 200) == (body.truncated, body.bytes_wire)
