from __future__ import annotations

import pytest

from pipeline.parse import sitemap as sitemap_module
from pipeline.parse.sitemap import News, SitemapUrl, parse_sitemap

NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
URLSET = f"<?xml version='1.0' encoding='UTF-8'?><urlset xmlns='{NAMESPACE}'>{{}}</urlset>"


def parsed(document, url="https://n.test/maps/sitemap.xml", **options):
    """A sitemap as the parse stage reads it."""
    return parse_sitemap(document if isinstance(document, bytes) else document.encode(), url, **options)


def locations(document):
    """Its pages."""
    return [entry.loc for entry in parsed(document).urls]


def test_a_urlset_gives_pages_with_their_hints():
    """Polling adapts to lastmod and changefreq."""
    sitemap = parsed(
        URLSET.format(
            "<url><loc> https://N.test/1 </loc><lastmod>2024-05-10T08:00+02:00</lastmod><changefreq>Hourly</changefreq>"
            "<priority>0.8</priority></url><url><loc>https://n.test/2</loc><lastmod>2024-05</lastmod>"
            "<changefreq>often</changefreq><priority>7</priority></url><url><lastmod>2024-05-10</lastmod></url>"
        )
    )
    assert (
        SitemapUrl("https://n.test/1", "2024-05-10T06:00:00Z", "hourly", 0.8),
        SitemapUrl("https://n.test/2", "2024-05"),
    ) == sitemap.urls
    assert () == sitemap.sitemaps
    assert ["https://n.test/1", "https://n.test/2"] == list(sitemap.links.found)


def test_an_index_gives_sitemaps():
    """They are links too: a crawl follows them."""
    sitemap = parsed(
        f"<sitemapindex xmlns='{NAMESPACE}'><sitemap><loc>https://n.test/a.xml</loc><lastmod>2024</lastmod></sitemap>"
        "<sitemap>\nhttps://n.test/b.xml\n</sitemap><sitemap>soon</sitemap></sitemapindex>"
    )
    assert ("https://n.test/a.xml", "https://n.test/b.xml") == sitemap.sitemaps
    assert () == sitemap.urls
    assert ["https://n.test/a.xml", "https://n.test/b.xml"] == list(sitemap.links.found)


def test_the_news_extension_is_read():
    """A news desk lives by its publication dates."""
    space = "http://www.google.com/schemas/sitemap-news/0.9"
    entry = (
        f"<url xmlns:n='{space}'><loc>/1</loc><n:news><n:publication><n:name>Mill</n:name><n:language>en</n:language>"
        "</n:publication><n:publication_date>2024-05-10T08:00:00+02:00</n:publication_date><n:title>A &amp; B</n:title>"
        "</n:news></url>"
    )
    (url,) = parsed(URLSET.format(entry)).urls
    assert News("Mill", "en", "A & B", "2024-05-10T06:00:00Z") == url.news


def test_a_text_sitemap_is_one_url_a_line():
    """sitemaps.org: nothing else may stand in it; what does is refused, not resolved into a page."""
    sitemap = parsed("\ufeffhttps://n.test/1\r\n\r\n  https://n.test/2 \nnonsense\nhttps://n.test/1\n")
    assert ["https://n.test/1", "https://n.test/2"] == [entry.loc for entry in sitemap.urls]
    assert {"unparsable": 1} == sitemap.links.refused


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("<url><loc>https://n.test/2</loc></url>", ["https://n.test/1", "https://n.test/2"]),
        ("<url><loc>https://n.test/2</loc", ["https://n.test/1", "https://n.test/2"]),
        ("<url><loc>https://n.te", ["https://n.test/1"]),
        ("<url", ["https://n.test/1"]),
    ],
)
def test_a_cut_sitemap_gives_no_half_url(end, expected):
    """`https://n.te` is somebody else's host."""
    assert expected == locations(f"<urlset><url><loc>https://n.test/1</loc></url>{end}")


@pytest.mark.parametrize(
    ("loc", "expected"),
    [
        ("https://n.test/?a=1&amp;b=2", "https://n.test/?a=1&b=2"),
        ("https://n.test/?a=1&b=2&copy=3", "https://n.test/?a=1&b=2&copy=3"),
        ("<![CDATA[https://n.test/?a=1&b=2]]>", "https://n.test/?a=1&b=2"),
        ("https://n.test/?a=1&#38;b=2", "https://n.test/?a=1&b=2"),
        ("2", "https://n.test/maps/2"),
    ],
)
def test_addresses_are_read_as_their_sites_mean_them(loc, expected):
    """A bare ampersand is the commonest fault; a parser that drops it asks for another page."""
    assert [expected] == locations(URLSET.format(f"<url><loc>{loc}</loc></url>"))


@pytest.mark.parametrize(
    "loc", ["https://n.test/&x;", "https://n.test/<b>x</b>", "https://n.test/&undefined;", "", "  "]
)
def test_an_address_with_something_inside_it_is_none(loc):
    """What an entity stands for is not looked up, and a part of an address is another address."""
    document = (
        f"<!DOCTYPE u [<!ENTITY x 'secret'>]><urlset><url><loc>{loc}</loc></url><url><loc>/2</loc></url></urlset>"
    )
    assert ["https://n.test/2"] == locations(document)


def test_only_the_protocol_s_own_elements_are_pages():
    """Images, alternates and what other vocabularies call url are not."""
    entry = (
        "<url><loc>/1</loc><i:image xmlns:i='urn:i'><i:loc>/i.jpg</i:loc><i:url><i:loc>/j.jpg</i:loc></i:url></i:image>"
        "<x:link xmlns:x='urn:x' href='/de'/><loc>/second</loc></url>"
    )
    assert ["https://n.test/1"] == locations(URLSET.format(entry))


def test_a_sitemap_longer_than_the_protocol_allows_is_read_to_its_limit(monkeypatch):
    """The rest would cost time and memory that no one has asked for."""
    monkeypatch.setattr(sitemap_module, "MAX_SITEMAP_BYTES", 4_000)
    entries = "".join(f"<url><loc>https://n.test/{number:04}</loc></url>" for number in range(500))
    found = locations(f"<urlset>{entries}</urlset>")
    assert 50 < len(found) < 500
    assert {len("https://n.test/0000")} == set(map(len, found))


def test_an_encoding_is_read_as_for_any_xml():
    """Addresses in Cyrillic are common, and so is their sites' encoding."""
    document = "<?xml version='1.0' encoding='windows-1251'?><urlset><url><loc>https://n.test/мир</loc></url></urlset>"
    sitemap = parsed(document.encode("cp1251"))
    assert ("windows-1251", "https://n.test/%D0%BC%D0%B8%D1%80") == (sitemap.encoding, sitemap.urls[0].loc)
