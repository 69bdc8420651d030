"""Acceptance cases on robots.txt.

ROB-03 (rules that were reached by a redirect belong to the host that was asked) is about fetching: it is tested with
the fetch stage.
"""

from __future__ import annotations

import time

import pytest

from pipeline.web.robots import MAX_BYTES, RobotsRules


def allowed(robots: bytes, urls: list[str], agent: str = "newsbot") -> list[bool]:
    """The verdicts on several URLs."""
    rules = RobotsRules.parse(robots)
    return [rules.verdict(agent, url).allowed for url in urls]


def test_rob_01_a_byte_order_mark_hides_no_group():
    """The first line would be unknown, its rules nobody's: a closed site would be crawled, silently."""
    assert [False, False] == allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /\n", ["/", "/a"])


def test_rob_04_an_escaped_slash_in_a_rule_is_not_a_slash():
    """Decoded, the rule would close every folder."""
    robots = b"User-agent: *\nDisallow: /*%2F*\n"
    assert [True, False, False] == allowed(robots, ["/a/b/c.html", "/topic/9%2F11/x", "/topic/9%2f11/x"])


def test_rob_06_escaped_operators_in_a_rule_are_characters():
    """`%2A` and `%24` are the only way to write a rule for such names."""
    robots = b"User-agent: *\nDisallow: /path/file-%2A.html\nDisallow: /path/foo-%24\n"
    urls = ["/path/file-*.html", "/path/file-x.html", "/path/foo-$", "/path/foo-", "/path/foo-$9"]
    assert [False, True, False, True, False] == allowed(robots, urls)


def test_rob_08_a_wildcard_reaches_into_the_query_and_its_escapes():
    """Endless facets are what sites close by it."""
    robots = b"User-agent: *\nDisallow: /*s=\nDisallow: /shop/*q=*topsort*\n"
    urls = ["/", "/s/", "/?s=owl", "/shop/c/40?q=%3Atopsort%3Akind", "/shop/c/40?p=1"]
    assert [True, True, False, False, True] == allowed(robots, urls)


@pytest.fixture
def huge_file():
    """About 559,000 bytes of rules, with one that ends at byte 490,000."""
    rules = [b"Disallow: /p%d/\n" % n for n in range(30_000)]
    body = bytearray(b"User-agent: *\n")
    secret = b"Disallow: /secret/\n"
    while len(body) + len(rules[0]) + len(secret) < 490_000:
        body += rules.pop(0)
    body += secret.rjust(490_000 - len(body), b"\n")
    return bytes(body) + b"".join(rules) + b"Disallow: /late/\n"


def test_rob_11_rules_below_the_limit_hold_in_a_file_above_it(huge_file):
    """Cutting must keep what fits, and say that something was left out."""
    assert MAX_BYTES < len(huge_file)
    assert 490_000 == huge_file.index(b"/secret/\n") + len(b"/secret/\n")
    urls = ["/p0/x", "/p20000/x", "/secret/x", "/ok/x"]
    assert [False, False, False, True] == allowed(huge_file, urls)
    assert RobotsRules.parse(huge_file).truncated


def test_rob_11_a_check_against_30000_rules_takes_under_50_ms(huge_file):
    """Every request of the site is checked."""
    rules = RobotsRules.parse(huge_file)
    rules.verdict("newsbot", "/")
    begun = time.process_time()
    for _ in range(20):
        rules.verdict("newsbot", "/ok/x")
    assert 0.050 > (time.process_time() - begun) / 20
