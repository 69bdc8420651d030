"""`headrace top`: the domains with most to do, the lanes, rates and waits, again and again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.cli.live import progress
from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import load
from pipeline.contracts.codec import load_codec
from pipeline.local.stack import with_local_addresses
from pipeline.ops.top import Top
from pipeline.ops.topics import verify
from pipeline.topics import CONTROL, CONTROL_ANSWERS, FETCHES, LANES

COUNTED = 1_000
"""Where a worker ends its count of a lane of a domain."""
SECOND_MS = 1_000
UNITS = (("days", 86_400), ("h", 3_600), ("min", 60))
WIDE = 110
"""Columns that the whole table wants; the usual terminal has 80."""
NARROW_DOMAIN = 28
WIDE_COUNTS = ("urgent", "normal", "bulk", "out", "pages/min", "errors/min")
NARROW_COUNTS = ("waiting", "out", "pages/min")


@click.command()
@click.option("--domains", type=click.IntRange(1, 200), default=20, show_default=True, help="Rows.")
@click.option("--interval", type=click.FloatRange(0.5), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look twice, for the rates, and show the second look.")
@json_option
@config_option
def top(domains: int, interval: float, once: bool, as_json: bool, config_file: Path | None) -> None:
    """Show what is under way, until Ctrl-C: the domains with most to do, lags of the lanes, rates and waits.

    Frontier workers are asked, so it shows nothing of partitions that have none.
    """
    settings = with_local_addresses(load(config_file).settings)
    verify(settings, [topic.name for topic in (CONTROL, CONTROL_ANSWERS, FETCHES, *LANES.values())])
    with Top(settings, load_codec(settings.registry.lock), domains) as looking:
        looks = _looks(looking, interval, once=once)
        if as_json:
            for seen in looks:
                print_json(seen)
        elif once:
            console = Console()
            console.print(picture(next(looks), console.width))
        else:
            console = Console()
            with progress(console) as show:
                for seen in looks:
                    show(picture(seen, console.width))


def _looks(looking: Top, interval_s: float, *, once: bool) -> Iterator[dict[str, Any]]:
    """Yield one look after the other, until Ctrl-C; the first is only there for the rates."""
    looking.look()
    try:
        while True:
            time.sleep(interval_s)
            yield looking.look()
            if once:
                return
    except KeyboardInterrupt:
        return


def picture(seen: Mapping[str, Any], width: int) -> RenderableType:
    """Return a look as a table with its sums above it.

    Args:
        seen: from `Top.look`.
        width: of the terminal, columns: a narrow one shows the lanes as one, and neither errors nor whose pause it is.
    """
    sums, per_s, per_min = Counter(seen["totals"]), Counter(seen["per_s"] or {}), seen["per_min"]
    lanes = ", ".join(f"{lane} {lag}" for lane, lag in seen["lanes"].items())
    waiting = f"{sums['waiting']} waiting in {sums['domains']} domains, {sums['held']} of them held"
    found = f"{per_s['links_received']:.0f} link records/s, {per_s['seen']:.0f} new URLs/s"
    ended = f"{per_min['outcomes'] / 60:.1f} outcomes/s, {per_min['pages']:.0f} pages/min"
    done = f"{sums['done']} done, {sums['failed']} of them failed"
    lines = [
        f"{waiting}; {sums['out']} out; {done}; {sums['refused']} refused",
        f"lag of the lanes: {lanes}",
        f"{found}; {ended}, {per_min['errors']:.0f} errors/min",
    ]
    if seen["partitions_told"] < seen["partitions"]:
        missing = seen["partitions"] - seen["partitions_told"]
        lines.append(f"nobody answers for {missing} of {seen['partitions']} partitions")
    is_wide = width >= WIDE
    table = Table(box=None, pad_edge=False)
    table.add_column("domain", no_wrap=True, overflow="ellipsis", max_width=None if is_wide else NARROW_DOMAIN)
    for name in WIDE_COUNTS if is_wide else NARROW_COUNTS:
        table.add_column(name, justify="right")
    table.add_column("pause", no_wrap=True)
    table.add_column("waits for")
    cells = _wide_cells if is_wide else _narrow_cells
    for row in seen["domains"]:
        table.add_row(*(Text(cell) for cell in (row["domain"], *cells(row), _waits_for(row, seen["at_ms"]))))
    return Group(*(Text(line) for line in lines), Text(), table)


def _wide_cells(row: Mapping[str, Any]) -> list[str]:
    rates = [f"{row['per_min'][kind]:.0f}" for kind in ("pages", "errors")]
    return [*map(_count, row["waiting"].values()), str(row["out"]), *rates, f"{_pause(row)} ({row['made_by']})"]


def _narrow_cells(row: Mapping[str, Any]) -> list[str]:
    waiting = row["waiting"].values()
    counted = f"{sum(waiting)}+" if max(waiting) >= COUNTED else str(sum(waiting))
    return [counted, str(row["out"]), f"{row['per_min']['pages']:.0f}", _pause(row)]


def _count(count: int) -> str:
    return f"{count}+" if count >= COUNTED else str(count)


def _pause(row: Mapping[str, Any]) -> str:
    return f"{row['delay_ms'] / SECOND_MS:g} s"


def _waits_for(row: Mapping[str, Any], now_ms: int) -> str:
    until_ms, due_ms = row["until_ms"], row["due_ms"]
    if row["why"]:
        return row["why"] if until_ms is None else f"{row['why']}, {_left(until_ms - now_ms)} more"
    if due_ms is not None and due_ms > now_ms:
        return f"its time, in {_left(due_ms - now_ms)}"
    return "" if due_ms is None else f"its turn, for {_left(now_ms - due_ms)}"


def _left(time_ms: int) -> str:
    seconds = max(0, time_ms) / SECOND_MS
    return next(
        (f"{seconds / unit_s:.0f} {unit}" for unit, unit_s in UNITS if seconds >= 2 * unit_s), f"{seconds:.0f} s"
    )
