"""`headrace worker STAGE`: one worker process of a stage."""

from __future__ import annotations

import asyncio
import importlib
import logging
from pathlib import Path

import click
import uvloop

from pipeline.cli.options import config_option
from pipeline.cli.service import log_as_configured, service
from pipeline.config import Settings, client_options, load
from pipeline.local.stack import with_local_addresses
from pipeline.topics import INPUTS, STAGES, TABLE, all_names

log = logging.getLogger(__name__)


@click.command()
@click.argument("stage", type=click.Choice(STAGES))
@config_option
def worker(stage: str, config_file: Path | None) -> None:
    """Run one worker of STAGE until a signal; waits for the broker, refuses wrong topics.

    Exit status 78: starting it again won't help before the configuration is changed. 69, 70, 75: start it again.
    """
    with service():
        settings = with_local_addresses(load(config_file).settings)
        log_as_configured(settings.worker)
        _check_broker(stage, settings)
        # The policy must be set before faust is imported: `faust --loop uvloop` comes too late.
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        from pipeline.contracts.codec import load_codec  # noqa: PLC0415  # after the loop policy
        from pipeline.ops.control import ControlListener  # noqa: PLC0415  # after the loop policy
        from pipeline.ops.endpoint import serve  # noqa: PLC0415  # after the loop policy
        from pipeline.ops.worker_health import worker_health  # noqa: PLC0415  # after the loop policy

        agent = importlib.import_module(f"agents.{stage}")
        running = agent.build(settings)
        host = settings.worker.metrics_host
        port = serve(host, settings.worker.metrics_port, running.registry, worker_health(running))
        log.info("%s: metrics and health on http://%s:%d", running.name, host, port)
        ControlListener(
            running.options,
            load_codec(settings.registry.lock),
            stage=stage,
            name=running.name,
            runner=running.runner,
            questions=getattr(agent, "QUESTIONS", None),
        ).start()
        running.main()


def _check_broker(stage: str, settings: Settings) -> None:
    from pipeline.delivery.broker_wait import wait_for_broker  # noqa: PLC0415  # needs the configuration first
    from pipeline.ops.topics import verify  # noqa: PLC0415  # same

    wait_for_broker(client_options(settings.broker)["bootstrap.servers"])
    names = {t.name for t in TABLE} | {t.dlq for t in INPUTS[stage]}
    verify(settings, sorted(names & {name for name, _ in all_names()}))
