"""Checks of crawl definitions, before they are written: what could never match or mean anything is refused by field.

A definition that is on its topic already is never refused: `pipeline.frontier.scope` says what becomes of its rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.errors import ConfigurationError
from pipeline.web.patterns import nearest_glob, source_matcher

ACTIONS: Final = ("ALLOW", "DENY")
LIMITS: Final = (
    "max_pages", "max_pages_per_day", "max_bytes", "max_pages_per_domain", "max_pages_per_domain_per_day",
    "max_bytes_per_domain",
)  # fmt: skip
"""Budgets, at least 1 where they are set."""
MAX_RULES: Final = 1_000
MAX_PATTERN_BYTES: Final = 2_048
MAX_ID_BYTES: Final = 255


def check_definition(definition: Mapping[str, Any]) -> None:
    """Check a crawl's definition.

    Args:
        definition: a `Crawl` record; fields with a default may be missing.

    Raises:
        ConfigurationError: a line for each problem: the field, the value, the nearest right one if there is one.
    """
    problems = list(definition_problems(definition))
    if problems:
        raise ConfigurationError("\n".join(problems))


def definition_problems(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a crawl's definition, as `check_definition` tells it."""
    crawl = definition["crawl"]
    if not crawl or len(crawl.encode()) > MAX_ID_BYTES or "\0" in crawl:
        yield _problem("crawl", crawl, f"1 to {MAX_ID_BYTES} bytes, none of them zero")
    for field in LIMITS:
        value = definition.get(field)
        if value is not None and value < 1:
            yield _problem(field, value, "at least 1; leave it out for no limit")
    for field in ("max_depth", "delay_ms"):
        value = definition.get(field)
        if value is not None and value < 0:
            yield _problem(field, value, "at least 0; leave it out for the configured one")
    rules = definition.get("scope", ())
    if len(rules) > MAX_RULES:
        yield _problem("scope", f"{len(rules)} rules", f"at most {MAX_RULES}")
    for number, rule in enumerate(rules, 1):
        yield from rule_problems(rule, f"scope rule {number}")


def rule_problems(rule: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield what is wrong with a rule of a scope.

    Args:
        rule: with `action`, `pattern` and, for some sources only, `source`.
        where: what names the rule.
    """
    action, pattern, source = rule["action"], rule["pattern"], rule.get("source", "")
    if action not in ACTIONS:
        nearest = next((name for name in ACTIONS if name[:1] == str(action).upper()[:1]), " or ".join(ACTIONS))
        yield _problem(f"{where}, action", action, nearest)
    if not pattern or len(pattern.encode()) > MAX_PATTERN_BYTES:
        yield _problem(f"{where}, pattern", pattern[:64], f"a glob of 1 to {MAX_PATTERN_BYTES} bytes, such as *.pdf")
    elif (nearest := nearest_glob(pattern)) != pattern:
        yield _problem(f"{where}, pattern", pattern, f"{nearest}, since it is held against whole canonical URLs")
    if source:
        try:
            source_matcher(source)
        except ValueError as exc:
            yield _problem(f"{where}, source", source, f"words between dots, such as news.* or news.>: {exc}")


def _problem(field: str, value: object, right: str) -> str:
    return f"{field}: {value!r} is wrong; right is {right}"
