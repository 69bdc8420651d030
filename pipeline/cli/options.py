"""What commands have in common: the configuration file and JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

_LINE_ENDS: Final = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Line ends that JSON lets stand in strings."""

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Add `--config FILE`: a parameter `config_file`, None where the usual place is meant."""
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Configuration file; else HEADRACE_CONFIG, else headrace.toml where there is one.",
    )(command)


def json_option(command: Command) -> Command:
    """Add `--json`: a parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")(command)


def print_json(row: dict[str, Any]) -> None:
    """Print an object as one line, for whoever splits lines by Unicode's rules too.

    Where the output may lack a character, all but ASCII is escaped.
    """
    has_all = (sys.stdout.encoding or "").lower().startswith("utf")
    click.echo(json.dumps(row, ensure_ascii=not has_all).translate(_LINE_ENDS))
