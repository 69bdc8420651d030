"""`headrace define`: crawls for running workers, each from a file."""

from __future__ import annotations

import time
from pathlib import Path

import click

from pipeline.cli.options import config_option
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.errors import ConfigurationError
from pipeline.local.stack import with_local_addresses
from pipeline.ops.definition_file import read_definition
from pipeline.ops.submission import Submission
from pipeline.ops.topics import verify
from pipeline.topics import CRAWLS


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the files only.")
@config_option
def define(files: tuple[Path, ...], config_file: Path | None, *, dry_run: bool) -> None:
    """Define the crawls of FILES, YAML or JSON, each with its limits and rules.

    All files are right, or none is written. A crawl that is defined already gets the new definition: see docs/crawls.md
    for what becomes of its tasks.
    """
    definitions, problems = [], []
    for file in files:
        try:
            definitions.append(read_definition(file, time.time()))
        except ConfigurationError as exc:
            problems.append(str(exc))
    if problems:
        raise ConfigurationError("\n".join(problems))
    if not dry_run:
        settings = with_local_addresses(load(config_file).settings)
        verify(settings, [CRAWLS.name])
        submission = Submission(client_options(settings.broker), load_codec(settings.registry.lock))
        for definition in definitions:
            submission.define(definition)
        submission.flush()
    for definition in definitions:
        click.echo(f"{definition['crawl']}: {'right' if dry_run else 'defined'}, {len(definition['scope'])} rules")
