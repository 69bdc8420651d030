"""`headrace topics`: compare the topics on the broker with the table, and mend them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, client_options, load
from pipeline.local.stack import with_local_addresses
from pipeline.ops import topics as ops
from pipeline.topics import all_names


@click.group()
def topics() -> None:
    """Compare the topics on the broker with what Headrace needs, and mend them."""


@topics.command()
@config_option
@json_option
def plan(config_file: Path | None, as_json: bool) -> None:
    """Say what `apply` would do; change nothing."""
    settings = _settings(config_file)
    _report(ops.plan(client_options(settings.broker), settings), "", as_json=as_json)


@topics.command()
@config_option
@json_option
def apply(config_file: Path | None, as_json: bool) -> None:
    """Create missing topics and set their configuration; refuse another partition count."""
    settings = _settings(config_file)
    _report(ops.apply(client_options(settings.broker), settings), "mended: ", as_json=as_json)


def _settings(config_file: Path | None) -> Settings:
    return with_local_addresses(load(config_file).settings)


def _report(differences: list[ops.Difference], prefix: str, *, as_json: bool) -> None:
    if as_json:
        for difference in differences:
            print_json(asdict(difference))
        return
    for difference in differences:
        click.echo(f"{prefix}{difference}")
    if not differences:
        click.echo(f"all {len(all_names())} topics are as they should be")
