"""Limits told in a page: answers that refuse in words what 429 would refuse by number, found by rule.

A rule is data (`fetch.told_limits.NAME`): for which sources, URLs and statuses it holds, and what shows the refusal: a
header field, a text, or an RE2 expression in the first bytes of the page. RE2 takes time linear in the page, whatever
the expression and the page are; so do the globs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import re2

from pipeline.config import ToldLimit
from pipeline.errors import ConfigurationError
from pipeline.fetch.body import Limits
from pipeline.fetch.client import Response
from pipeline.web.encoding import decide, decode
from pipeline.web.patterns import Matcher, glob_matcher, nearest_glob, source_matcher

PATTERN_MEMORY_BYTES: Final = 1 << 20
MAX_RATIO: Final = 200.0
"""Decoded to received bytes of an error page; it is cut long before that matters."""


class _Rule(NamedTuple):
    name: str
    sources: Matcher | None
    urls: Matcher | None
    statuses: frozenset[int]
    headers: tuple[tuple[bytes, str], ...]
    contains: tuple[str, ...]
    pattern: Any
    within_bytes: int

    def concerns(self, status: int, url: str, source: str) -> bool:
        """Whether the rule holds for an answer, by all that is known without it."""
        return (
            status in self.statuses
            and (self.urls is None or self.urls(url))
            and (self.sources is None or self.sources(source))
        )

    @property
    def reads_body(self) -> bool:
        return bool(self.contains) or self.pattern is not None


class ToldLimits:
    """The rules, ready to be asked.

    Args:
        rules: by name.

    Raises:
        ConfigurationError: names the rule, the field, and what is wrong with it.
    """

    def __init__(self, rules: Mapping[str, ToldLimit]) -> None:
        self._rules = [_compiled(name, rule) for name, rule in rules.items()]
        self._statuses = frozenset(status for rule in self._rules for status in rule.statuses)

    def body_limits(self, status: int, url: str, source: str) -> Limits | None:
        """Return how much of the body of an answer must be read to judge it; None where nothing of it matters.

        Args:
            status: of the answer.
            url: canonical, that was asked for.
            source: name of the source that wished it; empty for none.
        """
        if status not in self._statuses:
            return None
        needed = [rule.within_bytes for rule in self._rules if rule.reads_body and rule.concerns(status, url, source)]
        return Limits(max(needed), max(needed), MAX_RATIO, cut=True) if needed else None

    def told(self, response: Response, url: str, source: str) -> str | None:
        """Return the name of the first rule that an answer meets; None where it meets none.

        Args:
            response: with as much of its body as `body_limits` said.
            url: canonical, that was asked for.
            source: name of the source that wished it; empty for none.
        """
        if response.status not in self._statuses:
            return None
        for rule in self._rules:
            if rule.concerns(response.status, url, source) and _meets(response, rule):
                return rule.name
        return None


def _meets(response: Response, rule: _Rule) -> bool:
    for name, text in rule.headers:
        if not any(text in value.decode("latin-1").lower() for value in response.values(name)):
            return False
    if not rule.reads_body:
        return True
    body = response.body.data
    page = decode(body[: rule.within_bytes], decide(body, response.content_type))[0]
    if rule.contains and not any(text in page.lower() for text in rule.contains):
        return False
    return rule.pattern is None or rule.pattern.search(page) is not None


def _compiled(name: str, rule: ToldLimit) -> _Rule:
    where = f"fetch.told_limits.{name}"
    try:
        sources = source_matcher(rule.sources) if rule.sources else None
    except ValueError as exc:
        raise ConfigurationError(f"{where}.sources: {rule.sources!r} is no pattern of source names: {exc}") from exc
    if rule.urls and (nearest := nearest_glob(rule.urls)) != rule.urls:
        raise ConfigurationError(f"{where}.urls: {rule.urls!r} matches no canonical URL; the nearest is {nearest!r}")
    pattern = None
    if rule.pattern:
        options = re2.Options()
        options.log_errors = False
        options.max_mem = PATTERN_MEMORY_BYTES
        try:
            pattern = re2.compile(rule.pattern, options)
        except re2.error as exc:
            said = exc.args[0].decode() if isinstance(exc.args[0], bytes) else str(exc)
            raise ConfigurationError(f"{where}.pattern: {rule.pattern!r} is no RE2 expression: {said}") from exc
    return _Rule(
        name,
        sources,
        glob_matcher(rule.urls) if rule.urls else None,
        frozenset(rule.statuses),
        tuple((field.lower().encode(), text.lower()) for field, text in rule.headers.items()),
        tuple(text.lower() for text in rule.contains),
        pattern,
        rule.within_bytes,
    )
