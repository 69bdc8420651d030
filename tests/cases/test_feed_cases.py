"""Acceptance cases on feeds."""

from __future__ import annotations

from pipeline.parse.feed import parse_feed
from tests.unit.parse_pages import FETCHED_AT_MS


def parsed(document, url="http://n.test/feed"):
    """A feed as the parse stage reads it, without a header that says anything."""
    body = document if isinstance(document, bytes) else document.encode()
    return parse_feed(body, url, fetched_at_s=FETCHED_AT_MS / 1_000)


def test_feed_01_years_of_two_digits_are_of_this_century():
    """An item of the year 200 sorts behind everything; RFC 2822 4.3 says what two digits mean."""
    dates = [
        "Wed, 08 Jul 15 00:00:00 +0200",
        "Fri, 29 Sep 17 22:05:03 +0300",
        "Mon, 13 Mar 17 05:57:31 -0100",
        "Mon, 23 May 16 12:39:07 -0700",
    ]
    items = "".join(f"<item><pubDate>{date}</pubDate></item>" for date in dates)
    assert [
        "2015-07-07T22:00:00Z",
        "2017-09-29T19:05:03Z",
        "2017-03-13T06:57:31Z",
        "2016-05-23T19:39:07Z",
    ] == [item.published for item in parsed(f"<rss version='2.0'><channel>{items}</channel></rss>").items]


def test_feed_04_bases_nest_and_only_the_page_of_an_item_is_a_link():
    """Without the base of the entry every item is a 404; comments are no news."""
    feed = parsed(
        "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='https://blog.test/journal/'><title>b</title><id>urn:f</id>"
        "<updated>2013-08-14T00:00:00Z</updated><entry xml:base='y/2021/06/09/'><title>t</title><id>urn:e</id>"
        "<updated>2013-08-14T00:00:00Z</updated><link href='Half-Measures'/>"
        "<link rel='replies' href='Half-Measures#comments'/></entry></feed>",
        "https://blog.test/journal/all.atom",
    )
    assert ["https://blog.test/journal/y/2021/06/09/Half-Measures"] == [item.url for item in feed.items]
    assert ["https://blog.test/journal/y/2021/06/09/Half-Measures"] == list(feed.links.found)


def test_feed_06_blanks_are_cut_from_characters_not_from_bytes():
    """The UTF-8 form of `à` ends in a byte that is a blank in other encodings."""
    feed = parsed(
        "<?xml version='1.0' encoding='utf-8'?><rss version='2.0'><channel><title>Voilà</title><item><title>là </title>"
        "<link>http://n.test/1</link></item></channel></rss>"
    )
    assert ("Voilà", ["là"]) == (feed.title, [item.title for item in feed.items])


def test_feed_08_gb2312_is_read_as_what_sites_mean_by_it():
    """The label is of 1980; the characters of names and prices came later."""
    feed = parsed(
        "<?xml version='1.0' encoding='gb2312'?><rss version='2.0'><channel><title>朱镕基</title>"
        "<item><title>新闻\uff1a￥100</title><link>http://n.test/1</link></item></channel></rss>".encode("gbk")
    )
    assert ("朱镕基", ["新闻\uff1a￥100"]) == (feed.title, [item.title for item in feed.items])
    assert "\ufffd" not in feed.title
