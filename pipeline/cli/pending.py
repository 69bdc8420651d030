"""`headrace pending`: what each partition of a stage has left, decoded from the commit metadata."""

from __future__ import annotations

from pathlib import Path

import click
from confluent_kafka import Consumer, TopicPartition

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import client_options, load
from pipeline.delivery.offsets import decode
from pipeline.local.stack import with_local_addresses
from pipeline.ops.lag import LagReader
from pipeline.ops.topics import verify
from pipeline.topics import INPUTS, STAGES, group_id

SHOWN = 20
CALL_TIMEOUT_S = 5.0


@click.command()
@click.argument("stage", type=click.Choice(STAGES))
@json_option
@config_option
def pending(stage: str, as_json: bool, config_file: Path | None) -> None:
    """Show committed offsets of STAGE, what is finished beyond them and what is not."""
    settings = with_local_addresses(load(config_file).settings)
    topics = [topic.name for topic in INPUTS[stage]]
    verify(settings, topics)
    options = client_options(settings.broker)
    group = group_id(stage)
    consumer = Consumer({**options, "group.id": group, "enable.auto.commit": False})
    try:
        with LagReader(options) as reader:
            for lag in reader.read(group, topics, settings.topics.partitions):
                [answer] = consumer.committed([TopicPartition(lag.topic, lag.partition)], timeout=CALL_TIMEOUT_S)
                offset_map = decode(answer.metadata, max(0, answer.offset), lag.topic, lag.partition)
                row = {
                    **lag._asdict(),
                    "readable": offset_map.readable,
                    "started_up_to": offset_map.end,
                    "unfinished": list(offset_map.unfinished),
                }
                if as_json:
                    print_json(row)
                else:
                    unfinished = ", ".join(map(str, offset_map.unfinished[:SHOWN]))
                    more = " …" if len(offset_map.unfinished) > SHOWN else ""
                    click.echo(
                        f"{lag.topic}/{lag.partition}: committed {lag.committed}, end {lag.end}, lag {lag.lag}, "
                        f"finished ahead {lag.finished_ahead}, unfinished [{unfinished}{more}]"
                    )
    finally:
        consumer.close()
