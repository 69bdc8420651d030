"""`headrace pending`: what each partition of a stage has left, decoded from the commit metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import client_options, load
from pipeline.local.stack import with_local_addresses
from pipeline.ops.lag import LagReader, PartitionLag
from pipeline.ops.topics import verify
from pipeline.topics import INPUTS, STAGES, group_id

SHOWN = 20


@click.command()
@click.argument("stage", type=click.Choice(STAGES))
@json_option
@config_option
def pending(stage: str, as_json: bool, config_file: Path | None) -> None:
    """Show committed offsets of STAGE, what is finished beyond them and what is not."""
    settings = with_local_addresses(load(config_file).settings)
    topics = [topic.name for topic in INPUTS[stage]]
    verify(settings, topics)
    with LagReader(client_options(settings.broker)) as reader:
        for lag in reader.read(group_id(stage), topics, settings.topics.partitions):
            if as_json:
                print_json(_row(lag))
            else:
                click.echo(_line(lag))


def _row(lag: PartitionLag) -> dict[str, Any]:
    row = {
        **lag._asdict(),
        "committed": lag.committed,
        "finished_ahead": lag.finished_ahead,
        "readable": lag.offset_map is None or lag.offset_map.readable,
        "started_up_to": lag.offset_map and lag.offset_map.end,
        "unfinished": list(lag.offset_map.unfinished) if lag.offset_map else [],
    }
    del row["offset_map"]
    return row


def _line(lag: PartitionLag) -> str:
    place = f"{lag.topic}/{lag.partition}"
    if lag.offset_map is None:
        return f"{place}: nothing committed, start {lag.start}, end {lag.end}, lag {lag.lag}"
    if not lag.offset_map.readable:
        return f"{place}: committed {lag.committed}, end {lag.end}, lag {lag.lag}, unreadable offset map"
    unfinished = ", ".join(map(str, lag.offset_map.unfinished[:SHOWN]))
    more = " …" if len(lag.offset_map.unfinished) > SHOWN else ""
    return (
        f"{place}: committed {lag.committed}, end {lag.end}, lag {lag.lag}, finished ahead {lag.finished_ahead}, "
        f"unfinished [{unfinished}{more}]"
    )
