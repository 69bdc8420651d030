"""Scope: which URLs belong to a crawl, as ordered rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.frontier.refusals import Refusal
from pipeline.web.patterns import Matcher, glob_matcher, source_matcher


class _Rule(NamedTuple):
    allow: bool
    matches: Matcher
    matches_source: Matcher | None
    """None for a rule that holds for every source."""


class Scope:
    """Ordered allow and deny rules; the first that matches decides.

    Nothing matching means deny where any ALLOW rule exists, else allow. What this version does not understand denies,
    since what a newer definition may forbid is not fetched: an unknown action does so for what its rule matches, a
    source pattern of unknown form makes a DENY rule match every source and an ALLOW rule none.

    Args:
        rules: mappings with `action` (ALLOW, DENY), `pattern`, a glob over the canonical URL, and `source`, a
            pattern of source names; see `pipeline.web.patterns`.

    Attributes:
        by_source: whether what is allowed depends on who found the URL.
    """

    def __init__(self, rules: Iterable[Mapping[str, str]]) -> None:
        self._said = list(rules)
        self._rules = [_compile(rule) for rule in self._said]
        self._otherwise = not any(rule.allow for rule in self._rules)
        self.by_source = any(rule.matches_source is not None for rule in self._rules)

    def refusal(self, url: str, source: str = "") -> Refusal | None:
        """Return which rule keeps a canonical URL out, by its number from 1 on; None where it belongs to the crawl.

        Args:
            url: canonical.
            source: name of the source that found it.
        """
        for number, (allow, matches, matches_source) in enumerate(self._rules, 1):
            if matches(url) and (matches_source is None or matches_source(source)):
                return None if allow else self._refusal_by(number)
        return None if self._otherwise else Refusal("scope", detail="no rule allows it")

    def _refusal_by(self, number: int) -> Refusal:
        rule = self._said[number - 1]
        of_source = f" for source {rule['source']}" if rule.get("source") else ""
        return Refusal("scope", detail=f"rule {number}: {rule['action']} {rule['pattern']}{of_source}")


def _compile(rule: Mapping[str, str]) -> _Rule:
    allow = rule["action"] == "ALLOW"
    source = rule.get("source", "")
    if not source:
        return _Rule(allow, glob_matcher(rule["pattern"]), None)
    try:
        matches_source = source_matcher(source)
    except ValueError:
        matches_source = _nothing if allow else _everything
    return _Rule(allow, glob_matcher(rule["pattern"]), matches_source)


def _nothing(_: str) -> bool:
    return False


def _everything(_: str) -> bool:
    return True
