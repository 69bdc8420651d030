from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import publicsuffixlist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.domains import PSL_VERSION, registrable_domain
from pipeline.web.url import RefusedUrl, canonicalize

LIST = Path(publicsuffixlist.PSLFILE)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        # a rule of one label
        ("example.com", "example.com"),
        ("www.example.com", "example.com"),
        ("a.b.c.example.com", "example.com"),
        # of several rules that match, the longest prevails
        ("example.co.uk", "example.co.uk"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("a.b.other.uk", "other.uk"),
        ("www.city.tokyo.jp", "city.tokyo.jp"),
        # a wildcard takes one label, whatever it is
        ("a.ck", "a.ck"),
        ("b.a.ck", "b.a.ck"),
        ("c.b.a.ck", "b.a.ck"),
        ("shop.ward.kobe.jp", "shop.ward.kobe.jp"),
        ("www.shop.ward.kobe.jp", "shop.ward.kobe.jp"),
        # an exception prevails over its wildcard
        ("www.ck", "www.ck"),
        ("a.www.ck", "www.ck"),
        ("city.kobe.jp", "city.kobe.jp"),
        ("www.city.kobe.jp", "city.kobe.jp"),
        # no rule matches: the rule *
        ("example.test", "example.test"),
        ("a.b.example.test", "example.test"),
        ("db.intranet", "db.intranet"),
        # case, and the dot of the root
        ("WWW.Example.CO.UK", "example.co.uk"),
        ("www.example.com.", "example.com"),
        ("www.example.co.uk.", "example.co.uk"),
        # internationalised names, as a canonical URL has them
        ("www.xn--e1afmkfd.xn--p1ai", "xn--e1afmkfd.xn--p1ai"),
        ("a.b.xn--55qx5d.cn", "b.xn--55qx5d.cn"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("www.食狮.公司.cn", "食狮.公司.cn"),
        # labels that no registry gives out are labels
        ("a_b.example.com", "example.com"),
        ("_dmarc.example.co.uk", "example.co.uk"),
        ("-.example.com", "example.com"),
        ("x" * 64 + ".example.com", "example.com"),
        ("www." + "x" * 64 + ".com", "x" * 64 + ".com"),
    ],
)
def test_a_name_belongs_to_the_label_before_its_public_suffix(host, domain):
    """It is the record key: all hosts of one owner meet one partition and one pace."""
    assert domain == registrable_domain(host)


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.a.github.io", "a.github.io"),
        ("a.github.io", "a.github.io"),
        ("b.github.io", "b.github.io"),
        ("news.blogspot.com", "news.blogspot.com"),
        ("www.b.s3.amazonaws.com", "b.s3.amazonaws.com"),
        ("pages.github.com", "github.com"),
    ],
)
def test_users_of_a_shared_host_are_different_owners(host, domain):
    """The private section counts: one user's slow site or crawl-delay must not hold up all others."""
    assert domain == registrable_domain(host)


@pytest.mark.parametrize("host", ["com", "co.uk", "github.io", "localhost", "intranet", "kobe.jp", "ck", "a.ck"])
def test_a_public_suffix_or_a_bare_name_is_its_own_domain(host):
    """Such hosts do answer (github.io redirects); without a domain they would have no owner."""
    assert host == registrable_domain(host) == registrable_domain(f"{host}.")


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


@pytest.mark.parametrize("host", ["a..b", "a..example.com", ".com", ".example.com", "-", "x:y"])
def test_what_is_no_name_is_its_own_domain(host):
    """An empty label is no label: no rule matches it, and it never resolves. It must have a key all the same."""
    assert host == registrable_domain(host)


def test_dots_at_the_end_change_no_owner():
    """The URL Standard lets them pass; a page that writes them must not get a second pace for the same domain."""
    assert "example.com" == registrable_domain("www.example.com...")


@given(st.text(max_size=40))
def test_any_text_has_a_domain(host):
    """A host comes from the web; no text may stop a stage."""
    assert registrable_domain(host) == registrable_domain(host.lower())


@given(
    st.from_regex(
        r"([a-z0-9_-]{0,5}[.]){0,4}(com|uk|co\.uk|ck|kobe\.jp|github\.io|test|1|\[::1\])\.{0,2}", fullmatch=True
    )
)
def test_the_domain_of_a_domain_is_itself(host):
    """The key derived from a key is the same key, or a forwarded record would wander between partitions."""
    try:
        domain = registrable_domain(canonicalize(f"http://{host}/").host)
    except RefusedUrl:
        return
    assert domain == registrable_domain(domain)


# ---- against the published algorithm, over the whole list


@cache
def rules() -> dict[tuple[str, ...], bool]:
    """Labels of each rule, in punycode, to whether it is an exception."""
    found = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        rule = line.split(maxsplit=1)[0] if line.strip() else "//"
        if rule.startswith("//"):
            continue
        exception, name = rule.startswith("!"), rule.removeprefix("!")
        star, name = name.startswith("*."), name.removeprefix("*.")
        labels = canonicalize(f"http://{name}/").host.split(".")
        found[("*", *labels) if star else tuple(labels)] = exception
    return found


def published(host: str) -> str:
    """The registrable domain by the seven steps of publicsuffix.org; the host itself where there is none."""
    labels = tuple(host.split("."))
    matching = []
    for start in range(len(labels)):
        tail = labels[start:]
        matching += [rule for rule in (tail, ("*", *tail[1:])) if rule in rules()]
    prevailing = next((rule for rule in matching if rules()[rule]), None)
    size = len(prevailing) - 1 if prevailing else max(map(len, matching), default=1)
    return ".".join(labels[-size - 1 :])


def hosts_around(rule: tuple[str, ...]) -> Iterator[str]:
    """The rule's own host, those above it and those below."""
    labels = ["any", *rule[1:]] if rule[0] == "*" else list(rule)
    for below in ([], ["x"], ["y", "x"], ["z", "y", "x"]):
        yield ".".join([*below, *labels])
    for above in range(1, len(labels)):
        yield ".".join(labels[above:])
        yield ".".join(["q", *labels[above:]])


def test_every_rule_of_the_list_holds_as_published():
    """A rule that is read otherwise puts strangers under one pace, or gives one owner many."""
    wildcard_roots = {".".join(rule[1:]) for rule in rules() if rule[0] == "*"}
    different = {
        host
        for rule in rules()
        for host in hosts_around(rule)
        if registrable_domain.__wrapped__(host) != published(host)
    }
    # The one deviation, documented where the domain is made.
    assert different <= wildcard_roots
    assert different == {root for root in wildcard_roots if published(root) != root}
    assert {root: root for root in different} == {root: registrable_domain(root) for root in different}


def test_the_list_has_what_the_test_above_is_about():
    """An empty list would pass it."""
    assert len(rules()) > 9_000
    assert sum(rule[0] == "*" for rule in rules()) > 100
    assert sum(rules().values()) >= 5
    assert any(label.startswith("xn--") for rule in rules() for label in rule)
    assert not any("*" in rule[1:] for rule in rules())


def test_the_list_is_pinned_and_dated():
    """Link records name the list they were dealt by."""
    assert re.fullmatch(r"\d+\.\d+\.\d+\.20\d{6}", PSL_VERSION)
