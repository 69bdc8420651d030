"""`headrace monitor`: lag and progress from outside, as Prometheus series and JSON."""

from __future__ import annotations

import logging
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from pipeline.cli.options import config_option
from pipeline.cli.service import log_as_configured, service
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.delivery.broker_wait import wait_for_broker
from pipeline.local.stack import with_local_addresses
from pipeline.ops.endpoint import serve
from pipeline.ops.monitor import Monitor


@click.command()
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=2.0, help="Seconds between rounds.")
@config_option
def monitor(interval_s: float, config_file: Path | None) -> None:
    """Watch every group and crawl until a signal."""
    with service():
        settings = with_local_addresses(load(config_file).settings)
        log_as_configured(settings.worker)
        wait_for_broker(client_options(settings.broker)["bootstrap.servers"])
        watcher = Monitor(settings, load_codec(settings.registry.lock), interval_s)
        watcher.start()
        registry = CollectorRegistry()
        watcher.register(registry)
        host = settings.worker.metrics_host
        port = serve(host, settings.worker.metrics_port, registry, watcher.health, watcher.status)
        logging.getLogger(__name__).info("metrics, health and status on http://%s:%d", host, port)
        watcher.run()
