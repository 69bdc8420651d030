"""`headrace schemas`: check the contracts, register them, compare them with a registry, release new versions."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from pipeline.cli.options import config_option
from pipeline.config import Registry, load
from pipeline.contracts.golden import read_golden, write_missing_bodies
from pipeline.contracts.lock import BUILT_IN, Lock, differences, read_lock, with_new_ids, write_lock
from pipeline.contracts.registration import register_schemas, registry_differences
from pipeline.contracts.registry import SchemaRegistry
from pipeline.contracts.released import release as add_released
from pipeline.contracts.rules import check_contracts
from pipeline.contracts.schemas import DIRECTORY, read_schemas
from pipeline.errors import ConfigurationError
from pipeline.local.stack import with_local_addresses
from pipeline.topics import TABLE

EXIT_DIFFERENT = 1


@click.group()
def schemas() -> None:
    """The Avro contracts of all topics."""


@schemas.command()
@click.option(
    "--avro",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of schemas; the built-in one unless given.",
)
def check(avro: Path | None) -> None:
    """Check every rule of the contracts; no registry is needed.

    Released versions are unchanged, every version reads every other one's data (FULL_TRANSITIVE), golden records keep
    their values, enums can grow, everything has a doc, and the built-in lock has an id for each.
    """
    directory = avro or _directory()
    _refuse_broken_rules(directory, read_lock())
    versions = [schema for subject in read_schemas(directory).values() for schema in subject]
    click.echo(f"{len(versions)} schemas of {len({schema.subject for schema in versions})} subjects: all rules hold")


@schemas.command()
@click.option("--url", help="The registry; else registry.url, else that of the running local stack.")
@click.option("--lock", type=click.Path(dir_okay=False, path_type=Path), help="registry.lock unless given.")
@click.option(
    "--keep-writing",
    is_flag=True,
    help="New versions get ids, but producers write the version of the present lock: the first of two deployments.",
)
@config_option
def register(url: str | None, lock: Path | None, config_file: Path | None, *, keep_writing: bool) -> None:
    """Put all versions into a registry, FULL_TRANSITIVE, and write the lock of its ids.

    The lock belongs into the deployment: with it workers start and run while the registry is down.
    """
    settings = _registry_settings(config_file)
    path = lock or settings.lock
    if path is None:
        raise ConfigurationError("registry.lock is not set: name the file to write with --lock")
    _refuse_broken_rules(_directory(), read_lock())
    held = read_lock(path) if keep_writing else None
    in_order = [schema for subject in read_schemas(_directory()).values() for schema in subject]
    with SchemaRegistry(_registry_url(url, settings.url)) as registry:
        written = register_schemas(registry, in_order, held=held)
    _write_lock(path, written)
    click.echo(f"{len(in_order)} schemas are in {written.registry}; their ids are in {path}")


@schemas.command()
@click.option("--url", help="The registry; else registry.url, else that of the running local stack.")
@click.option(
    "--lock",
    type=click.Path(dir_okay=False, path_type=Path),
    help="registry.lock unless given; none: the built-in one.",
)
@config_option
@click.pass_context
def diff(context: click.Context, url: str | None, lock: Path | None, config_file: Path | None) -> None:
    """Tell what schemas, lock and registry disagree on, a line each; exit status 1 if there is anything.

    Without a registry only schemas and lock are compared.
    """
    settings = _registry_settings(config_file)
    contents = read_lock(lock or settings.lock)
    known = read_schemas(_directory())
    found = differences(contents, known)
    address = url or settings.url
    if address:
        with SchemaRegistry(address) as registry:
            found += registry_differences(registry, known, contents)
    for line in found:
        click.echo(line)
    if found:
        context.exit(EXIT_DIFFERENT)
    click.echo("schemas, lock and registry agree" if address else "schemas and lock agree")


@schemas.command()
def release() -> None:
    """Freeze new versions: for those who change the contracts, in a checkout.

    Writes the bytes of new golden records, gives new versions an id in the built-in lock and adds their hashes to the
    list of released ones. From then on `check` refuses any change of them.
    """
    if not DIRECTORY.is_symlink():
        raise ConfigurationError("schemas are released in a checkout of the repository, not in an installed package")
    directory = _directory()
    known = read_schemas(directory)
    lock = with_new_ids(read_lock(), known)
    encoded = [
        path
        for subject, versions in known.items()
        for path in write_missing_bodies(read_golden(directory / subject), versions)
    ]
    try:
        _refuse_broken_rules(directory, lock)
    except ConfigurationError:
        for path in encoded:
            path.unlink()  # the schema will change, and bytes that are there are never written again
        raise
    for path in encoded:
        click.echo(f"encoded {path}")
    _write_lock(BUILT_IN, lock)
    for name in add_released(directory, known):
        click.echo(f"released {name}")


def _registry_settings(config_file: Path | None) -> Registry:
    settings = load(config_file).settings
    return settings.registry if settings.registry.url else with_local_addresses(settings).registry


def _directory() -> Path:
    """The schemas by the path that a person knows them by: below the present directory where they are there."""
    directory = DIRECTORY.resolve()
    return directory.relative_to(Path.cwd()) if directory.is_relative_to(Path.cwd()) else directory


def _refuse_broken_rules(directory: Path, lock: Lock) -> None:
    findings = check_contracts(directory, lock, {topic.subject for topic in TABLE})
    if findings:
        raise ConfigurationError(_listed(f"{len(findings)} broken rules of the contracts:", findings))


def _listed(title: str, lines: Iterable[object]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _registry_url(given: str | None, configured: str | None) -> str:
    url = given or configured
    if url is None:
        raise ConfigurationError("registry.url is not set: name the registry with --url")
    return url


def _write_lock(path: Path, lock: Lock) -> None:
    try:
        write_lock(path, lock)
    except OSError as exc:
        raise ConfigurationError(f"{path}: {os.strerror(exc.errno or 0)}: the lock was not written") from exc
