"""`headrace dlq`: list, show, export, replay and purge dead letters."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.cli import dlq_rows as rows
from pipeline.cli.dlq_filters import LetterId, Selection, filter_options, selection
from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.errors import ConfigurationError, InputError
from pipeline.local.stack import with_local_addresses
from pipeline.ops.dead_letter_origins import Origins, Refusal
from pipeline.ops.dead_letter_reader import DeadLetterReader
from pipeline.ops.dead_letter_replay import GROUP, DeadLetterOffice, Outcome, delete_before
from pipeline.ops.dead_letters import Filters, Letter, State
from pipeline.ops.topics import verify
from pipeline.topics import DLQ_SUFFIX, TABLE, TASKS

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_USER = 2
ALL_TOPICS = tuple(topic.dlq for topic in TABLE if topic.dead_letters)


@click.group()
def dlq() -> None:
    """Dead letters: records that could not be handled, and why."""


@dlq.command(name="list")
@filter_options
@click.option("--all", "with_done", is_flag=True, help="Those that were replayed or purged, too.")
@json_option
@config_option
def list_letters(*, with_done: bool, as_json: bool, config_file: Path | None, **given: Any) -> None:
    """List open dead letters, a line each, and how many there are by reason and stage."""
    wanted = selection(given)
    counts: Counter[tuple[str, str, State]] = Counter()
    for letter in _letters(_settings(config_file, wanted.topics), wanted, with_done=with_done):
        if counts.total() < wanted.limit:
            print_json(rows.row(letter)) if as_json else click.echo(rows.line(letter))
        counts[letter.reason, letter.stage, letter.state] += 1
    _say_rest(counts.total(), wanted.limit)
    if not as_json:
        click.echo(f"{counts.total()} dead letters")
        for line in rows.summary(counts):
            click.echo(line)


@dlq.command()
@click.argument("letter_id", metavar="ID", type=LetterId())
@json_option
@config_option
def show(letter_id: str, *, as_json: bool, config_file: Path | None) -> None:
    """Show everything of the dead letter ID: its headers, and its value as far as the contract can decode it."""
    settings = _settings(config_file, ALL_TOPICS)
    wanted = Selection(ALL_TOPICS, Filters(ids=frozenset({letter_id})), 1)
    found = list(_letters(settings, wanted, with_done=True))
    if not found:
        raise ConfigurationError(f"there is no dead letter {letter_id}; `headrace dlq list --all` shows all there are")
    origins = Origins(load_codec(settings.registry.lock))
    for letter in found:
        try:
            decoded, fault = rows.readable(origins.decode(letter)), ""
        except InputError as exc:
            decoded, fault = None, str(exc)
        if as_json:
            print_json({**rows.row(letter), **rows.export_row(letter), "decoded": decoded, "fault": fault})
        else:
            _show(letter, decoded, fault)


@dlq.command()
@filter_options
@click.option("--all", "with_done", is_flag=True, help="Those that were replayed or purged, too.")
@click.option(
    "--to", "file", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="A new file."
)
@config_option
def export(*, with_done: bool, file: Path, config_file: Path | None, **given: Any) -> None:
    """Write dead letters to FILE, one JSON object a line, complete with keys, values and headers."""
    wanted = selection(given)
    settings = _settings(config_file, wanted.topics)
    count = 0
    try:
        with file.open("x", encoding="utf-8") as out:
            for letter in _letters(settings, wanted, with_done=with_done):
                count += 1
                if count <= wanted.limit:
                    out.write(json.dumps(rows.export_row(letter)) + "\n")
    except OSError as exc:
        raise ConfigurationError(f"--to {file}: {exc.strerror}") from exc
    click.echo(f"{min(count, wanted.limit)} dead letters written to {file}")
    _say_rest(count, wanted.limit)


def _acting(command: Command) -> Command:
    """Add what replay and purge have in common."""
    yes = click.option("--yes", is_flag=True, help="Do it; without, only say what would be done.")
    return filter_options(yes(json_option(config_option(command))))


@dlq.command()
@_acting
def replay(*, yes: bool, as_json: bool, config_file: Path | None, **given: Any) -> None:
    """Write dead letters back to where they belong. A dry run, unless --yes is given."""
    wanted = selection(given)
    homes = [name.removesuffix(DLQ_SUFFIX) for name in wanted.topics]
    settings = _settings(config_file, {*wanted.topics, *homes, TASKS.name})
    origins = Origins(load_codec(settings.registry.lock))
    teller = _Teller("replayed", wanted.filters, yes=yes, as_json=as_json)
    with _office(settings, wanted, yes=yes) as office:
        teller.sum_up(office.replay(wanted.filters, wanted.limit, origins.restore, teller.tell))
        if yes:
            office.settle()
    teller.end()


@dlq.command()
@_acting
@click.option(
    "--delete-records", is_flag=True, help="Delete the beginning of each partition in which all is done, too."
)
def purge(*, yes: bool, delete_records: bool, as_json: bool, config_file: Path | None, **given: Any) -> None:
    """Mark dead letters as done for good. A dry run, unless --yes is given."""
    wanted = selection(given)
    settings = _settings(config_file, wanted.topics)
    teller = _Teller("purged", wanted.filters, yes=yes, as_json=as_json)
    with _office(settings, wanted, yes=yes) as office:
        teller.sum_up(office.purge(wanted.filters, wanted.limit, teller.tell))
        if yes:
            done = office.settle()
            if delete_records:
                delete_before(client_options(settings.broker), done, settings.broker.wait_s)
                teller.say(f"what is done was deleted from the beginning of {len(done)} partitions")
    teller.end()


class _Teller:
    """Prints what is done with each letter, and what came of all."""

    def __init__(self, done: str, filters: Filters, *, yes: bool, as_json: bool) -> None:
        self._done = done
        self._named = filters.ids
        self._missing = set(filters.ids)
        self._refused_by_name = False
        self._yes = yes
        self._as_json = as_json

    def tell(self, letter: Letter, refusal: Refusal | None) -> None:
        self._missing.discard(letter.id)
        self._refused_by_name |= refusal is not None and letter.id in self._named
        if self._as_json:
            action = self._done if refusal is None else "refused"
            kind, why = refusal or (None, "")
            print_json({**rows.row(letter), "action": action, "dry_run": not self._yes, "refusal": kind, "why": why})
        elif refusal is not None:
            click.echo(f"refused: {refusal.kind}: {rows.printable(refusal.message)}: {rows.line(letter)}")
        else:
            click.echo(f"{self._done if self._yes else f'would be {self._done}'}: {rows.line(letter)}")

    def say(self, text: str) -> None:
        """Print something for people alone."""
        if not self._as_json:
            click.echo(text)

    def sum_up(self, outcome: Outcome) -> None:
        """Print the counts."""
        if self._as_json:
            print_json({"summary": vars(outcome), "action": self._done, "dry_run": not self._yes})
            return
        refused = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.refused.items()))
        counts = [
            f"{outcome.done} {self._done}" if self._yes else f"{outcome.done} would be {self._done}",
            f"{outcome.refused.total()} refused" + (f" ({refused})" if refused else ""),
            f"{outcome.left} beyond --limit",
            f"{outcome.done_before} done before",
        ]
        click.echo(", ".join(counts) + ("" if self._yes else "; nothing was written: --yes does it"))

    def end(self) -> None:
        """Fail where a letter that was named can't be had."""
        for letter_id in sorted(self._missing):
            click.echo(f"there is no dead letter {letter_id} that the other filters match", err=True)
        if self._missing or self._refused_by_name:
            sys.exit(EXIT_USER)


