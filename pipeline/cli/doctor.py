"""`headrace doctor`: what is wrong with the cluster, what it means, what to do; and the end of hanging transactions."""

from __future__ import annotations

import logging
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import load
from pipeline.delivery.open_transactions import Place
from pipeline.local.stack import with_local_addresses
from pipeline.ops.doctor import end_hanging, examine
from pipeline.ops.findings import Finding

EXIT_FINDINGS = 1


@click.command()
@click.option(
    "--abort",
    "places",
    metavar="TOPIC/PARTITION/START_OFFSET",
    multiple=True,
    help="End a hanging transaction; refused for one that is merely open.",
)
@json_option
@config_option
def doctor(places: tuple[str, ...], config_file: Path | None, *, as_json: bool) -> None:
    """Look at the whole cluster and change nothing, or end hanging transactions.

    Exit status 0: all is well. 1: something was found. 3: no broker answers.
    """
    logging.basicConfig(level=logging.ERROR)  # what the parts warn of is among the findings
    settings = with_local_addresses(load(config_file).settings)
    if places:
        for ended in end_hanging(settings, [Place.parse(text) for text in places]):
            if as_json:
                print_json({**ended.place._asdict(), "producer_id": ended.producer_id})
            else:
                click.echo(f"ended: {ended.place} of producer {ended.producer_id}")
        return
    findings = examine(settings)
    if as_json:
        for finding in findings:
            print_json(asdict(finding))
    elif findings:
        _say(findings)
    else:
        click.echo("all is well")
    if findings:
        raise SystemExit(EXIT_FINDINGS)


def _say(findings: list[Finding]) -> None:
    """Print a line for each, and what to do once for all that it is the same for."""
    for action, same in groupby(findings, key=lambda finding: finding.action):
        for finding in same:
            click.echo(f"{finding.kind}: {finding.place}: {finding.text}")
        click.echo(f"  {action}")
