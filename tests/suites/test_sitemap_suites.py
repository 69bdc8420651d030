"""crawler-commons' sitemaps and dates."""

from __future__ import annotations

import pytest

from pipeline.parse.content import Options, read_content
from pipeline.parse.dates import rfc822_date, w3c_date
from pipeline.parse.kinds import Kind
from pipeline.parse.sitemap import ParsedSitemap
from tests.suites.rows import document, suite_rows

SUITE = "sitemaps-crawler-commons"


@pytest.mark.parametrize("row", suite_rows(f"{SUITE}/files.jsonl"))
def test_a_file_is_read_as_by_crawler_commons(row):
    """Real files, odd ones among them; pages of image and video extensions are not counted there either."""
    body, expected = document(row["doc"]), row["expect"]
    content = read_content(
        body, "https://example.com/s.xml", fetched_at_s=2e9, content_type="", robots_header="", options=Options()
    )
    if expected.get("kind") == "atom" or row["id"].startswith("cc-rss/"):
        assert Kind.FEED is content.kind
        assert content.links.found
        return
    assert Kind.SITEMAP is content.kind
    assert isinstance(content.read, ParsedSitemap)
    assert expected.get("urls", len(content.read.urls)) == len(content.read.urls)
    assert expected.get("sitemaps", 0) == len(content.read.sitemaps)
    if "contains" in expected:
        assert expected["contains"] in content.links.found


@pytest.mark.parametrize("row", suite_rows(f"{SUITE}/dates.jsonl"))
def test_a_date_is_the_moment_that_crawler_commons_reads(row):
    """There a month is its first day and a day its midnight in UTC; here they stay a month and a day."""
    found = (w3c_date if row["kind"] == "w3c" else rfc822_date)(row["input"])
    expected = row["expect"]
    if found is not None and "T" not in found:
        assert expected.startswith(found)
    elif found is not None and "." in found:
        assert expected.rstrip("0Z") == found.rstrip("0Z")
    else:
        assert expected == found
