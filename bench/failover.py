"""How long a partition stands still, by stage: `make bench-failover`.

Two workers of one stage of the pipeline on a local broker, a steady feed of simple inputs in every partition, and a
read_committed reader of what comes out. Measured is from the kill to the first record of a partition that was written
after it:
- restarted: kill -9, and a supervisor starts the same worker at once; it is a static member and keeps its partitions;
- without: kill -9, and nobody comes back: the other worker takes over when the session has run out;
- deploy: each worker in turn is asked to stop and started again; the longest pause of any partition.
The partitions of the other worker tell what the kill does to those it does not concern.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.arrivals import Arrivals
from bench.calibration import calibrate
from bench.latency import Site
from bench.machine import machine, sentence
from bench.pauses import GOALS_S, Pauses, StageRun
from bench.stage_feed import Feed, crawl_definition, recipes
from pipeline.config import Delivery, Settings, client_options, load
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.local.simulated_web import crawler_options
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.ops import topics
from pipeline.ops.submission import Submission
from pipeline.topics import STAGES

WORKERS = 2
RATE_PER_S = 50.0
KILLS = 3
WITHOUT = 1
DEPLOYS = 1
SEGMENT_S = 0.5
"""The store's usual 5 s between files would be all that is seen of it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done to each stage.

    Attributes:
        restarts: kills with a restart.
        without: kills without.
        deploys: of all workers, one by one.
        rate_per_s: inputs of each partition.
        delivery: environment of the workers.
        seed: of the moments of kills.
    """

    restarts: int
    without: int
    deploys: int
    rate_per_s: float
    delivery: dict[str, str]
    seed: int = 1


def measure(stages: Sequence[str], plan: Plan, directory: Path) -> Iterator[Pauses]:
    """Measure stages one after the other, alone, on one broker."""
    with Site() as site, LocalStack(directory / "local", registry=False) as stack:
        environ = {
            **crawler_options(site.port),
            **plan.delivery,
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": stack.addresses.bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": "0",
            "HEADRACE_STORE__DIRECTORY": str(directory / "documents"),
            "HEADRACE_STORE__SEGMENT_S": str(SEGMENT_S),
        }
        settings = with_addresses(load(environ=environ).settings, stack.addresses)
        topics.apply(client_options(settings.broker), settings)
        codecs = load_codec()
        _define_crawl(settings, codecs)
        cook = recipes(settings.topics.partitions, site.port)
        for stage in stages:
            partitions, bootstrap = settings.topics.partitions, stack.addresses.bootstrap
            fleet = Fleet(directory, environ, {stage: WORKERS})
            with ExitStack() as after:
                after.callback(fleet.stop)
                fleet.start()
                arrivals = after.enter_context(Arrivals(bootstrap, cook[stage].output.name, partitions))
                after.enter_context(Feed(bootstrap, cook[stage], codecs, partitions, plan.rate_per_s))
                run = StageRun(stage, settings, fleet.all, arrivals, plan.seed)
                if plan.restarts:
                    yield run.restart(plan.restarts)
                if plan.without:
                    yield run.leave(plan.without)
                if plan.deploys:
                    yield run.deploy(plan.deploys)


def _define_crawl(settings: Settings, codecs: Codecs) -> None:
    submission = Submission(client_options(settings.broker), codecs)
    submission.define(crawl_definition())
    submission.flush()


def table_of(rows: Sequence[Pauses]) -> Table:
    """Return the table for people, in seconds."""
    table = Table(title="pause of a partition, s", caption=f"goals: p99 of {GOALS_S}")
    for column in ("stage", "", "times", "partitions", "median", "p99", "longest", "longest of the others"):
        table.add_column(column, justify="left" if column in {"stage", ""} else "right")
    for row in rows:
        pauses = (f"{value:.2f}" for value in (row.pause.p50, row.pause.p99, row.pause.most))
        others = f"{row.others_s:.2f}" if row.others_s else ""
        table.add_row(row.stage, row.what, str(row.times), str(row.partitions), *pauses, others)
    return table


def main() -> None:
    """Print the table; the status says whether the goals were reached."""
    usual = Delivery()
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--stage", action="append", choices=STAGES, help="only this one; may be repeated")
    parser.add_argument("--kills", type=int, default=KILLS, help="of each stage, with a restart")
    parser.add_argument("--without", type=int, default=WITHOUT, help="kills of each stage without a restart")
    parser.add_argument("--deploys", type=int, default=DEPLOYS, help="of each stage")
    parser.add_argument("--session", type=float, default=usual.session_timeout_s, help="session timeout, seconds")
    parser.add_argument("--heartbeat", type=float, default=usual.heartbeat_s, help="seconds between heartbeats")
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help="inputs a second of each partition")
    parser.add_argument("--directory", type=Path, help="keep logs and files here")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    delivery = {
        "HEADRACE_DELIVERY__SESSION_TIMEOUT_S": str(options.session),
        "HEADRACE_DELIVERY__TRANSACTION_TIMEOUT_S": str(options.session),
        "HEADRACE_DELIVERY__HEARTBEAT_S": str(options.heartbeat),
    }
    plan = Plan(options.kills, options.without, options.deploys, options.rate, delivery)
    calibration, described = calibrate(), machine()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as temporary:
        rows = list(measure(options.stage or STAGES, plan, options.directory or Path(temporary)))
    given = (
        f"{WORKERS} workers, {Settings().topics.partitions} partitions, {options.rate:g} inputs/s in each, session "
        f"{options.session:g} s, heartbeat {options.heartbeat:g} s"
    )
    if options.json:
        found = {
            "machine": described, "calibration": asdict(calibration), "input": given,
            "pauses": [asdict(row) for row in rows],
        }  # fmt: skip
        print(json.dumps(found, ensure_ascii=False))
    else:
        console = Console()
        console.print(table_of(rows))
        console.print(f"{given}\n{sentence(described)}, calibration {calibration.best_s * 1000:.1f} ms")
    sys.exit(not all(row.good for row in rows))


if __name__ == "__main__":
    main()
