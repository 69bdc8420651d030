"""`headrace demo`: see it work, and break it."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from pipeline.cli.live import progress
from pipeline.cli.options import json_option
from pipeline.config import load
from pipeline.local.demo import Demo, DemoPlan, DemoResult, progress_view, result_table, worker_counts


@click.command()
@click.option("--hosts", type=click.IntRange(2, 2_000), default=25, show_default=True, help="Simulated domains.")
@click.option("--pages", type=click.IntRange(10, 10_000), default=40, show_default=True, help="Pages of each.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the simulated web.")
@click.option("--kills", type=click.IntRange(0), default=2, show_default=True, help="Workers killed on the way.")
@click.option("--workers", multiple=True, metavar="STAGE=N", help="Workers of a stage; 1 of each by default.")
@click.option("--limit", "limit_s", type=float, default=600.0, show_default=True, help="Seconds for the crawl.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where to work; a new one by default.")
@json_option
def demo(
    hosts: int,
    pages: int,
    seed: int,
    kills: int,
    workers: tuple[str, ...],
    limit_s: float,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Crawl a simulated web over a real Kafka, kill workers on the way, count every document.

    Exit status 0 only if no document is missing or doubled and no request was too close or disallowed.
    """
    try:
        counts = worker_counts(workers)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--workers") from exc
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if directory is None:
        parent = load().settings.worker.data_dir / "demo"
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent))
    console = Console(stderr=as_json)
    plan = DemoPlan(hosts, pages, seed, kills, counts, directory.absolute(), limit_s)
    try:
        with progress(console) as show:
            result = Demo(plan, lambda state: show(progress_view(state))).run()
    except KeyboardInterrupt:
        console.print("interrupted")
        sys.exit(130)
    if as_json:
        click.echo(json.dumps(_as_json(result)))
    else:
        console.print(result.report.table(), result_table(result))
        console.print(f"documents: {result.documents}\nlogs: {plan.directory / 'logs'}")
        if not result.ended:
            console.print(f"[bold red]the crawl did not end within {limit_s:.0f} s[/]")
    sys.exit(0 if result.ok else 1)


def _as_json(result: DemoResult) -> dict[str, object]:
    row = asdict(result)
    row["report"] = result.report.as_json()
    row["documents"] = str(result.documents)
    return {"ok": result.ok, **row}
