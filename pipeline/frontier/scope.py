"""Scope: which URLs belong to a crawl, as ordered rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Matcher = Callable[[str], bool]


class Scope:
    """Ordered allow and deny rules; the first that matches decides.

    Nothing matching means deny where any ALLOW rule exists, else allow. An action this version does not know denies:
    what a newer definition may forbid is not fetched.

    Args:
        rules: mappings with `action` (ALLOW, DENY) and `pattern`, a glob over the canonical URL, in which `*` stands
            for any run of characters and everything else for itself.
    """

    def __init__(self, rules: Iterable[Mapping[str, str]]) -> None:
        self._rules = [(rule["action"] == "ALLOW", _matcher(rule["pattern"])) for rule in rules]
        self._otherwise = not any(allow for allow, _ in self._rules)

    def allows(self, url: str) -> bool:
        """Return whether a canonical URL belongs to the crawl."""
        for allow, matches in self._rules:
            if matches(url):
                return allow
        return self._otherwise


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
