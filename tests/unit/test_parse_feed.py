from __future__ import annotations

import pytest

from pipeline.parse import feed as feed_module
from pipeline.parse.feed import DAMAGED, FeedItem, parse_feed

FETCHED_AT_S = 1_717_172_775.0  # 2024-05-31T16:26:15Z
RSS = """<?xml version="1.0"?><rss version="2.0"><channel><title>The &amp; <![CDATA[<i>Feed</i>]]></title>
<language>en-gb</language>{}</channel></rss>"""
ITEM = "<item><title>t{0}</title><link>/{0}</link></item>"


def parsed(document, url="https://n.test/feed/rss.xml", **options):
    """A feed as the parse stage reads it."""
    body = document if isinstance(document, bytes) else document.encode()
    return parse_feed(body, url, fetched_at_s=FETCHED_AT_S, **options)


def test_an_rss_feed_gives_its_items_in_order():
    """The newest item is wanted within seconds; it stands first."""
    feed = parsed(
        RSS.format(
            "<item><title>A &lt;b&gt;bold&lt;/b&gt; one</title><link> /1?utm_source=rss </link><guid>g1</guid>"
            "<pubDate>Fri, 10 May 2024 08:00:00 +0200</pubDate></item>"
            "<item><title>2</title><guid isPermaLink='true'>https://n.test/2</guid></item>"
            "<item><title>3</title><guid>12345</guid></item>"
            "<item><title>no page</title><enclosure url='https://n.test/a.mp3' type='audio/mpeg'/></item>"
        )
    )
    assert ("UTF-8", "The & Feed", "en-gb") == (feed.encoding, feed.title, feed.language)
    assert (
        FeedItem("https://n.test/1", "g1", "A bold one", "2024-05-10T06:00:00Z", None),
        FeedItem("https://n.test/2", "https://n.test/2", "2", None, None),
        FeedItem(None, "12345", "3", None, None),
        FeedItem(None, "", "no page", None, None),
    ) == feed.items
    assert ["https://n.test/1", "https://n.test/2"] == list(feed.links.found)


def test_an_atom_feed_gives_its_items_in_order():
    """Of several links of an entry its page is the alternate one (RFC 4287 4.2.7.2)."""
    feed = parsed(
        "<feed xmlns='http://www.w3.org/2005/Atom'><title type='html'>a &amp;amp; b</title><entry><id>urn:1</id>"
        "<title>t</title><link rel='edit' href='e'/><link rel='self' href='s'/><link href='p'/>"
        "<published>2024-05-10T08:00:00+02:00</published><updated>2024-05-11T08:00:00Z</updated></entry></feed>"
    )
    assert "a & b" == feed.title
    assert (
        FeedItem("https://n.test/feed/p", "urn:1", "t", "2024-05-10T06:00:00Z", "2024-05-11T08:00:00Z"),
    ) == feed.items
    assert ["https://n.test/feed/p"] == list(feed.links.found)


def test_relative_bases_nest():
    """XML Base 4: each is resolved against the one around it, the outermost against the feed's own address."""
    feed = parsed("<feed xml:base='/j/'><entry xml:base='y/'><id>i</id><link href='z'/></entry></feed>")
    assert [("https://n.test/j/y/z", "i")] == [(item.url, item.id) for item in feed.items]


def test_rss_1_0_is_read():
    """Libraries and agencies still serve it."""
    feed = parsed(
        "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='http://purl.org/rss/1.0/'"
        " xmlns:dc='http://purl.org/dc/elements/1.1/'><item rdf:about='https://n.test/1'><title>t</title>"
        "<link>https://n.test/1</link><dc:date>2024-05-10</dc:date></item></rdf:RDF>"
    )
    assert [("https://n.test/1", None, "2024-05-10")] == [(i.url, i.published, i.updated) for i in feed.items]


def test_a_cut_or_broken_feed_is_read_as_far_as_it_goes():
    """The items before the fault are news all the same."""
    whole = RSS.format("".join(ITEM.format(number) for number in range(9)))
    assert {"https://n.test/0", "https://n.test/5"} <= set(parsed(whole[: whole.index("t7")]).links.found)
    assert 9 == len(parsed(whole.replace("t4", "a & b &nbsp; <br>")).items)
    assert 9 == len(parsed(whole.replace("t4", "\x0b\x00&#11;&#xD800;&#99999999999;")).items)


def test_a_feed_too_long_is_read_to_the_limit(monkeypatch):
    """A feed is read in a tenth of a second a MB: a bound keeps the time limit away."""
    monkeypatch.setattr(feed_module, "MAX_FEED_BYTES", 4_000)
    feed = parsed(RSS.format("".join(ITEM.format(number) for number in range(500))))
    assert 40 < len(feed.items) < 500


def test_times_that_can_not_be_are_dropped_and_the_item_stays():
    """A date is a hint; the item is the news."""
    dates = ("Fri, 10 May 2024 08:00:00", "Fri, 10 May 2203 08:00:00 GMT", "today", "")
    feed = parsed(RSS.format("".join(f"<item><title>t</title><pubDate>{date}</pubDate></item>" for date in dates)))
    assert [None] * 4 == [item.published for item in feed.items]


def test_the_name_of_a_file_is_no_feed(tmp_path):
    """A feed library that takes names would read a file of the worker's and publish it."""
    file = tmp_path / "feed.xml"
    file.write_text(RSS.format(ITEM.format(1)), encoding="utf-8")
    assert () == parsed(str(file)).items


def test_a_declared_encoding_counts_where_the_header_says_none():
    """RFC 7303 3.2: header, byte order mark, declaration."""
    document = "<?xml version='1.0' encoding='windows-1251'?><rss><channel><title>Привет</title></channel></rss>"
    assert "Привет" == parsed(document.encode("cp1251"), content_type="text/xml").title
    assert "Привет" == parsed(document.encode(), content_type="text/xml; charset=utf-8").title
    assert "Привет" == parsed(("\ufeff" + document).encode("utf-16-le")).title


def test_a_feed_that_the_library_gives_up_on_is_counted():
    """Its handlers raise whatever they meet; that is no reason for a dead letter, which a site could order."""
    point = "<textInput><georss:point>1 x</georss:point>"
    feed = parsed(f"<rss xmlns:georss='http://www.georss.org/georss'><item>{point}")
    assert ((), {DAMAGED: 1}) == (feed.items, feed.links.refused)


@pytest.mark.parametrize("link", ["javascript:x()", "http://u:p@n.test/", "mailto:a@b.test"])
def test_an_item_without_a_page_that_can_be_fetched_is_kept_without_it(link):
    """Title and time are there; only the way to the page is not."""
    feed = parsed(RSS.format(f"<item><title>t</title><link>{link}</link></item>"))
    assert [None] == [item.url for item in feed.items]
    assert 1 == sum(feed.links.refused.values())
