"""Definitions of crawls in files, YAML or JSON: a crawl with its limits and rules, or the rules alone.

Rules are a list in order; each entry is `allow: GLOB` or `deny: GLOB`, with `source:` where it holds for some sources.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.errors import ConfigurationError, InputError
from pipeline.ops.crawl_definitions import LIMITS, MAX_RULES, definition_problems, rule_problems
from pipeline.web.url import canonicalize

FIELDS: Final = ("crawl", "start_urls", "max_depth", *LIMITS, "delay_s", "rules")
"""Of a crawl's file; only `crawl` is needed."""
DAY_S: Final = 86_400
MAX_DEPTH: Final = 2**31 - 1
MAX_LIMIT: Final = 2**63 - 1
"""Largest numbers that the contract's int and long take."""
_ACTIONS: Final = {"allow": "ALLOW", "deny": "DENY"}


def read_definition(path: Path, now: float) -> dict[str, Any]:
    """Read a crawl's file.

    Args:
        path: the file.
        now: seconds since the epoch, when the crawl is defined.

    Returns:
        A `Crawl` record.

    Raises:
        ConfigurationError: a line for each problem: the field or the rule, the value and the nearest right one.
    """
    said = _read(path)
    if not isinstance(said, dict) or not isinstance(said.get("crawl"), str):
        raise ConfigurationError(f"{path}: not a crawl: at least crawl: NAME is needed")
    problems = list(_unknown_fields(said))
    largest = {"max_depth": MAX_DEPTH, **dict.fromkeys(LIMITS, MAX_LIMIT)}
    numbers = {name: _whole_number(said.get(name), name, most, problems) for name, most in largest.items()}
    definition = {
        "crawl": said["crawl"],
        "start_urls": _start_urls(said, problems),
        "scope": _rules(said.get("rules", []), problems),
        **numbers,
        "delay_ms": _delay_ms(said, problems),
        "created_at_ms": int(now * 1000),
    }
    problems += definition_problems({**definition, "scope": ()})
    _raise(path, problems)
    return definition


def read_rules(path: Path) -> list[dict[str, str]]:
    """Read a file of rules.

    Returns:
        `ScopeRule` records in the order of the file.

    Raises:
        ConfigurationError: a line for each problem: the rule by its number from 1 on, the field, the value and the
            nearest right one.
    """
    problems: list[str] = []
    rules = _rules(_read(path), problems)
    _raise(path, problems)
    return rules


def _raise(path: Path, problems: Sequence[str]) -> None:
    if problems:
        raise ConfigurationError("\n".join(f"{path}: {problem}" for problem in problems))


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc


def _unknown_fields(said: Mapping[Any, Any]) -> Iterator[str]:
    for field in said:
        if field not in FIELDS:
            nearest = difflib.get_close_matches(str(field), FIELDS, 1) or FIELDS
            yield f"{field}: there is no such field; right is {', '.join(nearest)}"


def _whole_number(value: object, name: str, most: int, problems: list[str]) -> int | None:
    if value is None or (type(value) is int and abs(value) <= most):
        return value
    problems.append(f"{name}: {value!r} is not a whole number" + (f" up to {most}" if type(value) is int else ""))
    return None


def _start_urls(said: Mapping[str, Any], problems: list[str]) -> list[str]:
    urls = said.get("start_urls", [])
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        problems.append("start_urls: not a list of URLs")
        return []
    canonical = []
    for number, url in enumerate(urls, 1):
        try:
            canonical.append(canonicalize(url).href)
        except InputError as exc:
            problems.append(f"start_urls {number}: {exc}")
    return canonical


def _delay_ms(said: Mapping[str, Any], problems: list[str]) -> int | None:
    delay_s = said.get("delay_s")
    if delay_s is None:
        return None
    if type(delay_s) not in {int, float} or not 0 <= delay_s <= DAY_S:
        problems.append(f"delay_s: {delay_s!r} is not a number of seconds up to a day")
        return None
    return int(delay_s * 1000)


def _rules(entries: Any, problems: list[str]) -> list[dict[str, str]]:
    if not isinstance(entries, list):
        problems.append("not a list of rules")
        return []
    if len(entries) > MAX_RULES:
        problems.append(f"rules: {len(entries)} are too many; right is at most {MAX_RULES}")
    return [_rule(entry, f"rule {number}", problems) for number, entry in enumerate(entries[:MAX_RULES], 1)]


def _rule(entry: Any, where: str, problems: list[str]) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(part, str) for pair in entry.items() for part in pair):
        problems.append(f"{where}: not an entry such as deny: '*.pdf'")
        return {}
    unknown = entry.keys() - {*_ACTIONS, "source"}
    actions = [name for name in _ACTIONS if name in entry]
    if unknown or len(actions) != 1:
        named = ", ".join(sorted(unknown)) or " and ".join(actions) or "neither"
        problems.append(f"{where}: {named}; one of allow and deny, and source where it holds for some only")
        return {}
    rule = {"action": _ACTIONS[actions[0]], "pattern": entry[actions[0]], "source": entry.get("source", "")}
    problems += rule_problems(rule, where)
    return rule
