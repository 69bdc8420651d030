"""Acceptance cases on URLs: all are about the canonical form, none about what the frontier does with it."""

from __future__ import annotations

import pytest

from pipeline.web.domains import registrable_domain
from pipeline.web.url import RefusedUrl, canonicalize, url_key


def href(url: str) -> str:
    """The canonical form alone."""
    return canonicalize(url).href


def same_key(url: str, other: str) -> bool:
    """Whether two URLs are one page."""
    return url_key(href(url)) == url_key(href(other))


def test_url_01_a_port_is_no_part_of_an_internationalised_host():
    """The authority is split before the host becomes punycode; user names never reach a host label."""
    canonical = canonicalize("https://пример.испытание:8443/a")
    assert ("https://xn--e1afmkfd.xn--80akhbyknj4f:8443/a", 8443) == (canonical.href, canonical.port)
    assert "xn--:" not in canonical.href
    with pytest.raises(RefusedUrl) as caught:
        canonicalize("https://user@пример.испытание:8443/a")
    assert "credentials" == caught.value.refusal


@pytest.mark.parametrize("tail", ["artist/_/100%+Pure", "a%zz", "a%", "q?x=50%"])
def test_url_04_a_percent_sign_that_starts_no_escape_stays(tail):
    """It is a validation error, no failure; the key must not change when taken twice."""
    url = f"https://music.example/{tail}"
    assert url == href(url) == href(href(url)) == canonicalize(url).wire


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        ("https://example.org/a%2db/c%2dd/?k=v", "https://example.org/a-b/c-d/?k=v"),
        ("https://example.org/%41%42%43?%61=%62", "https://example.org/ABC?a=b"),
    ],
)
def test_url_05_escapes_of_unreserved_characters_are_the_characters(escaped, plain):
    """RFC 3986 6.2.2.2, in path and query; the site is asked in the spelling of the link."""
    assert same_key(escaped, plain)
    assert escaped == canonicalize(escaped).wire


@pytest.mark.parametrize(
    ("url", "other", "same"),
    [
        ("https://example.com/Item/AbC", "https://example.com/item/abc", False),
        ("https://example.com/?token=SeCrEt", "https://example.com/?token=secret", False),
        ("HTTPS://EXAMPLE.com/x", "https://example.com/x", True),
    ],
)
def test_url_06_only_scheme_and_host_are_without_case(url, other, same):
    """Lower-casing a path merges different pages, and nobody notices."""
    assert same is same_key(url, other)


def test_url_08_a_backslash_separates_segments_and_its_escape_does_not():
    """URL Standard: raw it is a slash in http URLs, escaped it is data."""
    escaped = "http://bank.example/ab%5Ccd.nsf/Page?OpenDocument"
    assert escaped == href(escaped)
    assert "http://bank.example/ab/cd.nsf/Page?OpenDocument" == href("http://bank.example/ab\\cd.nsf/Page?OpenDocument")


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://10.2.3.4/hello", "http://10.2.3.4/hello"),
        ("https://h.example:443/x", "https://h.example/x"),
        ("https://h.example:80/x", "https://h.example:80/x"),
        ("http://h.example:443/x", "http://h.example:443/x"),
        ("http://h.example:00080/x", "http://h.example/x"),
    ],
)
def test_url_10_only_the_schemes_own_port_is_dropped(url, canonical):
    """And an address is a whole: it has no subdomain to drop."""
    assert canonical == href(url)
    assert registrable_domain(canonicalize(url).host) in {"10.2.3.4", "h.example"}


@pytest.mark.parametrize("target", ["/r&d/report_fy18.pdf", "/a&b=c"])
def test_url_12_an_ampersand_in_a_path_is_left_alone(target):
    """It is legal there (RFC 3986 3.3); a guess would ask for another page."""
    url = canonicalize(f"http://state.example{target}")
    assert f"http://state.example{target}" == url.wire == url.href
