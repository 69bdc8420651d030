from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.domains import PSL_VERSION, registrable_domain


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.com", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("example.co.uk", "example.co.uk"),
        ("WWW.Example.COM", "example.com"),
        ("www.example.com.", "example.com"),
        ("a.b.test", "b.test"),
        ("www.xn--e1afmkfd.xn--p1ai", "xn--e1afmkfd.xn--p1ai"),
        ("a.xn--55qx5d.cn", "a.xn--55qx5d.cn"),
        ("b.www.ck", "www.ck"),
        ("a.b.other.ck", "b.other.ck"),
    ],
)
def test_a_name_belongs_to_the_label_before_its_public_suffix(host, domain):
    """It is the record key: all hosts of one owner meet one partition and one pace."""
    assert domain == registrable_domain(host)


def test_users_of_a_shared_host_are_different_owners():
    """The private section counts: one user's slow site or crawl-delay must not hold up all others."""
    assert "a.github.io" == registrable_domain("www.a.github.io")
    assert registrable_domain("a.github.io") != registrable_domain("b.github.io")


@pytest.mark.parametrize("host", ["com", "co.uk", "github.io", "localhost", "intranet", "kobe.jp"])
def test_a_public_suffix_or_a_bare_name_is_its_own_domain(host):
    """Such hosts do answer (github.io redirects); without a domain they would have no owner."""
    assert host == registrable_domain(host)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("10.2.3.4", "10.2.3.4"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:102:304", "::ffff:102:304"),
    ],
)
def test_an_address_is_its_own_domain(host, domain):
    """An address has no labels: 10.2.3.4 and 9.8.3.4 share no owner."""
    assert domain == registrable_domain(host)


@pytest.mark.parametrize("host", ["a..b", ".com", "-", "a.b.c..", "1.2.3", "example.1", "x:y"])
def test_what_is_no_name_is_its_own_domain(host):
    """The URL Standard lets such hosts pass; they never resolve but must have a key."""
    assert registrable_domain(host)


@given(st.text(max_size=40))
def test_a_domain_is_its_own_domain(host):
    """The key derived from a key is the same key, and no text raises."""
    domain = registrable_domain(host)
    if "." in domain.strip(".") and ".." not in domain:
        assert domain == registrable_domain(domain)


def test_the_list_is_pinned_and_dated():
    """Link records name the list they were dealt by."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\.20\d{6}", PSL_VERSION)
