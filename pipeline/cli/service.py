"""What commands that run until a signal have in common: how they log, and how they end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import click

from pipeline.config import Worker
from pipeline.delivery.exits import ExitCode
from pipeline.errors import BrokerError, ConfigurationError, HeadraceError
from pipeline.process import outlive_output

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_as_configured(settings: Worker) -> None:
    """Log to standard error from the configured level on."""
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)


@contextlib.contextmanager
def service() -> Iterator[None]:
    """End the process with the status that tells whoever started it whether to start it again, and one plain message.

    See `pipeline.delivery.exits`; other commands end with 2 or 3, for people. A log that can't be written changes
    neither the work nor the status.
    """
    outlive_output()
    try:
        yield
    except HeadraceError as exc:
        click.echo(f"headrace: {exc}", err=True)
        raise SystemExit(int(_status(exc))) from exc


def _status(error: HeadraceError) -> ExitCode:
    if isinstance(error, ConfigurationError):
        return ExitCode.CONFIGURATION
    return ExitCode.BROKER if isinstance(error, BrokerError) else ExitCode.BUG
