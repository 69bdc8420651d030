from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.errors import InputError

PAGE = b"""<html lang=en><title>T</title><link rel=canonical href=/c><meta name=author content=A>
<meta property=article:published_time content=2024-05-10T08:00Z><main>text <a href=/x rel="nofollow ugc">x</a></main>"""


def run(*arguments, stdin=PAGE):
    """Call `headrace parse`."""
    return CliRunner().invoke(cli, ["parse", "-", "--url", "https://N.test/p", *arguments], input=stdin)


def row(*arguments, stdin=PAGE):
    """The object that --json prints."""
    result = run("--json", *arguments, stdin=stdin)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def test_a_page_is_printed_in_the_fields_of_the_contract():
    """Scripts rely on them: fields may be added, none may change."""
    assert {
        "url": "https://n.test/p",
        "kind": "html",
        "encoding": "windows-1252",
        "title": "T",
        "text": "text x",
        "published": "2024-05-10T08:00:00Z",
        "published_evidence": "meta article:published_time: 2024-05-10T08:00Z",
        "modified": None,
        "language": "en",
        "authors": ["A"],
        "canonical": "https://n.test/c",
        "robots": {"index": True, "follow": True},
        "links": [{"url": "https://n.test/x", "rel": "nofollow ugc", "nofollow": True}],
        "items": [],
        "urls": [],
        "sitemaps": [],
    } == row()


def test_a_feed_prints_its_items():
    """The same fields for every kind: what a kind lacks is empty."""
    found = row(stdin=b"<rss><channel><title>F</title><item><title>t</title><link>/1</link></item></channel></rss>")
    item = {"url": "https://n.test/1", "id": "", "title": "t", "published": None, "updated": None}
    link = {"url": "https://n.test/1", "rel": "", "nofollow": False}
    assert ("feed", "F", [item], [link]) == (found["kind"], found["title"], found["items"], found["links"])


def test_a_sitemap_prints_its_entries():
    """Times are RFC 3339 with a zone, or dates."""
    found = row(stdin=b"<urlset><url><loc>/1</loc><lastmod>2024-05-10T08:00+02:00</lastmod></url></urlset>")
    entry = {"loc": "https://n.test/1", "lastmod": "2024-05-10T06:00:00Z", "changefreq": None, "priority": None}
    assert ("sitemap", [entry | {"news": None}]) == (found["kind"], found["urls"])
    found = row(stdin=b"<sitemapindex><sitemap><loc>/1</loc></sitemap></sitemapindex>")
    assert ["https://n.test/1"] == found["sitemaps"]


def test_headers_count_as_they_would_in_a_crawl():
    """What the file alone does not say."""
    found = row("--content-type", "application/pdf", "--x-robots-tag", "noindex", "--x-robots-tag", "nofollow")
    assert ("other", {"index": False, "follow": False}, []) == (found["kind"], found["robots"], found["links"])


def test_control_characters_of_a_page_never_reach_the_terminal():
    """A title may hold an escape sequence."""
    result = run(stdin=b"<title>a\x1b[31mb</title><p>c\x1b]0;d\x07")
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
    assert "a\ufffd[31mb" in result.stdout


def test_the_summary_is_bounded_and_says_what_it_leaves_out():
    """A front page has hundreds of links."""
    result = run(stdin=b"".join(b"<a href=/%d>x</a>" % number for number in range(50)))
    assert "links               50" in result.stdout
    assert "30 more" in result.stdout


def test_a_url_that_is_none_is_an_error_of_the_caller():
    """A message and the status of bad input, no traceback."""
    result = CliRunner().invoke(cli, ["parse", "-", "--url", "nonsense"], input=PAGE)
    assert isinstance(result.exception, InputError)


def test_a_file_that_is_not_there_is_named():
    """Before anything is read."""
    result = CliRunner().invoke(cli, ["parse", "/nonexistent/x.html", "--url", "https://n.test/"])
    assert 2 == result.exit_code
    assert "/nonexistent/x.html" in result.stderr


@pytest.mark.parametrize("stdin", [b"", b"\x00", b"\xff" * 100])
def test_any_file_is_answered(stdin):
    """It shows what the stage would do, and the stage raises on no bytes."""
    assert row(stdin=stdin)["kind"] in {"html", "other"}
