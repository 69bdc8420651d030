"""`headrace url`: what the pipeline makes of a URL."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import load
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import RefusedUrl, canonicalize, url_key

STANDARD_INPUT = "-"


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--base", help="URL that relative ones are resolved against.")
@click.option("--partitions", type=click.IntRange(1), help="Partitions of a topic; else topics.partitions.")
@config_option
@json_option
def url(
    urls: tuple[str, ...], base: str | None, partitions: int | None, config_file: Path | None, as_json: bool
) -> None:
    """Print what the pipeline makes of each URL; - reads one a line from standard input.

    Canonical form, wire form, key, registrable domain and partition. A URL that is not fetched has `refused` and why;
    that is an answer, not an error.
    """
    settings = load(config_file).settings
    for written in _given(urls):
        row = describe(
            written,
            base=base,
            partitions=partitions or settings.topics.partitions,
            max_bytes=settings.frontier.max_url_bytes,
        )
        if as_json:
            print_json(row)
        else:
            click.echo(row.pop("input"))
            for name, value in row.items():
                if value is not None:
                    click.echo(f"  {name.replace('_', ' '):<18}  {value}")


def describe(written: str, *, base: str | None, partitions: int, max_bytes: int) -> dict[str, Any]:
    """Return the row of one URL; where it is refused, all but `input` and `refused` are None."""
    row: dict[str, Any] = dict.fromkeys(
        ("input", "canonical", "wire", "key", "registrable_domain", "partition", "refused")
    )
    row["input"] = _printable(written)
    try:
        canonical = canonicalize(written, base, max_bytes=max_bytes)
    except RefusedUrl as exc:
        row["refused"] = exc.refusal
        return row
    domain = registrable_domain(canonical.host)
    row["canonical"] = canonical.href
    row["wire"] = canonical.wire
    row["key"] = url_key(canonical.href).hex()
    row["registrable_domain"] = domain
    row["partition"] = partition_for(domain.encode(), partitions)
    return row


def _given(urls: Iterable[str]) -> Iterator[str]:
    for written in urls:
        if written != STANDARD_INPUT:
            yield written
            continue
        for line in click.get_binary_stream("stdin"):
            text = line.rstrip(b"\r\n").decode("utf-8", "replace")
            if text:
                yield text


def _printable(text: str) -> str:
    """Show bytes of the command line that are no UTF-8 as U+FFFD: the output is UTF-8."""
    return os.fsencode(text).decode("utf-8", "replace")
