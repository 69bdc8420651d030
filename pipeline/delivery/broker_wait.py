"""Waiting for the broker: a worker that dies while it is away adds its restart back-off to the outage."""

from __future__ import annotations

import logging
import socket
import time

from pipeline.errors import ConfigurationError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 1.0
PAUSE_S = 0.5
REMINDER_S = 10.0
MAX_PORT = 65_535


def answers(bootstrap: str) -> bool:
    """Whether any of `host:port,host:port` accepts a connection.

    Raises:
        ConfigurationError: one of them is not of that form.
    """
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        if not (host and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
            raise ConfigurationError(f"broker.bootstrap: {server.strip()!r} is not host:port")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
                return True
        except OSError:
            continue
    return False


def wait_for_broker(bootstrap: str) -> None:
    """Return once a server accepts connections; says so at once and every ten seconds while none does."""
    told_s = float("-inf")
    while not answers(bootstrap):
        if time.monotonic() - told_s >= REMINDER_S:
            told_s = time.monotonic()
            log.warning("no broker answers at %s: waiting for it", bootstrap)
        time.sleep(PAUSE_S)
