"""Acceptance cases on sitemaps.

SIT-03 (an index that lists itself) needs the frontier, which asks for each canonical URL once: here is the parser's
part, that a nested sitemap is a link by that URL.
"""

from __future__ import annotations

import gzip
import resource
import time

import pytest

from pipeline.parse.content import Options, read_content
from pipeline.parse.sitemap import parse_sitemap

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
START = f'<urlset xmlns="{NAMESPACE}"><url><loc>http://n.test/ok</loc></url>'
IMAGE = (
    "<i:image xmlns:i='http://www.google.com/schemas/sitemap-image/1.1'><i:loc>http://n.test/i.jpg</i:loc></i:image>"
)
BOMB = (
    '<!DOCTYPE u [<!ENTITY e0 "aaaaaaaaaa">'
    + "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 10))
    + "]>"
)


def locations(document):
    """Pages of a sitemap."""
    return [entry.loc for entry in parse_sitemap(document.encode(), "http://n.test/sitemap.xml").urls]


def test_sit_03_nested_sitemaps_are_links_by_their_canonical_urls():
    """An index that lists itself, or its parent, is then asked for once."""
    index = "".join(
        f"<sitemap><loc>{loc}</loc></sitemap>"
        for loc in ("/idx.xml", "HTTP://N.test:80/idx.xml#x", "/idx2.xml", "/s1.xml")
    )
    sitemap = parse_sitemap(f"<sitemapindex>{index}</sitemapindex>".encode(), "http://n.test/idx.xml")
    assert ("http://n.test/idx.xml", "http://n.test/idx2.xml", "http://n.test/s1.xml") == sitemap.sitemaps
    assert list(sitemap.sitemaps) == list(sitemap.links.found)


@pytest.mark.parametrize(
    "document",
    [
        '<urlset xmlns="https://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://n.test/1</loc></url></urlset>',
        '<urlset xmlns="http://www.google.com/schemas/sitemap/0.84"><url><loc>http://n.test/1</loc></url></urlset>',
        "<urlset><url><loc>http://n.test/1</loc></url></urlset>",
        f'<s:urlset xmlns:s="{NAMESPACE}"><s:url><s:loc>http://n.test/1</s:loc>{IMAGE}</s:url></s:urlset>',
    ],
)
def test_sit_04_the_spelling_of_the_namespace_decides_nothing_and_images_are_no_pages(document):
    """Only what stands in the root's own vocabulary is a page."""
    assert ["http://n.test/1"] == locations(document)


@pytest.mark.parametrize(
    "document",
    [
        f'<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/hostname">]>{START}<url><loc>http://n.test/&x;</loc></url></urlset>',
        f"{BOMB}{START}<url><loc>http://n.test/&e9;</loc></url></urlset>",
        f"{BOMB}{START}<url><loc a='&e9;'>http://n.test/&e9;</loc></url></urlset>",
        f'<!DOCTYPE u SYSTEM "http://127.0.0.1:9/x.dtd">{START}</urlset>',
        f'<!DOCTYPE u [<!ENTITY % p SYSTEM "http://127.0.0.1:9/p"> %p;]>{START}</urlset>',
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_sit_07_no_entity_is_expanded_and_nothing_is_loaded(document, pack, monkeypatch):
    """A sitemap needs no document type: with one it could read our files, ask our network, or fill our memory."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it asked the network"))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started_s = time.monotonic()
    content = read_content(
        pack(document.encode()), "http://n.test/s.xml", fetched_at_s=0.0, content_type="", robots_header="",
        options=Options(),
    )  # fmt: skip
    assert ["http://n.test/ok"] == list(content.links.found)
    assert 2.0 > time.monotonic() - started_s
    assert 50_000 > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib


def test_sit_07_holds_for_feeds_too():
    """Two libraries, one rule."""
    external = '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    for start, entity in ((external, "&x;"), (BOMB, "&e9;")):
        document = (
            f"{start}<rss><channel><item><title>{entity}</title><link>http://n.test/ok</link></item></channel></rss>"
        )
        content = read_content(
            document.encode(), "http://n.test/f", fetched_at_s=0.0, content_type="", robots_header="", options=Options()
        )
        assert ["http://n.test/ok"] == list(content.links.found)
        assert "root:" not in repr(content)
        assert 2_000 > len(repr(content))


def test_sit_08_a_bad_date_costs_the_date_and_not_the_url():
    """W3C NOTE-datetime has six forms; lastmod is a hint. A time without a zone is none."""
    dates = [
        "2023-04-02",
        "2005-02",
        "2023-12-18T07:39:59.752706Z",
        "2015-12-23T05:31-01:00",
        "2024-02-30",
        "2015-10-09T07:18:53.846Z 2015-06-16T15:33:55Z",
        "2012-08-20T01:25:00-0400-04:00",
        "2024-01-09T00:00:00",
        "yesterday",
        "",
    ]
    entries = "".join(
        f"<url><loc>http://n.test/{number}</loc><lastmod>{date}</lastmod></url>" for number, date in enumerate(dates)
    )
    sitemap = parse_sitemap(f"<urlset>{entries}</urlset>".encode(), "http://n.test/")
    assert [f"http://n.test/{number}" for number in range(10)] == [entry.loc for entry in sitemap.urls]
    assert ["2023-04-02", "2005-02", "2023-12-18T07:39:59.752706Z", "2015-12-23T06:31:00Z", *[None] * 6] == [
        entry.lastmod for entry in sitemap.urls
    ]
