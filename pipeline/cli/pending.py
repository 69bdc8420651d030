"""`headrace pending`: what each partition of a stage has left, and orders to the worker that has it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.local.stack import with_local_addresses
from pipeline.ops.control import ControlClient, place_of
from pipeline.ops.lag import LagReader
from pipeline.ops.pending import Pending, combine, oldest_unfinished_ms
from pipeline.ops.topics import verify
from pipeline.topics import INPUTS, STAGES, group_id

SHOWN = 20
ANSWER_S = 3.0
ORDER_S = 8.0
NO_PLACE = ("", 0, 0)


@click.group(name="pending")
def pending() -> None:
    """Show what a stage has left: `headrace pending STAGE`; release what is stuck, resume what was stopped.

    STAGE shows per partition: the committed offset, the unfinished records, how many are finished ahead of it, the size
    of the offset map, and from the worker that owns it: since when and how often each record in hand is tried, and why
    the partition stands still. All but the latter needs no worker.
    """


def _show_command(stage: str) -> click.Command:
    @click.command(name=stage, help=f"Show what is pending in the {stage} stage.")
    @json_option
    @click.option("--no-workers", is_flag=True, help="Ask nobody: what the broker alone knows.")
    @config_option
    def show(as_json: bool, no_workers: bool, config_file: Path | None) -> None:
        settings = with_local_addresses(load(config_file).settings)
        for row in _read(settings, stage, ask=not no_workers):
            if as_json:
                print_json(_row(row))
            else:
                click.echo(_line(row))

    return show


for _stage in STAGES:
    pending.add_command(_show_command(_stage))


@pending.command()
@click.argument("stage", type=click.Choice(STAGES))
@click.argument("place", metavar="TOPIC/PARTITION/OFFSET")
@click.option("--give-up", is_flag=True, help="Make it a dead letter (`policy`) instead.")
@config_option
def release(stage: str, place: str, give_up: bool, config_file: Path | None) -> None:
    """Let the worker of STAGE that handles a record drop what it does and begin the record anew."""
    what = "was made a dead letter" if give_up else "was begun anew"
    _order("GIVE_UP" if give_up else "RELEASE", stage, _place(stage, place, with_offset=True), what, config_file)


@pending.command()
@click.argument("stage", type=click.Choice(STAGES))
@click.argument("place", metavar="TOPIC/PARTITION")
@config_option
def resume(stage: str, place: str, config_file: Path | None) -> None:
    """Let a partition of STAGE go on that its breaker has stopped."""
    _order("RESUME", stage, _place(stage, place, with_offset=False), "goes on", config_file)


def _place(stage: str, text: str, *, with_offset: bool) -> tuple[str, int, int]:
    try:
        return place_of(text, {topic.name: topic for topic in INPUTS[stage]}, with_offset=with_offset)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="PLACE") from exc


def _order(command: str, stage: str, place: tuple[str, int, int], what: str, config_file: Path | None) -> None:
    settings = with_local_addresses(load(config_file).settings)
    verify(settings, [topic.name for topic in INPUTS[stage]])
    client = ControlClient(client_options(settings.broker), load_codec(settings.registry.lock))
    name = "/".join(map(str, place if command != "RESUME" else place[:2]))
    answered = []
    for answer in client.ask(command, stage, place, ORDER_S):
        answered.append(answer["worker"])
        if answer["done"]:
            click.echo(f"{name} {what} by {answer['worker']}")
            return
    if not answered:
        raise BrokerError(f"no worker of the {stage} stage has answered within {ORDER_S:.0f} s: is one running?")
    why = "is not stopped" if command == "RESUME" else "is not in hand"
    raise ConfigurationError(f"{name} {why} in any worker that answered: {', '.join(sorted(answered))}")


def _read(settings: Settings, stage: str, *, ask: bool) -> list[Pending]:
    topics = [topic.name for topic in INPUTS[stage]]
    verify(settings, topics)
    options = client_options(settings.broker)
    answers: list[Any] = []
    if ask:
        client = ControlClient(options, load_codec(settings.registry.lock))
        left = len(topics) * settings.topics.partitions
        for answer in client.ask("PENDING", stage, NO_PLACE, ANSWER_S):
            answers.append(answer)
            left -= len(answer["partitions"])
            if left <= 0:
                break
    with LagReader(options) as reader:
        lags = reader.read(group_id(stage), topics, settings.topics.partitions)
    return combine(lags, answers, oldest_unfinished_ms(options, lags))


def _row(row: Pending) -> dict[str, Any]:
    lag, offset_map = row.lag, row.lag.offset_map
    now_ms = time.time() * 1000
    at_hand = row.at_hand or {"queued": None, "paused": None, "records": []}
    shown = {
        **lag._asdict(),
        "committed": lag.committed,
        "finished_ahead": lag.finished_ahead,
        "readable": offset_map is None or offset_map.readable,
        "started_up_to": offset_map and offset_map.end,
        "unfinished": list(offset_map.unfinished) if offset_map else [],
        "map_characters": row.map_characters,
        "oldest_age_s": None if row.oldest_ms is None else round((now_ms - row.oldest_ms) / 1000, 1),
        "owner": row.owner,
        "paused": at_hand["paused"],
        "queued": at_hand["queued"],
        "in_hand": [
            {
                "offset": record["offset"],
                "age_s": round((now_ms - record["since_ms"]) / 1000, 1),
                "attempts": record["attempts"],
            }
            for record in at_hand["records"]
        ],
    }
    del shown["offset_map"]
    return shown


def _line(pending_row: Pending) -> str:
    row = _row(pending_row)
    committed = "nothing committed" if row["committed"] is None else f"committed {row['committed']}"
    line = f"{row['topic']}/{row['partition']}: {committed}, end {row['end']}, lag {row['lag']}"
    if row["oldest_age_s"] is not None:
        line += f" (oldest {row['oldest_age_s']:.0f} s)"
    if not row["readable"]:
        line += ", unreadable offset map"
    if row["unfinished"]:
        listed = ", ".join(map(str, row["unfinished"][:SHOWN])) + (" …" if len(row["unfinished"]) > SHOWN else "")
        line += (
            f", finished ahead {row['finished_ahead']}, {len(row['unfinished'])} unfinished [{listed}], "
            f"map {row['map_characters']} characters"
        )
    if row["owner"]:
        line += f"; {row['owner']} has {row['queued']} queued"
        for one in row["in_hand"]:
            line += f", {one['offset']} in hand for {one['age_s']:.0f} s (try {one['attempts']})"
    return f"{line}; stands still: {row['paused']}" if row["paused"] else line
