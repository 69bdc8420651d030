from __future__ import annotations

import gzip

import pytest
import zstandard

from pipeline.errors import InputError
from pipeline.parse.unpack import MAX_BODY_BYTES, body_of, gunzip
from tests.unit.parse_pages import page_record

BODY = b"<p>page</p>" * 100


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"body_encoding": "IDENTITY", "body": BODY},
        {"body": zstandard.ZstdCompressor(write_content_size=False).compress(BODY)},
    ],
)
def test_a_body_comes_back_as_it_was_fetched(fields):
    """With and without a length in the frame: both are valid zstd."""
    assert BODY == body_of(page_record(BODY, **fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"body": None, "body_ref": "x"}, "policy"),
        ({"body_bytes": MAX_BODY_BYTES + 1}, "too_large"),
        ({"body_bytes": len(BODY) - 1}, "undecodable"),
        ({"body_bytes": len(BODY) + 1}, "undecodable"),
        ({"body_bytes": -1}, "undecodable"),
        ({"body": zstandard.compress(BODY)[:-5]}, "undecodable"),
        ({"body": b"no zstd"}, "undecodable"),
        ({"body": zstandard.compress(bytes(MAX_BODY_BYTES + 1))}, "undecodable"),
        ({"body_encoding": "UNKNOWN"}, "undecodable"),
    ],
)
def test_a_body_that_is_not_what_its_record_says_is_a_dead_letter(fields, reason):
    """It is never read in part: a document must be of the page's own bytes, and nothing is unpacked without a bound."""
    with pytest.raises(InputError) as caught:
        body_of(page_record(BODY, **fields))
    assert reason == caught.value.reason


def test_a_gzip_file_is_unpacked_with_all_its_members_and_no_more_than_the_limit():
    """Sitemaps are served as .gz files; a few KB of them may be gigabytes."""
    packed = gzip.compress(BODY)
    assert BODY == gunzip(packed)
    assert BODY + BODY == gunzip(packed + packed + b"rest")
    assert BODY == gunzip(gzip.compress(packed)), "packed by the site and once more by its server"
    assert 1_000 == len(gunzip(gzip.compress(bytes(50 << 20)), 1_000))


def test_what_is_no_gzip_file_is_left_alone():
    """Every body passes here."""
    assert BODY == gunzip(BODY)
    assert b"" == gunzip(b"")
    looks_packed = b"\x1f\x8b and then plain text"
    assert looks_packed == gunzip(gzip.compress(looks_packed)), "content that begins like a gzip file is content"


def test_a_damaged_gzip_file_gives_what_could_be_read():
    """A sitemap whose transfer broke off still has thousands of URLs."""
    data = bytes(range(256)) * 2_000
    packed = gzip.compress(data, 1)
    assert data.startswith(gunzip(packed[:-100]))
    assert len(data) - 70_000 < len(gunzip(packed[:-100]))