def _settings(config_file: Path | None, topics: Collection[str]) -> Settings:
    """Read the configuration and make sure of the topics."""
    settings = with_local_addresses(load(config_file).settings)
    verify(settings, topics)
    return settings


def _letters(settings: Settings, wanted: Selection, *, with_done: bool) -> Iterator[Letter]:
    with DeadLetterReader(client_options(settings.broker), wanted.topics) as reader:
        for part in reader.parts():
            for letter in reader.letters(part):
                if (with_done or letter.state is State.OPEN) and wanted.filters.match(letter):
                    yield letter


def _office(settings: Settings, wanted: Selection, *, yes: bool) -> DeadLetterOffice:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = str(os.getuid())
    homes = {topic.name for topic in TABLE if topic.dead_letters}
    return DeadLetterOffice(
        client_options(settings.broker),
        wanted.topics,
        by=f"{user}@{socket.gethostname()}",
        dry=not yes,
        transaction_timeout_s=settings.delivery.transaction_timeout_s,
        own_transactions=OwnTransactions(settings.broker, GROUP, homes | set(wanted.topics)),
    )


def _say_rest(count: int, limit: int) -> None:
    if count > limit:
        click.echo(f"{count - limit} more match: raise --limit, or narrow the filters", err=True)


def _show(letter: Letter, decoded: Any, fault: str) -> None:
    """Print everything for people."""
    for name, value in {**rows.row(letter), "origin": rows.place(letter)}.items():
        if value is not None and value != "":  # 0 is to be shown
            click.echo(f"{name:<12} {rows.printable(str(value))}")
    click.echo("headers")
    for name, header in letter.headers:
        click.echo(f"  {rows.printable(name)}: {rows.printable(header.decode(errors='backslashreplace'))}")
    if fault:
        click.echo(f"value        {rows.preview(letter.value)}")
        click.echo(f"can't be decoded: {rows.printable(fault)}")
    else:
        click.echo("value")
        for line in json.dumps(decoded, indent=2, ensure_ascii=False).split("\n"):
            click.echo(rows.printable(line))
