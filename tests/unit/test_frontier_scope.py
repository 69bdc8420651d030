from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.frontier.scope import Scope
from pipeline.frontier.traps import TrapLimits, trap


def allow(pattern):
    """A rule that allows."""
    return {"action": "ALLOW", "pattern": pattern}


def deny(pattern):
    """A rule that denies."""
    return {"action": "DENY", "pattern": pattern}


@pytest.mark.parametrize(
    ("rules", "url", "allowed"),
    [
        ([], "http://a.test/", True),
        ([deny("*/private/*")], "http://a.test/x", True),
        ([deny("*/private/*")], "http://a.test/private/x", False),
        ([allow("http://a.test/*")], "http://a.test/x", True),
        ([allow("http://a.test/*")], "http://b.test/x", False),
        ([deny("*.pdf"), allow("http://a.test/*")], "http://a.test/x.pdf", False),
        ([allow("http://a.test/*"), deny("*.pdf")], "http://a.test/x.pdf", True),
        ([allow("http://a.test/")], "http://a.test/x", False),
        ([allow("http://a.test/?q=*")], "http://a.test/?q=1", True),
        ([allow("http://a.test/?q=*")], "http://a.test/xq=1", False),
        ([{"action": "UNKNOWN", "pattern": "*x*"}], "http://a.test/x", False),
    ],
)
def test_the_first_rule_that_matches_decides(rules, url, allowed):
    """Order is the operator's; nothing matching denies where anything is allowed explicitly."""
    assert allowed == Scope(rules).allows(url)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_a_star_stands_for_any_run_of_characters(pattern, url):
    """The linear matcher answers as the regular expression would that it replaces."""
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), url) is not None
    assert expected == Scope([allow(pattern)]).allows(url)


def test_a_pattern_with_many_stars_costs_no_more_than_the_url_is_long():
    """A definition comes from outside: one pattern must not stop a partition."""
    scope = Scope([allow("*a" * 50 + "*b")])
    begin = time.process_time()
    assert not scope.allows("http://h.test/" + "a" * 2_000)
    assert time.process_time() - begin < 0.1


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", None),
        ("/", None),
        ("/a/b/a/b", None),
        ("/a/b/a/b/a/b", "path_repetition"),
        ("/start/x/x/x/end", "path_repetition"),
        ("/x/x/y/x/x/y", None),
        ("/2024/01/01", None),
        ("/docs/a/www.p.test/policies/www.p.test/policies/www.p.test/policies/", "path_repetition"),
        ("/p?" + "&".join(f"a{n}=1" for n in range(32)), None),
        ("/p?" + "&".join(f"a{n}=1" for n in range(33)), "parameters"),
        ("/p?next=/a/a/a/a", None),
    ],
)
def test_urls_that_a_site_grows_without_end_are_traps(path, reason):
    """Each step of such a site offers one longer URL with the same page; ordinary paths must pass."""
    found = trap(f"http://h.test{path}", TrapLimits(), 2026)
    assert reason == (found.reason if found is not None else None)


def test_a_long_path_is_judged_quickly():
    """A URL of two kilobytes of segments must not cost milliseconds: a page may hold hundreds of them."""
    begin = time.process_time()
    for _ in range(10):
        trap("http://h.test/" + "/".join("ab"[n * n % 3 % 2] for n in range(1_000)), TrapLimits(segments=2_000), 2026)
    assert time.process_time() - begin < 0.2
