"""feedparser's own documents: none is damaged, and titles, links and ids are what the library says, in our form."""

from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from pipeline.parse.feed import DAMAGED, parse_feed
from pipeline.parse.text import one_line
from tests.suites.rows import document, suite_rows

FILES = (
    "encoding", "entities", "illformed", "wellformed-amp", "wellformed-atom", "wellformed-atom10", "wellformed-base",
    "wellformed-cdf", "wellformed-feedburner", "wellformed-http", "wellformed-itunes", "wellformed-lang",
    "wellformed-media-rss", "wellformed-namespace", "wellformed-rdf", "wellformed-rss", "wellformed-sgml",
    "wellformed-xml",
)  # fmt: skip
SERVED_FROM = "http://127.0.0.1:8097/x.xml"
DIFFERENT = {
    # id of the row: why the answer is another one here.
    "wellformed/base/http_entry_id_base_content_location": "an id is a name and no URL",
    "wellformed/base/http_entry_id_base_docuri": "an id is a name and no URL",
    "wellformed/base/http_item_link_base_content_location": "the base is the URL of the fetch, not Content-Location",
    "wellformed/rss/item_image_link_conflict": "hosts are in lower case",
}
READERS = {
    ("feed", "title"): lambda feed: feed.title,
    ("entries", 0, "title"): lambda feed: feed.items[0].title,
    ("entries", 0, "id"): lambda feed: feed.items[0].id,
    ("entries", 0, "link"): lambda feed: feed.items[0].url,
}


@pytest.mark.parametrize("row", [row for name in FILES for row in suite_rows(f"feedparser/{name}.jsonl")])
def test_a_document_is_read_as_by_its_library(row):
    """Twenty years of odd feeds."""
    if row["id"] in DIFFERENT:
        pytest.skip(DIFFERENT[row["id"]])
    headers = {name.lower(): value for name, value in (row.get("headers") or {}).items()}
    feed = parse_feed(
        document(row["doc"]),
        row.get("url") or SERVED_FROM,
        fetched_at_s=2e9,
        content_type=headers.get("content-type", ""),
    )
    assert DAMAGED not in feed.links.refused
    for expected in row["expect"]:
        place = tuple(expected["path"])
        if expected["op"] == "==" and place in READERS:
            value = expected["value"]
            # A title that the library gives with markup is plain text here; one that is plain may look like markup.
            assert READERS[place](feed) in {one_line(value), one_line(LexborHTMLParser(value).text())}
