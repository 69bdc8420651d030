"""Rules of a scope in a file, YAML or JSON: a list in order, with entries such as `deny: "*.pdf"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.errors import ConfigurationError
from pipeline.ops.crawl_definitions import check_rule

_ACTIONS: Final = {"allow": "ALLOW", "deny": "DENY"}


def read_rules(path: Path) -> list[dict[str, str]]:
    """Read a file of rules.

    Returns:
        `ScopeRule` records in the order of the file.

    Raises:
        ConfigurationError: names the rule by its number from 1 on, the field, the value and the nearest right one.
    """
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc
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
