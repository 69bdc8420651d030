"""The process of the API: its parts put together, served until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Final

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry

from pipeline.api.acceptor import Acceptor, Writes
from pipeline.api.app import JSON, ApiApp, Explains
from pipeline.api.bucket import Buckets
from pipeline.api.idempotency import IdempotencyKeys
from pipeline.api.metrics import ApiMetrics
from pipeline.api.openapi import describe
from pipeline.api.page import page
from pipeline.api.paths import DOCS, OPENAPI
from pipeline.api.tokens import Tokens
from pipeline.config import Api, Settings
from pipeline.delivery.transactions import ReplacedError
from pipeline.errors import ConfigurationError
from pipeline.frontier.policy import DEFAULT_CRAWL
from pipeline.ops.endpoint import serve
from pipeline.tasks.model import Limits

log = logging.getLogger(__name__)

EXPLAIN_THREADS: Final = 4
"""Questions to the workers at once; more wait."""
KEEP_ALIVE_S: Final = 60.0


async def run(
    settings: Settings, writer: Writes, explains: Explains, listening: Callable[[int], None] | None = None
) -> None:
    """Serve the API until SIGTERM or SIGINT; requests that are under way are answered first.

    Args:
        settings: of the API, of tasks and of the process.
        writer: writes tasks.
        explains: knows what became of them.
        listening: told the port.

    Raises:
        ConfigurationError: no user, a token that is not there, or a port that is taken.
        ReplacedError: another process of the same `worker.name` has taken over.
    """
    api = settings.api
    if not api.users:
        raise ConfigurationError("api.users is empty: name somebody who may use the API, by a reference to a token")
    tokens = Tokens(api.users, os.environ)
    stopped = asyncio.Event()
    replaced: list[ReplacedError] = []
    loop = asyncio.get_running_loop()

    def taken_over(error: ReplacedError) -> None:
        replaced.append(error)
        loop.call_soon_threadsafe(stopped.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    registry = CollectorRegistry()
    acceptor = Acceptor(writer, taken_over, settings.delivery.stall_s)
    with ThreadPoolExecutor(EXPLAIN_THREADS, "explain") as threads:
        app = ApiApp(
            settings=api,
            limits=Limits(settings.frontier.max_url_bytes, settings.tasks.min_interval_s),
            crawl=DEFAULT_CRAWL,
            tokens=tokens,
            buckets=Buckets(api.classes, time.monotonic),
            keys=IdempotencyKeys(api.idempotency_bytes, api.idempotency_s, time.monotonic),
            acceptor=acceptor,
            explains=explains,
            threads=threads,
            metrics=ApiMetrics(registry),
            pages=_pages(api),
        )
        acceptor.start()
        runner = web.AppRunner(
            app.app,
            access_log=None,  # it would hold URLs, and with them what their query holds
            keepalive_timeout=KEEP_ALIVE_S,
            auto_decompress=False,
            shutdown_timeout=api.request_s,
        )
        await runner.setup()
        try:
            port = await _listen(runner, api)
            metrics = serve(settings.worker.metrics_host, settings.worker.metrics_port, registry, acceptor.health)
            log.info(
                "API on http://%s:%d, its page at %s; metrics and health on http://%s:%d",
                api.host, port, DOCS, settings.worker.metrics_host, metrics,
            )  # fmt: skip
            if listening is not None:
                listening(port)
            await stopped.wait()
        finally:
            await runner.cleanup()
            await asyncio.to_thread(acceptor.stop, api.request_s)
    if replaced:
        raise replaced[0]


async def _listen(runner: web.AppRunner, api: Api) -> int:
    try:
        await web.TCPSite(runner, api.host, api.port).start()
    except OSError as exc:
        raise ConfigurationError(f"api.port {api.port} on {api.host}: {exc.strerror}; name a free one") from exc
    return int(runner.addresses[0][1])


def _pages(api: Api) -> dict[str, tuple[str, bytes]]:
    document = describe(version("headrace"), api)
    return {
        OPENAPI: (JSON, orjson.dumps(document)),
        DOCS: ("text/html; charset=utf-8", page(document).encode()),
    }
