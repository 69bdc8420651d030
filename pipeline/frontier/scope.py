"""Scope: which URLs belong to a crawl, as ordered rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from pipeline.frontier.refusals import Refusal

Matcher = Callable[[str], bool]

ONE_WORD: Final = "*"
REST: Final = ">"


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
        rules: mappings with `action` (ALLOW, DENY), `pattern`, a glob over the canonical URL, in which `*` stands
            for any run of characters and everything else for itself, and `source`, see `source_matcher`.

    Attributes:
        by_source: whether what is allowed depends on who found the URL.
    """

    def __init__(self, rules: Iterable[Mapping[str, str]]) -> None:
        self._said = list(rules)
        self._rules = [_compile(rule) for rule in self._said]
        self._otherwise = not any(rule.allow for rule in self._rules)
        self.by_source = any(rule.matches_source is not None for rule in self._rules)

    def allows(self, url: str, source: str = "") -> bool:
        """Return whether a canonical URL that a source found belongs to the crawl."""
        return self._decide(url, source)[0]

    def refusal(self, url: str, source: str = "") -> Refusal | None:
        """Return which rule keeps a canonical URL out, by its number from 1 on; None where it belongs to the crawl."""
        allowed, number = self._decide(url, source)
        if allowed:
            return None
        if number is None:
            return Refusal("scope", detail="no rule allows it")
        rule = self._said[number]
        of_source = f" for source {rule['source']}" if rule.get("source") else ""
        return Refusal("scope", detail=f"rule {number + 1}: {rule['action']} {rule['pattern']}{of_source}")

    def _decide(self, url: str, source: str) -> tuple[bool, int | None]:
        for number, (allow, matches, matches_source) in enumerate(self._rules):
            if matches(url) and (matches_source is None or matches_source(source)):
                return allow, number
        return self._otherwise, None


def source_matcher(pattern: str) -> Matcher:
    """Compile a pattern of source names, which are words between dots.

    Args:
        pattern: `*` stands for one word, `>` at the end for one or more, any other word for itself: `news.*` matches
            `news.reuters`, not `news` nor `news.reuters.markets`; `exchange.>` matches `exchange.nyse.halts`.

    Raises:
        ValueError: an empty word, `>` before the end, or a wildcard inside a word.
    """
    words = pattern.split(".")
    for at, word in enumerate(words):
        if not word:
            raise ValueError("a word is empty")
        if word == REST and at < len(words) - 1:
            raise ValueError("> stands at the end alone")
        if word not in {ONE_WORD, REST} and (ONE_WORD in word or REST in word):
            raise ValueError(f"{word!r} mixes a word and a wildcard")
    open_end = words[-1] == REST
    fixed = words[:-1] if open_end else words

    def matches(source: str) -> bool:
        found = source.split(".")
        if len(found) <= len(fixed) if open_end else len(found) != len(fixed):
            return False
        return all(word in {ONE_WORD, one} and one for word, one in zip(fixed, found, strict=False))

    return matches


def _compile(rule: Mapping[str, str]) -> _Rule:
    allow = rule["action"] == "ALLOW"
    source = rule.get("source", "")
    if not source:
        return _Rule(allow, _matcher(rule["pattern"]), None)
    try:
        matches_source = source_matcher(source)
    except ValueError:
        matches_source = _nothing if allow else _everything
    return _Rule(allow, _matcher(rule["pattern"]), matches_source)


def _nothing(_: str) -> bool:
    return False


def _everything(_: str) -> bool:
    return True


def _matcher(pattern: str) -> Matcher:
    """Compile a glob; linear in the URL, whatever the pattern (a regular expression would backtrack)."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern.__eq__
    *middle, last = rest

    def matches(url: str) -> bool:
        if not url.startswith(first):
            return False
        at = len(first)
        for part in middle:
            at = url.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return len(url) - len(last) >= at and url.endswith(last)

    return matches
