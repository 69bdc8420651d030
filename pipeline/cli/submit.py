"""`headrace submit`: tasks from the command line or a file of URLs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from pipeline.cli.options import config_option
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.errors import InputError
from pipeline.frontier.policy import DEFAULT_CRAWL
from pipeline.local.stack import with_local_addresses
from pipeline.ops.submission import Submission
from pipeline.ops.topics import verify
from pipeline.topics import TASKS, TASKS_URGENT
from pipeline.web.url import canonicalize


@click.command()
@click.argument("urls", nargs=-1)
@click.option("--file", "file", type=click.File("r", encoding="utf-8"), help="One URL a line; - reads standard input.")
@click.option(
    "--crawl", default=DEFAULT_CRAWL, show_default=True, help="Crawl of the tasks; they wait until it is defined."
)
@click.option("--priority", type=click.IntRange(1, 5), default=3, show_default=True, help="1 urgent to 5 bulk.")
@config_option
def submit(
    urls: tuple[str, ...], file: click.utils.LazyFile | None, crawl: str, priority: int, config_file: Path | None
) -> None:
    """Submit URLS as tasks; all or, when one of them is unusable, none."""
    wished = [*urls, *(_read(file) if file else ())]
    if not wished:
        raise click.UsageError("name a URL, or a file of URLs by --file")
    errors = 0
    for number, url in enumerate(wished, 1):
        try:
            canonicalize(url)
        except InputError as exc:
            errors += 1
            click.echo(f"{number}: {url}: {exc}", err=True)
    if errors:
        click.echo(f"{errors} of {len(wished)} URLs can't be used; nothing was submitted", err=True)
        sys.exit(2)
    settings = with_local_addresses(load(config_file).settings)
    verify(settings, [TASKS.name, TASKS_URGENT.name])
    submission = Submission(client_options(settings.broker), load_codec(settings.registry.lock))
    count = submission.submit(wished, crawl, priority, time.time(), source="cli")
    submission.flush()
    click.echo(f"{count} tasks submitted to crawl {crawl}")


def _read(file: click.utils.LazyFile) -> list[str]:
    """Return the URLs of a file; blank lines and those that begin with # are none."""
    try:
        lines = [line.strip() for line in file]
    except UnicodeDecodeError as exc:
        raise InputError("invalid_task", f"{file.name}: not UTF-8: {exc.reason}") from exc
    return [line for line in lines if line and not line.startswith("#")]
