from __future__ import annotations

import time

import pytest

from pipeline.parse.directives import Directives
from pipeline.parse.html import parse_html
from pipeline.parse.links import base_url, encode_query

FETCHED_AT_S = 1_717_172_775.0  # 2024-05-31T16:26:15Z


def parsed(html, url="https://n.test/a/b", **options):
    """A document as the parse stage reads it."""
    body = html if isinstance(html, bytes) else html.encode()
    return parse_html(body, url, fetched_at_s=FETCHED_AT_S, **options)


def linked_data(text):
    """A script element of JSON-LD."""
    return f'<script type="application/ld+json">{text}</script>'


def test_links_are_distinct_canonical_and_in_the_order_of_the_page():
    """The frontier gets each URL once, and the first ones first."""
    html = """<a href="z?utm_source=x">1</a><a href="/A#top">2</a><area href="c"><a href="https://N.TEST:443/A">3</a>
        <iframe src="//f.test/x"></iframe><a name="anchor">4</a><a href="">5</a>"""
    assert [
        "https://n.test/a/z",
        "https://n.test/A",
        "https://n.test/a/c",
        "https://f.test/x",
        "https://n.test/a/b",
    ] == list(parsed(html).links.found)


def test_frames_are_links():
    """A frameset has no other way to its text."""
    assert ["https://n.test/f"] == list(parsed("<frameset><frame src=/f></frameset>").links.found)


@pytest.mark.parametrize(
    ("html", "links"),
    [
        ("<meta http-equiv=Refresh content='30; url=next'><a href=/z>", {"https://n.test/a/next": "refresh"}),
        (
            "<base href=/d/><meta content='0;URL=\"x?a&amp;b\"' http-equiv=refresh>",
            {"https://n.test/d/x?a&b": "refresh"},
        ),
        ("<meta http-equiv=refresh content=''><meta http-equiv=refresh content=9;/>", {"https://n.test/": "refresh"}),
        ("<meta http-equiv=refresh content=300><meta http-equiv=refresh content='0;/b'>", {}),
        ("<noscript><meta http-equiv=refresh content='0;/nojs'></noscript>", {}),
        ("<template><meta http-equiv=refresh content='0;/b'></template>", {}),
        ("<meta name=refresh content='0;/b'>", {}),
        ("<meta http-equiv=refresh content='0;javascript:x()'>", {}),
    ],
)
def test_where_a_page_leads_by_itself_is_its_first_link(html, links):
    """What stays for a while is a page, and its successor a link of it; what is for those without scripts is none."""
    found = {url: link.rel for url, link in parsed(html).links.found.items()}
    assert {**links, **({"https://n.test/z": ""} if "/z" in html else {})} == found


def test_a_link_is_nofollow_only_where_every_element_says_so():
    """One editor's plain link outweighs a comment's nofollow."""
    links = parsed("""<a rel="NoFollow ugc" href=/1>x</a><a href=/2 rel=nofollow>x</a><a href=/2>x</a>""").links.found
    assert [("nofollow ugc", True), ("nofollow", False)] == [(link.rel, link.nofollow) for link in links.values()]


def test_what_is_not_fetched_is_counted_by_reason():
    """A site whose links all fail must be seen to do so; the same wrong link in every paragraph counts once."""
    html = "<a href=mailto:a@b.test>1</a><a href='javascript:x()'>2</a><a href=mailto:a@b.test>3</a><a href='http://['>4</a>"
    links = parsed(html + "<a href='http://u:p@h.test/'>5</a>").links
    assert {} == links.found
    assert {"scheme": 2, "unparsable": 1, "credentials": 1} == links.refused


def test_links_longer_than_configured_are_refused():
    """A trap grows URLs without end."""
    assert {"too_long": 1} == parsed(f"<a href=/{'x' * 99}>x</a>", max_url_bytes=64).links.refused


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        (None, "https://n.test/a/b"),
        ("", "https://n.test/a/b"),
        ("../c/", "https://n.test/c/"),
        ("ftp://f.test/", "ftp://f.test/"),
        ("javascript:1", "https://n.test/a/b"),
        ("http://[", "https://n.test/a/b"),
        ("\ud800/", "https://n.test/a/%EF%BF%BD/"),
    ],
)
def test_a_base_that_can_not_be_used_leaves_the_document_its_own(href, expected):
    """HTML 4.2.3."""
    assert expected == base_url("https://n.test/a/b", href)


def test_a_query_is_written_in_the_encoding_of_its_page():
    """Sites in GBK read the bytes of GBK; path and fragment are UTF-8 everywhere (HTML 2.4.2)."""
    html = '<meta charset=gbk><a href="/搜?q=中&p=1">x</a>'.encode("gbk")
    assert ["https://n.test/%E6%90%9C?q=%D6%D0&p=1"] == list(parsed(html).links.found)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("UTF-8", "/é?é#é"),
        ("UTF-16LE", "/é?é#é"),
        ("windows-1252", "/é?%E9#é"),
        ("Shift_JIS", "/é?%26%23233%3B#é"),
        ("x-user-defined", "/é?é#é"),
    ],
)
def test_what_an_encoding_lacks_is_written_as_a_reference(encoding, expected):
    """URL Standard 1.3, "percent-encode after encoding"."""
    assert expected == encode_query("/é?é#é", encoding)


