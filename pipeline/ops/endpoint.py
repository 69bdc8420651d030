"""HTTP endpoint of a process: `/metrics` for Prometheus, `/healthz` for the one who restarts it, `/status` for tools.

It is served from a thread of its own, so that it answers while the event loop is stuck, which is when it matters.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from pipeline.errors import ConfigurationError


class Health(NamedTuple):
    """What `/healthz` says: 200 or 503, and why."""

    ok: bool
    reason: str


def serve(
    host: str,
    port: int,
    registry: CollectorRegistry,
    health: Callable[[], Health],
    status: Callable[[], dict[str, Any]] | None = None,
) -> int:
    """Serve until the process ends.

    Args:
        host: address to listen on.
        port: 0 takes a free one.
        registry: what `/metrics` shows.
        health: asked for each `/healthz`.
        status: asked for each `/status`, answered as JSON; None where there is none.

    Returns:
        The port.

    Raises:
        ConfigurationError: the port is in use.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path == "/healthz":
                state = health()
                code = HTTPStatus.OK if state.ok else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(code, "application/json", json.dumps(state._asdict()).encode())
            elif path == "/status" and status is not None:
                self._answer(HTTPStatus.OK, "application/json", json.dumps(status()).encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics and /healthz are here\n")

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in the base class
            """Requests of a scraper are not news."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as exc:
        raise ConfigurationError(f"worker.metrics_port {port} on {host}: {exc.strerror}; name a free one") from exc
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])
