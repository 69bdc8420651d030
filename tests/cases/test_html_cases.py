"""Acceptance cases on HTML; the part of HTML-05 and HTML-06 that is about encodings alone is with the encodings."""

from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.parse.content import Options, read_content
from pipeline.parse.document import page_drafts
from pipeline.parse.html import parse_html
from tests.unit.parse_pages import FETCHED_AT_MS, page_record


def parsed(html, url="http://n.test/", content_type="text/html"):
    """A document as the parse stage reads it."""
    body = html if isinstance(html, bytes) else html.encode()
    return parse_html(body, url, fetched_at_s=FETCHED_AT_MS / 1_000, content_type=content_type)


def links(html, url="http://n.test/"):
    """Its links, in order."""
    return list(parsed(html, url).links.found)


def test_html_01_blanks_around_an_address_are_no_part_of_it():
    """Kept, each page would link to a longer address of itself, without end."""
    html = (
        '<a href=" http://test.shop.example/">1</a><a href="\n\t /feeds/atom.xml\t\n">2</a><a href="/a\tb\nc">3</a>'
        "<a href='/single'>4</a><a href=/bare>5</a>"
    )
    assert [
        "http://test.shop.example/",
        "http://www.shop.example/feeds/atom.xml",
        "http://www.shop.example/abc",
        "http://www.shop.example/single",
        "http://www.shop.example/bare",
    ] == links(html, "http://www.shop.example/?post=123")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (
            f'<!--{" " * 9_000}--><head><base href="/board/"></head><a href="index.php/pic/1">x</a>',
            "https://garden.test/board/index.php/pic/1",
        ),
        (
            '<base href="http://b.test/one/"><base href="http://b.test/two/"><a href="t.html">x</a>',
            "http://b.test/one/t.html",
        ),
        ('<base target="_self"><base href="//cdn.test/d/"><a href="t.html">x</a>', "https://cdn.test/d/t.html"),
        (
            '<script>var s=\'<base href="http://evil.test/">\'</script><a href="t.html">x</a>',
            "https://garden.test/board/index.php/show/msg/31/t.html",
        ),
        ('<base href="data:text/plain,x"><a href="/t.html">x</a>', "https://garden.test/t.html"),
    ],
)
def test_html_03_the_first_base_with_an_address_counts_wherever_it_stands(html, expected):
    """A wrong base makes every relative link of the page a 404, or somebody else's page."""
    assert [expected] == links(html, "https://garden.test/board/index.php/show/msg/31/")


def test_html_05_a_byte_order_mark_beats_the_header():
    """Servers add a default charset to files that they did not write."""
    html = parsed("\ufeff<!DOCTYPE html><p>Привет!", content_type="text/html; charset=windows-1251")
    assert ("UTF-8", "Привет!") == (html.encoding, html.text)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<meta name="description" content="charset=gbk"><p>naïve</p>'.encode(), "naïve"),
        ('<meta data-charset="gbk"><p>naïve</p>'.encode(), "naïve"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=visual"><p>\xf9\xec\xe5\xed', "שלום"),
        ('<meta charset="utf-16"><p>naïve'.encode(), "naïve"),
        (b'<meta charset="nonsense-8"><p>plain</p>', "plain"),
    ],
)
def test_html_06_the_text_is_read_in_the_encoding_that_is_really_declared(body, expected):
    """A document is what its readers see, in its letters."""
    assert expected == parsed(body).text


def test_html_08_a_nul_is_no_end():
    """Half a page would be published as if it were whole; a NUL in a record breaks readers written in C."""
    html = parsed(b'<html>\0<body><a href="/x">hello\0 world</a><a href="/y\0z">2</a></body></html>')
    assert ["http://n.test/x", "http://n.test/y%EF%BF%BDz"] == list(html.links.found)
    assert "hello world2" == html.text
    assert "\0" not in repr(html)


def test_html_12_no_canonical_link_makes_a_page_vanish():
    """RFC 6596: a hint about identity. Itself, a ring, abroad, dead, empty, contradictory: each page is a document.

    That the frontier ends and asks for nothing outside the scope rests on canonical targets being no links at all.
    """
    hints = {
        "/a": ["/a"],
        "/b": ["/c"],
        "/c": ["/b"],
        "/d": ["https://other.test/d"],
        "/e": ["/missing"],
        "/f": [""],
        "/g": ["/g", "/h"],
        "/h": [],
    }
    found = {}
    for path, hrefs in hints.items():
        canonicals = "".join(f"<link rel=canonical href='{href}'>" for href in hrefs)
        body = f"<title>{path}</title>{canonicals}".encode()
        page = page_record(body, url=f"https://n.test{path}")
        content = read_content(
            body, page["url"], fetched_at_s=0.0, content_type="text/html", robots_header="", options=Options()
        )
        drafts = page_drafts(page, content, partition=0, partitions=6, now_ms=0)
        assert [topics.DOCUMENTS, topics.PARSED] == [draft.topic for draft in drafts], "a document, and no links"
        found[path] = drafts[0].record
    assert [f"https://n.test{path}" for path in hints] == [document["url"] for document in found.values()]
    assert {
        "/a": "https://n.test/a",
        "/b": "https://n.test/c",
        "/c": "https://n.test/b",
        "/d": "https://other.test/d",
        "/e": "https://n.test/missing",
        "/f": None,
        "/g": None,
        "/h": None,
    } == {path: document["canonical"] for path, document in found.items()}


@pytest.mark.parametrize(
    ("html", "expected", "text"),
    [
        (
            '<a href="/top">Alpha <div>Beta <a href="/inner/">Gamma</a></div></a>',
            ["http://n.test/top", "http://n.test/inner/"],
            "Alpha\nBeta Gamma",
        ),
        (
            '<ul><li><a href="/1">one<li><a href="/2">two<li><a href="/3">three</ul>',
            ["http://n.test/1", "http://n.test/2", "http://n.test/3"],
            "one\ntwo\nthree",
        ),
        ('<a href="/p">x<noscript><a href="/q">y</a></noscript></a>', ["http://n.test/p", "http://n.test/q"], "x"),
    ],
)
def test_html_14_nested_and_open_anchors_give_each_link_and_each_word_once(html, expected, text):
    """The parser copies an open anchor into the blocks that follow; a copy is not a second link."""
    assert (expected, text) == (links(html), parsed(html).text)


def test_html_16_only_attributes_that_html_defines_as_addresses_are_links():
    """A guess costs the site a 404 and the crawl its budget."""
    html = """<meta property="og:url" content="http://maps.test/notes/0610/">
        <meta property="og:site_name" content="Garden-Maps.test">
        <script>var p='images/'+L[1]+'.png'; go("/real/page")</script><a href="/ok">k</a>"""
    assert ["https://maps.test/ok"] == links(html, "https://maps.test/notes/0610/")
