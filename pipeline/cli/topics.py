"""`headrace topics`: compare the topics on the broker with the table, and mend them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, client_options, load
from pipeline.local.stack import with_local_addresses
from pipeline.ops import topics as ops
from pipeline.ops.changelog_records import forget as write_deletion
from pipeline.ops.changelog_records import read_record
from pipeline.ops.control import place_of
from pipeline.topics import CHANGELOGS, all_names


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


@topics.command()
@click.argument("place", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--yes", is_flag=True, help="Do it; without it the record is only shown.")
@config_option
def forget(place: str, yes: bool, config_file: Path | None) -> None:
    """Delete the row that one record of a changelog has written.

    For a record that is not Headrace's and stops a stage at its start, which names the place. What stood in the row
    before is lost with it.
    """
    settings = _settings(config_file)
    try:
        topic, partition, offset = place_of(
            place, {topic.name: topic for topic in CHANGELOGS.values()}, with_offset=True
        )
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="PLACE") from exc
    options = client_options(settings.broker)
    record = read_record(options, topic, partition, offset)
    held = "a deletion" if record.value_bytes is None else f"{record.value_bytes} bytes"
    click.echo(f"{place}: key {record.key!r}, {held}")
    if yes:
        write_deletion(options, record)
        click.echo("its row is deleted; start the stage's workers again")
    else:
        click.echo("nothing was changed; --yes deletes its row")


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
