"""`headrace api`: tasks submitted over HTTP, and what became of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from pipeline.api import server
from pipeline.cli.options import config_option
from pipeline.cli.service import log_as_configured, service
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.delivery.broker_wait import wait_for_broker
from pipeline.local.stack import with_local_addresses
from pipeline.ops.explain import Explainer
from pipeline.ops.task_writer import TaskWriter
from pipeline.ops.topics import verify
from pipeline.topics import TASKS, TASKS_URGENT


@click.command()
@config_option
def api(config_file: Path | None) -> None:
    """Serve the HTTP API until a signal: submit, status, explain; its page is at /docs.

    Who may use it stands in the configuration, api.users; a token by reference alone.
    """
    with service():
        settings = with_local_addresses(load(config_file).settings)
        log_as_configured(settings.worker)
        options = client_options(settings.broker)
        wait_for_broker(options["bootstrap.servers"])
        verify(settings, [TASKS.name, TASKS_URGENT.name])
        codecs = load_codec(settings.registry.lock)
        name = f"headrace-api-{settings.worker.name}"
        writer = TaskWriter(options, codecs, name, settings.delivery.transaction_timeout_s)
        writer.open()  # ends now what a process before left open: readers wait for that
        explainer = Explainer(settings, codecs, read_s=0)  # a request does not wait for a changelog to be read
        asyncio.run(server.run(settings, writer, explainer))
