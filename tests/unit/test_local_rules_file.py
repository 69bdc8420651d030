from __future__ import annotations

import pytest

from pipeline.errors import ConfigurationError
from pipeline.local.rules_file import read_rules


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
