"""Acceptance cases on time, as far as pages are concerned.

TIME-01 and TIME-02 are about the timestamps of Kafka records, which no parser sees.
"""

from __future__ import annotations

from pipeline.parse.html import parse_html
from tests.unit.parse_pages import FETCHED_AT_MS


def published(html, url="https://n.test/"):
    """When a page says it was published; it was fetched on 2024-05-31."""
    dated = parse_html(html.encode(), url, fetched_at_s=FETCHED_AT_MS / 1_000).published
    return dated.value if dated else None


def test_time_04_what_a_page_declares_is_its_date_and_nothing_is_guessed():
    """No date from scripts, addresses or running text; none later than the fetch and a day."""
    assert [
        "2024-01-02",
        "2024-05-10T06:00:00Z",
        None,
        None,
        "2024-05-31T15:30:00Z",
    ] == [
        published("<meta name=dc.date content=2024-01-02><script>expires: '2026-01-31'</script>"),
        published(
            "<meta property=article:published_time content=2024-05-10T08:00:00+02:00>",
            "https://n.test/2024/05/18/x-2025.html",
        ),
        published("<p>20.05.31</p>"),
        published("<meta property=article:published_time content=2203-11-22>"),
        published("<meta property=article:published_time content=2024-06-01T00:30:00+09:00>"),
    ]
