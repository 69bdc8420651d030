"""Definitions of crawls in files, YAML or JSON: a crawl with its limits and rules, or the rules alone.

Rules are a list in order; each entry is `allow: GLOB` or `deny: GLOB`, with `source:` where it holds for some sources.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.errors import ConfigurationError, InputError
from pipeline.ops.crawl_definitions import LIMITS, check_definition, check_rule
from pipeline.web.url import canonicalize

FIELDS: Final = ("crawl", "start_urls", "max_depth", *LIMITS, "delay_s", "rules")
"""Of a crawl's file; only `crawl` is needed."""
_ACTIONS: Final = {"allow": "ALLOW", "deny": "DENY"}


def read_definition(path: Path, now: float) -> dict[str, Any]:
    """Read a crawl's file.

    Args:
        path: the file.
        now: seconds since the epoch, when the crawl is defined.

    Returns:
        A `Crawl` record.

    Raises:
        ConfigurationError: names the field or the rule, the value and the nearest right one.
    """
    said = _read(path)
    if not isinstance(said, dict) or not isinstance(said.get("crawl"), str):
        raise ConfigurationError(f"{path}: not a crawl: at least crawl: NAME is needed")
    for field in said:
        if field not in FIELDS:
            nearest = difflib.get_close_matches(str(field), FIELDS, 1) or FIELDS
            raise ConfigurationError(f"{path}: {field}: there is no such field; right is {', '.join(nearest)}")
    for field in ("max_depth", *LIMITS):
        if said.get(field) is not None and type(said[field]) is not int:
            raise ConfigurationError(f"{path}: {field}: {said[field]!r} is not a whole number")
    definition = {
        "crawl": said["crawl"],
        "start_urls": _start_urls(said, path),
        "scope": _rules(said.get("rules", []), path),
        "max_depth": said.get("max_depth"),
        **{name: said.get(name) for name in LIMITS},
        "delay_ms": _delay_ms(said, path),
        "created_at_ms": int(now * 1000),
    }
    try:
        check_definition(definition)
    except ConfigurationError as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc
    return definition


def read_rules(path: Path) -> list[dict[str, str]]:
    """Read a file of rules.

    Returns:
        `ScopeRule` records in the order of the file.

    Raises:
        ConfigurationError: names the rule by its number from 1 on, the field, the value and the nearest right one.
    """
    return _rules(_read(path), path)


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc


def _start_urls(said: Mapping[str, Any], path: Path) -> list[str]:
    urls = said.get("start_urls", [])
    if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise ConfigurationError(f"{path}: start_urls: not a list of URLs")
    try:
        return [canonicalize(url).href for url in urls]
    except InputError as exc:
        raise ConfigurationError(f"{path}: start_urls: {exc}") from exc


def _delay_ms(said: Mapping[str, Any], path: Path) -> int | None:
    delay_s = said.get("delay_s")
    if delay_s is None:
        return None
    if type(delay_s) not in {int, float} or not 0 <= delay_s <= 86_400:
        raise ConfigurationError(f"{path}: delay_s: {delay_s!r} is not a number of seconds up to a day")
    return int(delay_s * 1000)


def _rules(entries: Any, path: Path) -> list[dict[str, str]]:
    if not isinstance(entries, list):
        raise ConfigurationError(f"{path}: not a list of rules")
    return [_rule(entry, f"{path}: rule {number}") for number, entry in enumerate(entries, 1)]


def _rule(entry: Any, where: str) -> dict[str, str]:
    if not isinstance(entry, dict) or not all(isinstance(part, str) for pair in entry.items() for part in pair):
        raise ConfigurationError(f"{where}: not an entry such as deny: '*.pdf'")
    unknown = entry.keys() - {*_ACTIONS, "source"}
    actions = [name for name in _ACTIONS if name in entry]
    if unknown or len(actions) != 1:
        named = ", ".join(sorted(unknown)) or " and ".join(actions) or "neither"
        raise ConfigurationError(f"{where}: {named}; one of allow and deny, and source where it holds for some only")
    rule = {"action": _ACTIONS[actions[0]], "pattern": entry[actions[0]], "source": entry.get("source", "")}
    check_rule(rule, where)
    return rule
