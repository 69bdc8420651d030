from __future__ import annotations

import contextlib
import gzip
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.contracts import load_codec
from pipeline.delivery.api import Output
from pipeline.errors import InputError
from pipeline.parse import frames
from pipeline.parse.content import Options, read_content
from pipeline.parse.dates import any_date, is_plausible, rfc822_date, w3c_date
from pipeline.parse.directives import from_header, from_meta
from pipeline.parse.document import page_drafts
from pipeline.parse.feed import parse_feed
from pipeline.parse.sitemap import parse_sitemap
from pipeline.parse.unpack import gunzip
from tests.unit.parse_pages import page_record

URL = "https://n.test/a/b?c=d"
CODECS = load_codec()

SCRAPS = [
    b"<", b">", b"</", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<!DOCTYPE x [<!ENTITY e 'v'>]>", b"&e;", b"&#0;",
    b"&#xD800;", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", "é漢".encode(), "漢".encode("gb18030"), b" ", b"\n",
    b"<?xml version='1.0' encoding='utf-16'?>", b"<?xml version='1.0' encoding='gb2312'?>", b"<meta charset=big5>",
    b"<rss version='2.0'><channel>", b"<item>", b"</item>", b"<title type='html'>", b"<link>", b"http://[::1]:99999/",
    b"<pubDate>Wed, 08 Jul 15 00:00:00 +0200</pubDate>", b"<updated>9999-12-31T23:59:59-09:00</updated>",
    b"<feed xmlns='http://www.w3.org/2005/Atom'>", b"<entry xml:base='//['>", b"<link href='javascript:'/>", b"<id>",
    b"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>", b"<url>", b"<loc>", b"</loc>", b"<sitemapindex>",
    b"<lastmod>2024-02-30</lastmod>", b"<priority>nan</priority>", b"<news:news>", b"<image:loc>",
    b"<a href='", b"' rel='nofollow'>", b"<a href=//x:y@z>", b"<base href='data:,'>", b"<base href='//['>", b"<svg>",
    b"<frameset><frame src=x>", b"<template>", b"<article>", b"<h1>", b"<time pubdate>", b"<pre>", b"<p hidden>",
    b"<meta name=robots content=none>", b"<meta name=date content='2024-01-01T00:00:00'>", b"<html lang='a,b'>",
    b'<script type="application/ld+json">{"@type":["Article"],"author":{"name":["\\ud800\\u0000"]}}</script>',
    b"<script type='application/ld+json'>", b"[" * 600, b"<link rel=canonical href='http://['>", b"<itemprop",
    b"<b itemprop='author datePublished'>", b"{", b"[", b'"', b"https://x.test/\n", b"\x1f\x8b",
]  # fmt: skip
bodies = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(SCRAPS), max_size=25).map(b"".join),
    st.lists(st.one_of(st.sampled_from(SCRAPS), st.binary(max_size=8)), max_size=25).map(b"".join),
)
content_types = st.sampled_from([
    "", "text/html", "text/html; charset=gbk", "text/xml", "application/rss+xml; charset=utf-16", "application/xml",
    "text/plain", "application/json", "application/octet-stream", "image/png", 'text/html; charset="', ";", "x-user",
])  # fmt: skip
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(bodies, content_types)
def test_any_bytes_of_any_type_become_records_that_fit_the_contracts(body, content_type):
    """A site decides over these bytes: an error would be a dead letter that a site can order."""
    content = read_content(
        body, URL, fetched_at_s=1.7e9, content_type=content_type, robots_header="noindex, x: y", options=Options()
    )
    page = page_record(body, url=URL, content_type=content_type)
    for draft in page_drafts(page, content, partition=3, partitions=6, now_ms=1_700_000_000_000):
        value = CODECS.encode(draft.topic.subject, draft.record)
        assert b"\x00" not in "".join(texts_of(draft.record)).encode()
        assert draft.record == CODECS.decode(draft.topic.subject, value)


def texts_of(value):
    """All texts in a record."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return [text for part in value for text in texts_of(part)] if isinstance(value, list) else []


@quick
@given(bodies, content_types, st.sampled_from([b"", b"<rss version='2.0'><channel><item>", b"<feed><entry>"]))
def test_any_bytes_are_a_feed(body, content_type, start):
    """What a feed's root promises, the rest need not keep."""
    feed = parse_feed(start + body, URL, fetched_at_s=1.7e9, content_type=content_type)
    assert {item.url for item in feed.items} - {None} == set(feed.links.found)


@quick
@given(bodies, content_types, st.sampled_from([b"", b"<urlset><url><loc>", b"<sitemapindex><sitemap>"]))
def test_any_bytes_are_a_sitemap(body, content_type, start):
    """What a sitemap's root promises, the rest need not keep."""
    sitemap = parse_sitemap(start + body, URL, content_type=content_type)
    assert {*(entry.loc for entry in sitemap.urls), *sitemap.sitemaps} == set(sitemap.links.found)


@quick
@given(st.one_of(st.text(max_size=80), st.from_regex(re.compile(r"[0-9T:+Z. -]{1,40}"), fullmatch=True)))
def test_any_text_may_stand_where_a_date_is_due(text):
    """A result is a date or a moment in UTC, never a time without a zone."""
    for found in (w3c_date(text), rfc822_date(text), any_date(text)):
        assert found is None or re.fullmatch(r"\d{4}(-\d\d(-\d\d(T\d\d:\d\d:\d\d(\.\d{1,9})?Z)?)?)?", found)
        assert found is None or len(found) < 10 or is_plausible(found, 1.7e9) in {True, False}


@quick
@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_may_stand_where_directives_are_due(text, agent):
    """Headers are anyone's bytes."""
    assert from_meta(text) == from_meta(text.upper())
    assert isinstance(from_header([text], agent or "x").index, bool)


@quick
@given(st.binary(max_size=200), st.integers(1, 500), st.integers(0, 300))
def test_a_cut_gzip_file_gives_a_beginning_of_what_was_packed(data, limit, end):
    """Transfers break off; the first entries of a sitemap are there all the same."""
    packed = gzip.compress(data) + gzip.compress(data)
    assert (data + data)[:limit] == gunzip(packed, limit)
    assert (data + data).startswith(gunzip(packed[: 10 + end]))


outputs = st.builds(
    Output,
    st.text("abc.", max_size=20),
    st.binary(max_size=300),
    st.none() | st.binary(max_size=20),
    st.integers(-1, 2**31 - 1),
    st.just(()),
)


@quick
@given(st.lists(outputs, max_size=5))
def test_outputs_cross_the_pipe_unchanged(records):
    """They are written to the topics as they arrive."""
    assert records == frames.read_answer(frames.outputs(records)[frames.LENGTH.size :])


@quick
@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_an_answer_or_known_as_none(payload):
    """A worker of another version must be told apart from a page at fault."""
    with contextlib.suppress(frames.UnknownFrame, frames.ParseFailure, InputError):
        frames.read_answer(payload)


@quick
@given(st.binary(max_size=200), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_a_request_crosses_the_pipe_unchanged(value, partition, now_ms):
    """The worker decodes the very bytes that were read from the topic."""
    assert (value, partition, now_ms) == frames.read_request(
        frames.request(value, partition, now_ms)[frames.LENGTH.size :]
    )
