from __future__ import annotations

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.errors import ConfigurationError
from pipeline.ops.definition_file import read_definition, read_rules
from pipeline.topics import CRAWLS


@pytest.mark.parametrize(
    "text",
    [
        "- deny: '*.pdf'\n- allow: https://a.test/*\n  source: news.*\n",
        '[{"deny": "*.pdf"}, {"allow": "https://a.test/*", "source": "news.*"}]',
    ],
    ids=["yaml", "json"],
)
def test_rules_keep_the_order_of_their_file(tmp_path, text):
    """The first that matches decides."""
    file = tmp_path / "rules"
    file.write_text(text)
    assert [
        {"action": "DENY", "pattern": "*.pdf", "source": ""},
        {"action": "ALLOW", "pattern": "https://a.test/*", "source": "news.*"},
    ] == read_rules(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deny: '*'", "not a list of rules"),
        ("- deny: '*'\n- '*.pdf'", "rule 2: not an entry such as"),
        ("- deny: 7", "rule 1: not an entry such as"),
        ("- allow: '*'\n  deny: '*'", "rule 1: allow and deny; one of"),
        ("- source: news.*", "rule 1: neither; one of"),
        ("- deni: '*'", "rule 1: deni; one of"),
        ("- deny: /blog/*", r"rule 1, pattern: '/blog/\*' is wrong; right is \*/blog/\*"),
        ("- deny: '*'\n  source: news.>.x", "rule 1, source: 'news.>.x' is wrong"),
        ("- deny: [", "while parsing"),
    ],
)
def test_a_wrong_rule_is_refused_by_its_number(tmp_path, text, said):
    """Of a hundred rules a person wants to know which."""
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_rules(file)


CRAWL = """
crawl: exchanges
start_urls: [https://Exchange.example]
max_depth: 3
max_pages_per_domain_per_day: 5000
delay_s: 2.5
rules:
  - allow: https://*.exchange.example/*
    source: exchange.>
  - deny: "*"
"""


def test_a_crawl_is_read_as_its_contract_has_it(tmp_path):
    """What the file does not say is null: the configured limits hold."""
    file = tmp_path / "crawl.yaml"
    file.write_text(CRAWL)
    definition = read_definition(file, 1.5)
    codecs = load_codec()
    assert definition == codecs.decode(CRAWLS.subject, codecs.encode(CRAWLS.subject, definition))
    assert ["https://exchange.example/"] == definition["start_urls"]
    assert ("exchange.>", "") == tuple(rule["source"] for rule in definition["scope"])
    said = ("max_depth", "max_pages_per_domain_per_day", "delay_ms", "max_pages", "created_at_ms")
    assert [3, 5_000, 2_500, None, 1_500] == [definition[name] for name in said]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- crawl", "not a crawl"),
        ("max_pages: 7", "not a crawl: at least crawl: NAME"),
        ("crawl: ''", "crawl: '' is wrong"),
        ("{crawl: c, max_page: 7}", "max_page: there is no such field; right is max_pages"),
        ("{crawl: c, max_pages: many}", "max_pages: 'many' is not a whole number"),
        ("{crawl: c, max_pages: true}", "max_pages: True is not a whole number"),
        ("{crawl: c, max_pages: 0}", "max_pages: 0 is wrong; right is at least 1"),
        ("{crawl: c, delay_s: .nan}", "delay_s: nan is not a number of seconds"),
        ("{crawl: c, start_urls: x}", "start_urls: not a list"),
        ("{crawl: c, start_urls: [ftp://x/]}", "start_urls 1: url: 'ftp' is not http or https"),
        ("{crawl: c, rules: {}}", "not a list of rules"),
        ("{crawl: c, rules: [{deny: /x}]}", "rule 1, pattern"),
    ],
)
def test_a_wrong_definition_is_refused_by_field(tmp_path, text, said):
    """With the nearest right one where there is one."""
    file = tmp_path / "crawl.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_definition(file, 0.0)


def test_all_that_is_wrong_is_told_at_once(tmp_path):
    """Whoever mends a file of a hundred rules wants to do it once."""
    file = tmp_path / "crawl.yaml"
    file.write_text(
        "{crawl: '', max_page: 7, max_pages: many, delay_s: -1, start_urls: [ftp://x/, 'https://a.test/', ':'],"
        " max_bytes: 9999999999999999999, max_depth: -2, rules: [{deny: /x, source: a.>.b}, {deny: '*'}, 7]}"
    )
    with pytest.raises(ConfigurationError) as raised:
        read_definition(file, 0.0)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines)
    assert [
        "max_page", "max_pages", "max_bytes", "start_urls 1", "start_urls 3", "rule 1, pattern", "rule 1, source",
        "rule 3", "delay_s", "crawl", "max_depth",
    ] == [line.removeprefix(f"{file}: ").partition(":")[0] for line in lines]  # fmt: skip
