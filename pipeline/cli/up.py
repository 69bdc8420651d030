"""`headrace up`: the local stack, until Ctrl-C."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path

import click

from pipeline.cli.options import config_option
from pipeline.config import client_options, load
from pipeline.local.stack import Addresses, LocalStack, directory_of, with_addresses
from pipeline.ops import topics

LOOK_S = 1.0


@click.command()
@click.option("--registry/--no-registry", default=True, show_default=True, help="Start a schema registry too.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the broker; else that of the last start.")
@config_option
def up(registry: bool, port: int | None, config_file: Path | None) -> None:
    """Run a broker and a schema registry on this machine, with all topics, until Ctrl-C.

    Other commands with the same worker.data_dir find them by themselves; the lines on standard output are for
    everything else.
    """
    loaded = load(config_file)
    settings = loaded.settings
    logging.basicConfig(format="%(message)s")
    logging.getLogger("pipeline").setLevel(settings.worker.log_level.upper())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = directory_of(settings)
    try:
        click.echo(f"starting in {directory} …", err=True)
        with LocalStack(directory, registry=registry, port=port) as stack:
            local = with_addresses(settings, stack.addresses)
            topics.apply(client_options(local.broker), local)
            if stack.addresses.registry_url:
                # Loaded here: without a registry the contracts are not needed.
                from pipeline.contracts.registration import fill_local_registry  # noqa: PLC0415

                fill_local_registry(stack.addresses.registry_url)
            _say(stack.addresses)
            if settings.broker.bootstrap not in (None, stack.addresses.bootstrap):
                origin = loaded.origins.get("broker.bootstrap", "")
                click.echo(f"note: commands use {settings.broker.bootstrap} instead, named by {origin}", err=True)
            while True:
                stack.check()
                time.sleep(LOOK_S)
    except KeyboardInterrupt:
        click.echo("stopped", err=True)


def _say(addresses: Addresses) -> None:
    click.echo(f"HEADRACE_BROKER__BOOTSTRAP={addresses.bootstrap}")
    if addresses.registry_url:
        click.echo(f"HEADRACE_REGISTRY__URL={addresses.registry_url}")
    click.echo("running; Ctrl-C stops", err=True)
