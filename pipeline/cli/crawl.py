"""`headrace crawl`: one site, from its start points to the end."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import orjson
from rich.console import Console

from pipeline.cli.live import progress
from pipeline.cli.options import config_option
from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.fetch.guard import AddressGuard
from pipeline.local.crawl_plan import CrawlPlan, plan_crawl
from pipeline.local.crawl_run import CrawlRun, CrawlStatus
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.ops import topics
from pipeline.ops.definition_file import read_rules
from pipeline.topics import STAGES, all_names

LOOK_S = 1.5
INTERRUPTED = 130


@click.command()
@click.argument("urls", nargs=-1, required=True)
@click.option(
    "--depth", "max_depth", type=click.IntRange(0), help="Links followed from a start point; no limit by default."
)
@click.option("--max-pages", type=click.IntRange(1), help="Pages fetched in all; no limit by default.")
@click.option("--max-pages-per-day", type=click.IntRange(1), help="Pages fetched on a UTC day; the rest waits.")
@click.option("--max-bytes", type=click.IntRange(1), help="Body bytes fetched in all, as received.")
@click.option("--max-pages-per-domain", type=click.IntRange(1), help="Pages fetched of a registrable domain.")
@click.option("--max-pages-per-domain-per-day", type=click.IntRange(1), help="The same on a UTC day; the rest waits.")
@click.option("--max-bytes-per-domain", type=click.IntRange(1), help="Body bytes fetched of a registrable domain.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, help="For the files.")
@click.option(
    "--include",
    multiple=True,
    metavar="GLOB",
    help="URLs to follow, such as /blog/*; by default all on the start points' hosts, with and without www.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="URLs never to follow, such as *.pdf.")
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML or JSON: allow and deny rules in order, for some sources or all; the first that matches decides.",
)
@click.option("--delay", "delay_s", type=click.FloatRange(0), help="Seconds between requests to a domain.")
@click.option("--allow-address", multiple=True, metavar="CIDR[:PORT]", help="Private network the crawl may reach.")
@config_option
def crawl(
    urls: tuple[str, ...],
    max_depth: int | None,
    out: Path,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    rules_file: Path | None,
    delay_s: float | None,
    allow_address: tuple[str, ...],
    config_file: Path | None,
    **budgets: int | None,
) -> None:
    """Crawl URLS and write the documents as JSON lines below --out.

    Ends by itself when nothing is left. Ctrl-C stops it; the same command goes on where it stopped, without asking
    again for pages that are done. Runs on a local broker of its own unless broker.bootstrap is set.
    """
    loaded = load(config_file)
    plan = plan_crawl(
        urls, include=include, exclude=exclude, max_depth=max_depth, delay_s=delay_s, now=time.time(),
        rules=read_rules(rules_file) if rules_file else (), budgets=budgets,
    )  # fmt: skip
    if delay_s is not None and not math.isfinite(delay_s):
        raise click.BadParameter("not a number of seconds", param_hint="--delay")
    AddressGuard([*loaded.settings.fetch.allow_addresses, *allow_address])  # refused here, not by a worker later
    console = Console(stderr=True)
    directory = (loaded.settings.worker.data_dir / "crawls" / plan.definition["crawl"]).absolute()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _cluster(loaded.settings, directory, console) as (settings, check):
            environ = _environ(loaded.settings, plan, out.absolute(), list(allow_address), config_file)
            # Named after the crawl: on a shared broker the workers of others must not be replaced.
            fleet = Fleet(directory, environ, dict.fromkeys(STAGES, 1), name=plan.definition["crawl"])
            status = _follow(settings, plan, fleet, check, console)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        sys.exit(INTERRUPTED)
    documents = _documents(out, plan.definition["crawl"])
    console.print(
        f"{status.pages} pages fetched, URLs without a page: {status.failed}, "
        f"refused: {sum(status.refused.values())} {dict(status.refused)}"
    )
    console.print(f"{documents} documents in {out}; the crawl's state is in {directory}: remove it to begin anew")


def _documents(out: Path, crawl_id: str) -> int:
    """Count a crawl's documents; other crawls may write to the same place."""
    lines = (line for file in out.glob("documents-*.jsonl") for line in file.read_bytes().splitlines())
    return sum(1 for line in lines if orjson.loads(line)["crawl"] == crawl_id)


@contextlib.contextmanager
def _cluster(settings: Settings, directory: Path, console: Console) -> Iterator[tuple[Settings, Callable[[], None]]]:
    """Yield settings with a broker, and what raises when it has ended: the configured one, or the crawl's own."""
    if settings.broker.bootstrap:
        topics.verify(settings, [name for name, _ in all_names()])
        yield settings, lambda: None  # an outage of somebody else's broker is waited for
        return
    console.print(f"starting a broker in {directory}")
    with LocalStack(directory / "local", registry=False) as stack:
        local = with_addresses(settings, stack.addresses)
        topics.apply(client_options(local.broker), local)
        yield local, stack.check


def _environ(
    configured: Settings, plan: CrawlPlan, out: Path, allow_address: list[str], config_file: Path | None
) -> dict[str, str]:
    """Return what the workers need besides our own configuration; a local broker they find in their data directory."""
    allowed = [*configured.fetch.allow_addresses, *plan.allow_addresses, *allow_address]
    environ = {
        "HEADRACE_FETCH__ALLOW_ADDRESSES": str(allowed),
        "HEADRACE_STORE__DIRECTORY": str(out),
        "HEADRACE_STORE__SEGMENT_S": "1",
    }
    if config_file:
        environ["HEADRACE_CONFIG"] = str(config_file.absolute())
    elif "HEADRACE_CONFIG" in os.environ:
        environ["HEADRACE_CONFIG"] = str(Path(os.environ["HEADRACE_CONFIG"]).absolute())
    if plan.delay_s is not None:
        environ["HEADRACE_POLITENESS__DELAY_S"] = str(plan.delay_s)
    return environ


def _follow(
    settings: Settings, plan: CrawlPlan, fleet: Fleet, check: Callable[[], None], console: Console
) -> CrawlStatus:
    run = CrawlRun(settings, load_codec(settings.registry.lock), plan.definition)
    try:
        fleet.start()
        run.begin(plan.start_urls)
        console.print(f"crawl {plan.definition['crawl']}; Ctrl-C stops it, the same command goes on")
        with progress(console) as show:
            while True:
                check()
                fleet.look_after()
                status = run.status()
                show(
                    f"{status.pages} pages, {status.waiting - status.parked} waiting, {status.out} out, "
                    f"{status.seen} URLs known"
                )
                if status.ended and run.documents_left() == 0:
                    return status
                time.sleep(LOOK_S)
    finally:
        fleet.stop()
        run.close()
