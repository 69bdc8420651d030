from __future__ import annotations

import pytest

from pipeline.web.robots import RobotsRules
from tests.suites.rows import document, suite_rows

FIRST_TOKEN = "an agent is told by its product token, which stands first in its User-Agent header (RFC 9309 2.2.1)"
UNKNOWN_RECORD = "an unknown record closes no group (RFC 9309 2.2.4)"
END_OF_PATTERN = "a `$` at the end of a pattern is an operator, the character is `%24` (RFC 9309 2.2.3)"
HTML_STAR = "`*<BR>` is no `*`: a page served as robots.txt says nothing to all agents"

DEVIATIONS = {
    "cc-testHtmlMarkupInRobotsTxt-153": HTML_STAR,
    "cc-testHeritrixCases-158": FIRST_TOKEN,
    "cc-testHeritrixCases-159": FIRST_TOKEN,
    "cc-testHeritrixCases-160": FIRST_TOKEN,
    "cc-testBigCrawlDelay-184": "a long Crawl-delay is a pace, not a ban; what to do about it is politeness's decision",
    "protego-test_grouping_unknown_keys-239": UNKNOWN_RECORD,
    "protego-test_grouping_unknown_keys-240": UNKNOWN_RECORD,
    "protego-test_grouping_unknown_keys-241": UNKNOWN_RECORD,
    "protego-test_generosity-248": "a product token has no blank (RFC 9309 2.2.1)",
    "protego-test_generosity-251": "`*` is no operator inside a product token (RFC 9309 2.2.1)",
    "protego-test_index_html_is_directory-258": "index.html is a page of its own; the RFC knows no other name for it",
    "protego-test_special_symbols_dual_behaviour-286": END_OF_PATTERN,
    "protego-test_special_symbols_dual_behaviour-287": END_OF_PATTERN,
}
"""Rows whose verdict we turn round, each with the reason; the RFC decides where peers differ."""

FACT_DEVIATIONS = {
    "cc-testHtmlMarkupInRobotsTxt-f1": HTML_STAR,
    "cc-testHeritrixCases-f2": FIRST_TOKEN,
    "protego-test_no_preferred_host-f1": "the Host record is not read",
}


@pytest.mark.parametrize(
    "row", suite_rows("robots-crawler-commons/allowed.jsonl") + suite_rows("robots-protego/allowed.jsonl")
)
def test_verdicts_are_those_of_the_peers(row):
    """Sites write their files for what crawlers do: a verdict of our own needs a reason in the RFC."""
    verdict = RobotsRules.parse(document(row["robots"])).verdict(row["agent"], row["url"])
    expected = row["allowed"] is not (row["id"] in DEVIATIONS)
    assert expected is verdict.allowed


@pytest.mark.parametrize(
    "row", suite_rows("robots-crawler-commons/facts.jsonl") + suite_rows("robots-protego/facts.jsonl")
)
def test_delays_and_sitemaps_are_those_of_the_peers(row):
    """A delay that is not seen is impoliteness, a sitemap that is not seen is lost pages."""
    if reason := FACT_DEVIATIONS.get(row["id"]):
        pytest.skip(reason)
    rules = RobotsRules.parse(document(row["robots"]))
    facts = {
        "crawl_delay": lambda: rules.crawl_delay_s(row["agent"]),
        "crawl_delay_ms": lambda: (rules.crawl_delay_s(row["agent"]) or 0) * 1_000,
        "sitemaps": lambda: list(rules.sitemaps) if isinstance(row["expect"], list) else len(rules.sitemaps),
    }
    assert row["expect"] == facts[row["fact"]]()


@pytest.mark.parametrize(
    "row", suite_rows("robots-protego/real.jsonl") + suite_rows("robots-crawler-commons/files.jsonl")
)
def test_files_of_real_sites_raise_nothing(row):
    """BOMs, NUL bytes, pages of HTML, other charsets: a site must not be able to stop a worker."""
    rules = RobotsRules.parse(document(row["robots"]))
    assert rules.verdict("headrace", "http://h.example/robots.txt").allowed
    rules.verdict("headrace", "http://h.example/a?b")
    rules.crawl_delay_s("*")
