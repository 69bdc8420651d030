from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigurationError
from pipeline.frontier.scope import Scope
from pipeline.ops.crawl_definitions import check_definition
from pipeline.web.patterns import nearest_glob
from pipeline.web.url import RefusedUrl, canonicalize
from tests.frontier_world import make_crawl


def rule(action="DENY", pattern="*", source=""):
    """A rule of a scope."""
    return {"action": action, "pattern": pattern, "source": source}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"crawl": ""}, "crawl: '' is wrong"),
        ({"crawl": "x" * 256}, "crawl: .* is wrong; right is 1 to 255 bytes"),
        ({"max_pages": 0}, "max_pages: 0 is wrong; right is at least 1"),
        ({"max_bytes_per_domain": -1}, "max_bytes_per_domain: -1 is wrong"),
        ({"max_depth": -1}, "max_depth: -1 is wrong; right is at least 0"),
        ({"scope": [rule()] * 1_001}, "scope: '1001 rules' is wrong; right is at most 1000"),
        ({"scope": [rule(action="deny")]}, "scope rule 1, action: 'deny' is wrong; right is DENY"),
        ({"scope": [rule(action="drop")]}, "action: 'drop' is wrong; right is DENY"),
        ({"scope": [rule(action="?")]}, "right is ALLOW or DENY"),
        ({"scope": [rule(), rule(pattern="")]}, "scope rule 2, pattern: '' is wrong"),
        ({"scope": [rule(pattern="*" * 2_049)]}, "right is a glob of 1 to 2048 bytes"),
        ({"scope": [rule(source="news..x")]}, "source: 'news..x' is wrong; right is words between dots"),
        ({"scope": [rule(source=">.x")]}, "> stands at the end alone"),
        ({"scope": [rule(source="new*")]}, "'new\\*' mixes a word and a wildcard"),
    ],
)
def test_a_definition_that_means_nothing_is_refused_by_field(fields, said):
    """Before it is written: on the topic nobody could say a word about it any more."""
    with pytest.raises(ConfigurationError, match=said):
        check_definition({**make_crawl("c"), **fields})


def test_a_definition_with_all_there_is_passes():
    """And one that leaves out what has a default."""
    limits = dict.fromkeys(["max_pages", "max_bytes", "max_pages_per_day", "max_pages_per_domain_per_day"], 1)
    check_definition(make_crawl("c", scope=[rule("ALLOW", "https://a.test/*", "news.>")], **limits))
    check_definition({"crawl": "c"})


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("/blog/*", "*/blog/*"),
        ("www.a.test/*", "*://www.a.test/*"),
        ("a.test", "*://a.test/*"),
        ("https://A.test/*", "https://a.test/*"),
        ("HTTPS://a.test/*", "https://a.test/*"),
        ("https://a.test", "https://a.test/"),
        ("https://a.test:443/*", "https://a.test/*"),
        ("https://a.test/x#top", "https://a.test/x"),
        ("https://a.test/é*", "https://a.test/%C3%A9*"),
        ("^https://a.test/*", "https://a.test/*"),
        (" *.pdf", "*.pdf"),
    ],
)
def test_a_pattern_that_could_never_match_is_told_the_nearest_that_can(pattern, nearest):
    """A rule that matches nothing looks like one that works, until somebody counts pages."""
    assert nearest == nearest_glob(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "*.pdf",
        "http*",
        "http://*",
        "*://a.test/*",
        "https://*.a.test/*",
        "http://a.test*",
        "http://a.test:8080/?q=*",
    ],
)
def test_a_pattern_that_can_match_is_left_alone(pattern):
    """Whatever it matches."""
    assert pattern == nearest_glob(pattern)


@given(st.text(max_size=40))
def test_the_nearest_pattern_is_its_own_nearest(pattern):
    """Who follows the advice must not be sent on."""
    nearest = nearest_glob(pattern)
    assert nearest == nearest_glob(nearest)


@given(st.sampled_from(["http", "https"]), st.text("ab.", min_size=1, max_size=9), st.text("xé/?#:*%", max_size=9))
def test_a_canonical_url_is_a_pattern_for_itself(scheme, host, rest):
    """Start points stand in a scope as they are."""
    try:
        href = canonicalize(f"{scheme}://{host}/{rest}").href
    except RefusedUrl:
        return
    assert href == nearest_glob(href)
    assert None is Scope([rule("ALLOW", href)]).refusal(href)
