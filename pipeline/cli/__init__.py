"""The `headrace` command: a table of commands, each loaded only when it is called."""

from __future__ import annotations

import difflib
import importlib
import io
import sys

import click

from pipeline.errors import BrokerError, ConfigurationError, HeadraceError, InputError

COMMANDS: dict[str, str] = {
    "api": "pipeline.cli.api:api",
    "config": "pipeline.cli.config:config",
    "crawl": "pipeline.cli.crawl:crawl",
    "define": "pipeline.cli.define:define",
    "demo": "pipeline.cli.demo:demo",
    "dlq": "pipeline.cli.dlq:dlq",
    "doctor": "pipeline.cli.doctor:doctor",
    "explain": "pipeline.cli.explain:explain",
    "fetch": "pipeline.cli.fetch:fetch",
    "monitor": "pipeline.cli.monitor:monitor",
    "parse": "pipeline.cli.parse:parse",
    "pending": "pipeline.cli.pending:pending",
    "robots": "pipeline.cli.robots:robots",
    "schemas": "pipeline.cli.schemas:schemas",
    "submit": "pipeline.cli.submit:submit",
    "top": "pipeline.cli.top:top",
    "topics": "pipeline.cli.topics:topics",
    "up": "pipeline.cli.up:up",
    "url": "pipeline.cli.url:url",
    "worker": "pipeline.cli.worker:worker",
}
EXIT_USER = 2
EXIT_BROKER = 3


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for: `headrace url` needs no Kafka client."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in order."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name; an unknown one ends with the nearest right name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1, cutoff=0.0)
            ctx.fail(f"no command {cmd_name!r}; the nearest is {near[0]!r}")
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{place} is not a command")
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headrace")
def cli() -> None:
    """Headrace: URLs in, documents out, every document once."""


def main() -> None:
    """Entry point: errors that name who must act are printed as one message, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what senders wrote is printed, on any terminal
    try:
        cli()
    except HeadraceError as exc:
        click.echo(f"headrace: {exc}", err=True)
        if isinstance(exc, (ConfigurationError, InputError)):
            sys.exit(EXIT_USER)
        sys.exit(EXIT_BROKER if isinstance(exc, BrokerError) else 1)