def test_the_charset_of_the_header_decides_over_the_meta_element():
    """HTML 13.2.3.2."""
    html = parsed("<meta charset=utf-8><p>Привет".encode("cp1251"), content_type="text/html; charset=windows-1251")
    assert ("windows-1251", "Привет") == (html.encoding, html.text)


def test_bytes_that_are_no_characters_cost_only_themselves():
    """One wrong byte must not turn the page into another encoding."""
    html = parsed(b"\xef\xbb\xbf<p>caf\xe9 \xc3\xa9t\xc3\xa9")
    assert ("UTF-8", "caf\ufffd été") == (html.encoding, html.text)


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<title> A\n title </title><h1>B</h1>", "A title"),
        ("<title></title><meta property=og:title content=C><h1>B</h1>", "C"),
        ("<h1>A <b>b</b></h1><h1>C</h1>", "A b"),
        ("<svg><title>icon</title></svg><p>x", ""),
        (f"<title>{'x' * 9_000}</title>", "x" * 1_000),
        ("<svg><title>icon</title></svg><title>page</title>", "page"),
        ("<meta property=og:title content='a&#0;b'>", "a\ufffdb"),
    ],
)
def test_the_title_is_the_document_s_own(html, expected):
    """Then what it calls itself elsewhere, then its first heading; never the name of an icon."""
    assert expected == parsed(html).title


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<html lang="pt_BR">', "pt-BR"),
        ('<html lang="">', None),
        ('<meta http-equiv="Content-Language" content="de, en">', "de"),
        ('<html lang="<script>">', None),
        ('<html xml:lang="fr">', "fr"),
    ],
)
def test_the_language_is_a_tag_or_unknown(html, expected):
    """Placeholders of templates are no languages."""
    assert expected == parsed(html).language


@pytest.mark.parametrize(
    ("html", "header", "expected"),
    [
        ("", "", Directives()),
        ("<meta name=ROBOTS content='noindex'>", "", Directives(index=False)),
        ("<meta name=headrace content='nofollow'>", "", Directives(follow=False)),
        ("<meta name=otherbot content='none'>", "", Directives()),
        ("<meta name=robots content='nofollow'>", "noindex", Directives(index=False, follow=False)),
        ("", "x: y\nheadrace: none", Directives(index=False, follow=False)),
    ],
)
def test_meta_elements_and_header_bind_together(html, header, expected):
    """Whichever place a site chose, it meant it."""
    assert expected == parsed(html, robots_header=header).directives


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<link rel=canonical href=/x>", "https://n.test/x"),
        ("<link rel='shortlink Canonical' href='https://o.test/x#y'>", "https://o.test/x"),
        ("<base href=/d/><link rel=canonical href=x>", "https://n.test/d/x"),
        ("<link rel=canonical href=''>", None),
        ("<link rel=canonical href='javascript:'>", None),
        ("<link rel=canonical href=/x><link rel=canonical href=/y>", None),
        ("<link rel=canonical href=/x><link rel=canonical href=/x>", "https://n.test/x"),
    ],
)
def test_a_canonical_link_is_taken_where_it_is_one(html, expected):
    """RFC 6596: a hint, which an empty or contradictory one is not; never a link to follow."""
    html = parsed(html)
    assert expected == html.canonical
    assert {} == html.links.found


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        (linked_data('{"@type":"NewsArticle","author":{"name":" A  B "}}'), ("A B",)),
        (
            linked_data('{"@graph":[{"@type":["Thing","BlogPosting"],"author":[{"name":"A"},"B",{"name":["C"]},7]}]}'),
            ("A", "B", "C"),
        ),
        (
            "<meta name=author content=A><meta property=article:author content=https://s.test/a><a rel=author>B</a>",
            ("A", "B"),
        ),
        ("<span itemprop=author><a itemprop=url>x</a><b itemprop=name>A</b></span>", ("A",)),
        ("<meta name=author content=' '>", ()),
        (linked_data('{"@type":"Comment","author":"A"}'), ()),
    ],
)
def test_authors_are_names_as_printed(html, expected):
    """Profiles and commenters are no authors of the page."""
    assert expected == parsed(html).authors


