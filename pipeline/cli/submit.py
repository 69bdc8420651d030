"""`headrace submit`: tasks from the command line, from files and from standard input."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.frontier.policy import DEFAULT_CRAWL
from pipeline.local.stack import with_local_addresses
from pipeline.ops.task_writer import TaskWriter
from pipeline.ops.topics import verify
from pipeline.tasks.checking import Checker, Repeated, Right, Verdict, Wrong
from pipeline.tasks.formats import READERS
from pipeline.tasks.model import Limits
from pipeline.tasks.records import Defaults, Wish
from pipeline.tasks.sources import Source, is_file, open_file, words
from pipeline.topics import TASKS, TASKS_URGENT

ARGUMENTS = "argument"
"""In the place of a file's name, where the task stands on the command line."""
WRONG = 2
TASKS_PER_S = 10_000
"""A broker takes more; a transaction gets a second more for as many."""


class Tally:
    """Counts verdicts and tells those that are not a task more, as they come."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.wishes: list[Wish] = []
        self.rows = 0
        self.wrong = 0
        self.problems = 0
        self.repeated = 0

    def take(self, source: str, verdict: Verdict) -> None:
        """Count one."""
        self.rows += 1
        match verdict:
            case Right():
                self.wishes.append(verdict.wish)
            case Wrong():
                self.wrong += 1
                self._tell_problems(source, verdict)
            case Repeated():
                self.repeated += 1
                self._tell_repeated(source, verdict)

    def _tell_problems(self, source: str, wrong: Wrong) -> None:
        for problem in wrong.problems:
            self.problems += 1
            if self._as_json:
                row = {"file": source, "line": problem.line, "task": wrong.number, "field": problem.field}
                print_json({**row, "problem": problem.text, "nearest": problem.nearest or None})
            else:
                click.echo(f"{_place(source, problem.line)}: {problem}", err=True)

    def _tell_repeated(self, source: str, repeated: Repeated) -> None:
        file, line = repeated.first
        if self._as_json:
            row = {"file": source, "line": repeated.line, "task": repeated.number}
            print_json({**row, "same_as": {"file": file, "line": line}, "differs": not repeated.same})
        else:
            differs = "" if repeated.same else ", in other words: the first counts"
            place = _place(source, repeated.line)
            click.echo(f"{place}: the same task as {_place(file, line)}{differs}", err=True)


@click.command()
@click.argument("what", nargs=-1, metavar="[URL|FILE]...")
@click.option("--file", "file", metavar="FILE", help="One more file, whatever its name; - reads standard input.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(tuple(READERS)),
    help="Of all files; else by the ending of their names, and a list of URLs where it says nothing.",
)
@click.option(
    "--crawl",
    default=DEFAULT_CRAWL,
    show_default=True,
    help="Crawl of tasks that name none; they wait until it is defined.",
)
@click.option(
    "--priority",
    type=click.IntRange(1, 5),
    default=3,
    show_default=True,
    help="Of tasks that say nothing: 1 urgent to 5 bulk.",
)
@click.option("--skip-wrong", is_flag=True, help="Submit the tasks that are right although others are wrong.")
@click.option(
    "--withdraw",
    is_flag=True,
    help="Take these tasks back: what waits is not fetched, recurring work ends after what is under way.",
)
@click.option("--dry-run", is_flag=True, help="Only check; asks no broker.")
@json_option
@config_option
def submit(
    what: tuple[str, ...],
    file: str | None,
    format_name: str | None,
    crawl: str,
    priority: int,
    skip_wrong: bool,
    withdraw: bool,
    dry_run: bool,
    as_json: bool,
    config_file: Path | None,
) -> None:
    """Submit URLs, and tasks from files: YAML, JSON, JSON lines, CSV, or one URL a line; - is standard input.

    Every problem of every task is told with its line and field. When one is wrong nothing is submitted, and the status
    is 2. A task that stands there twice is submitted once.
    """
    settings = load(config_file).settings
    sources = _sources(what, file, format_name, settings.tasks.max_file_bytes)
    limits = Limits(settings.frontier.max_url_bytes, settings.tasks.min_interval_s)
    checker = Checker(limits, Defaults(crawl, "cli", priority, withdraw))
    tally = Tally(as_json=as_json)
    for source in sources:
        for verdict in checker.check(source.rows, source.unusable, source.name):
            tally.take(source.name, verdict)
    if not tally.rows:
        raise click.UsageError("there is no task: name a URL, or a file that holds some")
    refused = tally.wrong > 0 and not skip_wrong
    if tally.wishes and not (refused or dry_run):
        _write(with_local_addresses(settings), tally.wishes)
    done = "could be submitted" if dry_run else "withdrawn from" if withdraw else "submitted to"
    _summarize(tally, crawl, done, refused=refused, dry_run=dry_run, as_json=as_json)
    if refused:
        sys.exit(WRONG)


def _sources(what: Iterable[str], file: str | None, format_name: str | None, max_bytes: int) -> list[Source]:
    files = [word for word in what if is_file(word)]
    return [
        words(ARGUMENTS, [word for word in what if not is_file(word)]),
        *(open_file(name, format_name, max_bytes) for name in [*files, *([file] if file else [])]),
    ]


def _write(settings: Settings, wishes: Sequence[Wish]) -> None:
    verify(settings, [TASKS.name, TASKS_URGENT.name])
    timeout_s = settings.delivery.transaction_timeout_s + len(wishes) / TASKS_PER_S
    # Errors only: a coordinator that is still loading is no news for a person at a terminal.
    options = {**client_options(settings.broker), "log_level": "3"}
    # A name of its own: two people may submit at the same time.
    writer = TaskWriter(
        options,
        load_codec(settings.registry.lock),
        f"headrace-submit-{uuid.uuid4()}",
        timeout_s,
    )
    writer.write(wishes)


def _summarize(tally: Tally, crawl: str, done: str, *, refused: bool, dry_run: bool, as_json: bool) -> None:
    submitted = 0 if refused or dry_run else len(tally.wishes)
    if as_json:
        counts = {"rows": tally.rows, "wrong": tally.wrong, "problems": tally.problems, "repeated": tally.repeated}
        print_json({**counts, "right": len(tally.wishes), "submitted": submitted})
        return
    if tally.wrong:
        end = "nothing was submitted" if refused else "the others are right"
        click.echo(f"{tally.wrong} of {tally.rows} tasks are wrong ({tally.problems} problems); {end}", err=True)
    if refused:
        return
    if dry_run:
        click.echo(f"{len(tally.wishes)} tasks {done}")
    else:
        crawls = {wish.record["crawl"] for wish in tally.wishes} or {crawl}
        named = f"crawl {crawls.pop()}" if len(crawls) == 1 else f"{len(crawls)} crawls"
        click.echo(f"{submitted} tasks {done} {named}")


def _place(source: str, line: int) -> str:
    return f"{source} {line}" if source == ARGUMENTS else f"{source}:{line}"
