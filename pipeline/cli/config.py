"""`headrace config`: every value in effect and where it came from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
from pydantic import SecretStr

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Loaded, Section, Settings, load

HIDDEN = "(hidden)"
DEFAULT = "default"
# librdkafka options that hold a secret themselves; those that name a file holding one end in `.location`.
SECRET_OPTION = re.compile(r"(password|secret|token|jaas|\.key|\.pem)", re.IGNORECASE)
USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
ORIGIN_COLUMN = 48


@click.command()
@config_option
@json_option
def config(config_file: Path | None, as_json: bool) -> None:
    """Print the configuration in effect, each value with its origin. Secrets are hidden.

    The output is a valid configuration file; with --json it is one object a line: key, value, origin.
    """
    rows = effective(load(config_file))
    if as_json:
        for key, value, origin in rows:
            print_json({"key": key, "value": value, "origin": origin})
        return
    section = ""
    for dotted, value, origin in rows:
        head, _, key = dotted.partition(".")
        if head != section:
            click.echo(f"[{head}]" if not section else f"\n[{head}]")
            section = head
        row = f"# {key} =" if value is None else f"{key} = {_toml(value)}"
        click.echo(f"{row:<{ORIGIN_COLUMN}}  # {origin}")


def effective(loaded: Loaded) -> list[tuple[str, Any, str]]:
    """Return dotted key, value without secrets, and origin, in the order of the model.

    The origin is a file, the name of an environment variable, or `default`.
    """
    rows = []
    for section in Settings.model_fields:
        values = getattr(loaded.settings, section)
        for key in type(values).model_fields:
            dotted = f"{section}.{key}"
            rows.append((dotted, _shown(getattr(values, key)), loaded.origins.get(dotted, DEFAULT)))
    return rows


def _shown(value: Any) -> Any:
    """Turn a value into plain data, without what must not be seen."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Section):
        value = value.model_dump()
    if isinstance(value, str):
        return USER_IN_URL.sub(HIDDEN, value)
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(key) else _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value


def _is_secret(option: str) -> bool:
    return SECRET_OPTION.search(option) is not None and not option.endswith(".location")


def _toml(value: Any) -> str:
    """Write a value as TOML; strings, numbers, lists and truth values look as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)