@pytest.mark.parametrize(
    ("html", "value", "evidence"),
    [
        (
            "<meta name=date content=2024-01-02>"
            + linked_data('{"@type":"https://schema.org/NewsArticle","datePublished":"2024-05-10T08:00:00+02:00"}'),
            "2024-05-10T06:00:00Z",
            "json-ld datePublished: 2024-05-10T08:00:00+02:00",
        ),
        (
            linked_data('{"@type":"Article","datePublished":"2024-05-10T08:00:00"}')
            + "<meta property=article:published_time content=2024-05-10T08:00Z>",
            "2024-05-10T08:00:00Z",
            "meta article:published_time: 2024-05-10T08:00Z",
        ),
        (
            linked_data('[{"@type":"WebPage","datePublished":"2024-01-01"}]')
            + linked_data('{"mainEntity":{"@type":"Article","datePublished":"2024-01-02"}}'),
            "2024-01-02",
            "json-ld datePublished: 2024-01-02",
        ),
        (
            linked_data('<!-- {"@type":"Article","x":"a\nb","datePublished":"2024-01-02"} -->'),
            "2024-01-02",
            "json-ld datePublished: 2024-01-02",
        ),
        (
            '<time itemprop="datePublished" datetime="2024-01-02">x</time>',
            "2024-01-02",
            "itemprop datePublished: 2024-01-02",
        ),
        ("<time pubdate>2024-01-02</time>", "2024-01-02", "time pubdate: 2024-01-02"),
        ("<article><time datetime=2024-01-02>x</time></article>", "2024-01-02", "time datetime: 2024-01-02"),
    ],
)
def test_a_time_carries_where_it_was_found(html, value, evidence):
    """A reader who doubts a date must be able to look; a time without a zone gives way to one that has it."""
    assert (value, evidence) == parsed(html).published


@pytest.mark.parametrize(
    "html",
    [
        "<p>Published 10 May 2024</p>",
        "<article><time datetime=2024-01-02>x</time></article><article><time datetime=2024-01-03>x</time></article>",
        "<time datetime=2024-01-02>opening hours</time>",
        '<meta property="article:published_time" content="2024-05-10T08:00:00">',
        '<meta property="article:published_time" content="2024-06-03T00:00:00Z">',
        linked_data('{"@type":"Event","datePublished":"2024-01-02"}'),
        linked_data('{"@type":"Article","datePublished":20240102}'),
        linked_data("[" * 100_000),
    ],
)
def test_no_time_is_taken_that_the_page_does_not_declare(html):
    """A guess would be believed as much as a declaration."""
    assert parsed(html).published is None


def test_the_time_of_change_is_read_beside_that_of_publication():
    """Both come from the same places."""
    html = parsed(
        linked_data('{"@type":"Article","dateModified":"2024-05-11T00:00:00Z"}')
        + '<meta property="article:published_time" content="2024-05-10T00:00:00Z">'
    )
    assert ("2024-05-10T00:00:00Z", "2024-05-11T00:00:00Z") == (html.published.value, html.modified.value)


TEXTS = [
    ("<nav>menu</nav><article><h1>A</h1><p>b <b>c</b>\n d</p></article><footer>f</footer>", "A\nb c d"),
    ("<main><p>a</main><aside>x</aside>", "a"),
    ("<div role=main>a<script>x()</script><style>y</style></div><p>z", "a"),
    ("<article>teaser</article><article>teaser 2</article><main>all of them</main>", "all of them"),
    ("<article>a</article><article>b</article>", "a\nb"),
    ("<article>a<article>comment</article></article>", "a\ncomment"),
    ("<article><div itemprop='articleBody'>a</div>share</article>", "a"),
    ("<article><img src=x></article><main>a</main>", "a"),
    ("<form><main>a<select><option>o</select><button>b</button></main></form>", "a"),
    ("<body><form>a<p>b</form>", "a\nb"),
    ("<article>a<template>t</template><p hidden>h</p><noscript>n</noscript></article>", "a"),
    ("<article>a<br>b<div>c</div>d<ul><li>e<li>f</ul></article>", "a\nb\nc\nd\ne\nf"),
    ("<article><table><tr><td>a<td>b<tr><th>c<td>d</table></article>", "a b\nc d"),
    ("<article><pre>a\n  b</pre>c</article>", "a\nb\nc"),
    ("<article>a\u00a0 \u3000b</article>", "a b"),
    ("<article>a&#30;b&#0;c</article>", "a\nb\ufffdc"),
    ("<p>a</p><nav>menu</nav>", "a"),
    ("just words", "just words"),
    ("<frameset><frame src=x></frameset>", ""),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("html", "expected"), TEXTS)
def test_the_text_is_what_a_reader_came_for(html, expected):
    """One line a block, nothing that is about the page instead of its matter."""
    assert expected == parsed(html).text


def test_a_page_that_marks_no_content_is_read_without_its_menus():
    """The heuristic decides there; what it leaves empty is read whole."""
    article = "<p>" + "The mill stands by the river and grinds the grain of the valley. " * 8 + "</p>"
    html = f"<div class=menu><ul>{'<li><a href=/x>Item</a></li>' * 9}</ul></div><div>{article * 4}</div>"
    text = parsed(html).text
    assert "grinds the grain" in text
    assert "Item" not in text


@pytest.mark.parametrize("start", ["<main>", ""])
def test_depth_of_nesting_is_no_limit(start):
    """A recursion would end the process at a page that anyone can write, and the heuristic would take seconds."""
    began_s = time.process_time()
    html = parsed(start + "<div>" * 10_000 + "x<a href=/y>")
    assert ("x", ["https://n.test/y"]) == (html.text, list(html.links.found))
    assert 1.0 > time.process_time() - began_s
