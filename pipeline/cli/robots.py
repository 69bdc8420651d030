"""`headrace robots`: what a robots.txt says about URLs."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import click

from pipeline.cli.options import json_option, print_json
from pipeline.web.robots import MAX_BYTES, RobotsRules


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--file", "file", type=click.File("rb"), required=True, help="The robots.txt; - reads standard input.")
@click.option("--agent", required=True, help="Product token, or a User-Agent header that begins with it.")
@json_option
def robots(urls: tuple[str, ...], file: BinaryIO, agent: str, as_json: bool) -> None:
    """Print for each URL whether the agent may ask for it, and the line that decides.

    A URL is taken as it is written, absolute or as a path with its query.
    """
    rules = RobotsRules.parse(file.read())
    if rules.truncated:
        click.echo(f"the file is longer than {MAX_BYTES} bytes; what stands after them is left out", err=True)
    for argument in urls:
        written = os.fsencode(argument).decode("utf-8", "replace")  # the output is UTF-8, an argument may not be
        row = describe(rules, agent, written)
        if as_json:
            print_json(row)
        else:
            word = "allowed" if row["allowed"] else "disallowed"
            reason = f"line {row['line']}: {_harmless(row['rule'])}" if row["line"] else "no rule"
            click.echo(f"{word:<10}  {written}  ({reason})")
    if not as_json:
        delay_s = rules.crawl_delay_s(agent)
        click.echo(f"crawl delay: {'none' if delay_s is None else f'{delay_s:g} s'}")
        for sitemap in rules.sitemaps:
            click.echo(f"sitemap: {_harmless(sitemap)}")


def describe(rules: RobotsRules, agent: str, written: str) -> dict[str, Any]:
    """Return the row of one URL."""
    allowed, line, rule = rules.verdict(agent, written)
    return {
        "url": written,
        "allowed": allowed,
        "line": line,
        "rule": rule,
        "crawl_delay_s": rules.crawl_delay_s(agent),
        "sitemaps": list(rules.sitemaps),
    }


def _harmless(text: str) -> str:
    """A site's text for a terminal, which would obey its control characters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
