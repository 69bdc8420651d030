from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.refresh import SCANNED_BYTES, DeclaredRefresh, Refresh, declared_refresh, parse_refresh

META = b'<meta http-equiv="refresh" content="0; url=/b">'
TO_B = Refresh(0, "/b")


def declared(body: bytes, content_type: str = "text/html") -> Refresh | None:
    """What a document asks for."""
    found = declared_refresh(body, content_type)
    return found.refresh if found else None


@pytest.mark.parametrize(
    "body",
    [
        META,
        b"<!DOCTYPE html><html><head><title>Moved</title>" + META + b"</head><body>Moved.",
        b"<META CONTENT='0;URL=/b' HTTP-EQUIV=Refresh>",
        b"<meta content=0;url=/b http-equiv=refresh>",
        b"<meta\nhttp-equiv = 'REFRESH'\ncontent = '0,/b'/>",
        b"<p title='>'>" + META,
        b"<!-- <meta> -->" + META,
        b"<!-->" + META,
        b"<script>if (a < b) document.write('<p>')</script>" + META,
        b'<meta http-equiv="refresh" content="">' + META,
        b'<meta http-equiv="refresh" content="soon">' + META,
        b"<body><div>" + META,
    ],
)
def test_a_meta_element_is_found_as_a_browser_finds_it(body):
    """Attributes in any order and spelling; the first element that means something counts."""
    assert declared(body) == TO_B


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<p>refresh</p>",
        b"<!-- " + META + b" -->",
        b"<!-- " + META,
        b"<script>document.write('" + META + b"')</script>",
        b"<noscript>" + META + b"</noscript>",
        b"<template>" + META + b"</template>",
        b"<title>" + META + b"</title>",
        b"<textarea>" + META,
        b"<style>" + META + b"</STYLE>",
        b'<meta http-equiv="refresh">',
        b'<meta name="refresh" content="0;url=/b">',
        b'<meta http-equiv="refresh" content="0;url=/b',
        b'<meta http-equiv="refresh" content="0;url=/b"',
        b"&lt;meta http-equiv=refresh content='0;url=/b'&gt;",
        b"<p>" + b" " * SCANNED_BYTES + META,
    ],
)
def test_what_does_not_refresh_is_passed_over(body):
    """An example in a text, a wish for those without scripts, a page that is cut in the middle of it."""
    assert declared(body) is None


def test_the_first_wish_counts():
    """HTML 4.2.5.3: once a refresh is declared, others change nothing."""
    assert Refresh(300, None) == declared(b'<meta http-equiv=refresh content="300">' + META)


def test_the_address_is_read_in_the_document_s_encoding_and_its_references_are_resolved():
    """`&amp;` stands in every query that is written correctly."""
    assert Refresh(0, "/b?x=1&y=2") == declared(b'<meta http-equiv=refresh content="0;url=/b?x=1&amp;y=2">')
    page = '<meta charset=gbk><meta http-equiv=refresh content="0;url=/新闻">'.encode("gbk")
    assert Refresh(0, "/新闻") == declared(page)
    assert Refresh(0, "/é") == declared(b"<meta http-equiv=refresh content='0;url=/\xe9'>", "text/html; charset=latin1")


def test_the_base_is_the_first_before_it():
    """It is relative to the document, and a document may move its base (HTML 4.2.3)."""
    base = b"<base target=_blank><base href='/x/'><base href='/y/'>"
    assert DeclaredRefresh(TO_B, "/x/") == declared_refresh(base + META, "text/html")
    assert DeclaredRefresh(TO_B, None) == declared_refresh(META + base, "text/html")


@given(st.text(alphabet="0123456789.;, url='\"=/b\t", max_size=30))
def test_no_value_makes_it_raise(value):
    """It is a stranger's."""
    refresh = parse_refresh(value)
    assert refresh is None or refresh.delay_s >= 0


@pytest.mark.parametrize(
    "piece",
    [b"<meta ", b"<", b"<!--", b"<!-->", b"<a b='", b"<script>", b"<a =", b"<a b=c ", b"</", b"<title></title>"],
)
def test_no_bytes_make_it_slow(piece):
    """It runs before the page goes anywhere, in the process that fetches."""
    body = (b"http-equiv=refresh" + piece * SCANNED_BYTES)[:SCANNED_BYTES]
    began = time.process_time()
    assert declared(body) is None
    assert time.process_time() - began < 0.5
    assert Refresh(10**9 - 1, None) == parse_refresh("9" * 100_000)
