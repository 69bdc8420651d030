"""`headrace explain`: why a URL was or wasn't fetched, what a domain waits for."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipeline.cli.explanation import lines_of_domain, lines_of_url
from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import load
from pipeline.contracts.codec import load_codec
from pipeline.local.stack import with_local_addresses
from pipeline.ops.explain import ANSWER_S, READ_S, Explainer
from pipeline.ops.topics import verify
from pipeline.ops.url_letters import HOMES
from pipeline.topics import CONTROL, CONTROL_ANSWERS, CRAWLS, FRONTIER_STATE

EXIT_UNKNOWN = 1


@click.command()
@click.argument("subject", metavar="URL|DOMAIN")
@click.option("--crawl", help="In this crawl only; else in all that know the URL.")
@click.option("--no-workers", is_flag=True, help="Ask nobody; read the state from Kafka, which takes longer.")
@click.option(
    "--read-limit",
    "read_s",
    type=click.FloatRange(min=0),
    default=READ_S,
    show_default=True,
    help="Longest reading of the state, in seconds, where no worker answers; 0 reads nothing.",
)
@json_option
@config_option
def explain(
    subject: str, crawl: str | None, no_workers: bool, read_s: float, as_json: bool, config_file: Path | None
) -> None:
    """Say why a URL was or wasn't fetched, or what a DOMAIN waits for.

    The worker that owns it is asked; where none answers, the frontier's state is read as of its last commit.

    Exit status: 0 it is known, 1 it is not, 2 it is no URL, 3 the cluster did not answer.
    """
    is_url = "://" in subject
    if "/" in subject and not is_url:
        raise click.BadParameter(f"{subject!r} is no domain, and a URL has a scheme", param_hint="URL|DOMAIN")
    settings = with_local_addresses(load(config_file).settings)
    verify(
        settings,
        [topic.name for topic in (CONTROL, CONTROL_ANSWERS, CRAWLS, FRONTIER_STATE)]
        + [topic.dlq for topic in HOMES.values()],
    )
    explainer = Explainer(
        settings,
        load_codec(settings.registry.lock),
        answer_s=0 if no_workers else ANSWER_S,
        read_s=read_s,
        note=lambda text: click.echo(text, err=True),
    )
    told = explainer.url(subject, crawl) if is_url else explainer.domain(subject)
    if as_json:
        print_json(told)
    else:
        for line in lines_of_url(told) if is_url else lines_of_domain(told):
            click.echo(line)
    if not told["known"]:
        sys.exit(EXIT_UNKNOWN)
