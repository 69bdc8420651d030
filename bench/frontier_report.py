"""What `bench.frontier` has measured, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from bench.calibration import Calibration
from bench.frontier_world import PAGE_LINKS

GOAL_RESIDENT_BYTES, GOAL_GROWTH, GOAL_PER_S = 1 << 30, 1.5, 20_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading in bulk took.

    Attributes:
        row_us: CPU of writing a row.
        restore_s: time on the clock to have all rows again from a changelog, reading it from the broker left out.
        resident_bytes: of the loading process, the most it had at any time.
    """

    row_us: float
    restore_s: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """What was measured with so many URLs. Microseconds are CPU of the process.

    Attributes:
        urls: that are known.
        domains: they are spread over.
        resident_bytes: of the worker's process, the most it had at any time.
        idle_bytes: the same before it opened a store.
        loading_bytes: the same of the process that loaded the URLs in bulk.
        disk_bytes: of all stores.
        load_us: of writing a row in bulk.
        restore_s: time on the clock to have all rows again from a changelog, reading it from the broker left out.
        open_s: time on the clock to open all partitions of a store that is there.
        mixed_us: a link of a page with 40 recent, 14 stored and 6 new ones.
        mixed_wall_us: the same on the clock.
        stored_us: a link of which nothing is known but on disk, any of all.
        new_us: a link that is new, claimed and queued.
        out_us: a task chosen and given out.
        outcome_us: its outcome.
    """

    urls: int
    domains: int
    resident_bytes: int
    idle_bytes: int
    loading_bytes: int
    disk_bytes: int
    load_us: float
    restore_s: float
    open_s: float
    mixed_us: float
    mixed_wall_us: float
    stored_us: float
    new_us: float
    out_us: float
    outcome_us: float

    @property
    def link_us(self) -> float:
        """A link of a page with its share of the page's own task, given out and ended."""
        return self.mixed_us + (self.out_us + self.outcome_us) / PAGE_LINKS

    @property
    def links_per_s(self) -> float:
        """Such links a second on one core."""
        return 1e6 / self.link_us


@dataclass(frozen=True, slots=True)
class Peer:
    """The set and the heap, with as many URLs: microseconds a link of the same pages, bytes in all."""

    urls: int
    mixed_us: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Domains:
    """What a new link and a task given out cost, in microseconds, with so many domains of so many waiting URLs each."""

    domains: int
    waiting_each: int
    new_us: float | None
    out_us: float


@dataclass(frozen=True, slots=True)
class Report:
    """All of it."""

    sizes: list[Size]
    peers: list[Peer]
    domains: list[Domains]
    calibration: Calibration

    @property
    def growth(self) -> float:
        """Cost of a link with the most URLs, in times that with the fewest; its page's task included."""
        return self.sizes[-1].link_us / self.sizes[0].link_us

    @property
    def reached(self) -> bool:
        """Whether the goals are reached at the largest size."""
        last = self.sizes[-1]
        bounded = last.resident_bytes <= GOAL_RESIDENT_BYTES
        return bounded and self.growth <= GOAL_GROWTH and last.links_per_s >= GOAL_PER_S


def tables_of(report: Report) -> Iterator[Table]:
    """Yield the tables for people."""
    yield _costs(report)
    yield _memory(report)
    yield _domains(report)


def _costs(report: Report) -> Table:
    columns = (
        "URLs", "domains", "link of a page", "stored", "new", "task out", "outcome", "link in all", "growth",
        "links/s a core", "set + heap", "times",
    )  # fmt: skip
    table = _table("CPU µs for each, of the whole process", columns, report)
    peers = {peer.urls: peer for peer in report.peers}
    for size in report.sizes:
        peer = peers.get(size.urls)
        table.add_row(
            f"{size.urls:,}",
            f"{size.domains:,}",
            *(f"{cost:.2f}" for cost in (size.mixed_us, size.stored_us, size.new_us, size.out_us, size.outcome_us)),
            f"{size.link_us:.2f}",
            f"{size.link_us / report.sizes[0].link_us:.2f}",
            f"{size.links_per_s:,.0f}",
            f"{peer.mixed_us:.2f}" if peer else "",
            f"{size.mixed_us / peer.mixed_us:.1f}" if peer else "",
        )
    return table


def _memory(report: Report) -> Table:
    columns = (
        "URLs", "resident MiB", "at the start", "loading", "bytes/URL", "disk MiB", "bytes/URL", "open s", "restore s",
        "set + heap MiB", "times",
    )  # fmt: skip
    table = _table("memory, disk, start", columns, report)
    peers = {peer.urls: peer for peer in report.peers}
    for size in report.sizes:
        peer = peers.get(size.urls)
        table.add_row(
            f"{size.urls:,}",
            f"{size.resident_bytes / MIB:,.0f}",
            f"{size.idle_bytes / MIB:,.0f}",
            f"{size.loading_bytes / MIB:,.0f}",
            f"{(size.resident_bytes - size.idle_bytes) / size.urls:,.1f}",
            f"{size.disk_bytes / MIB:,.0f}",
            f"{size.disk_bytes / size.urls:,.0f}",
            f"{size.open_s:.2f}",
            f"{size.restore_s:,.1f}",
            f"{peer.resident_bytes / MIB:,.0f}" if peer else "",
            f"{size.resident_bytes / peer.resident_bytes:.2f}" if peer else "",
        )
    return table


def _domains(report: Report) -> Table:
    columns = ("domains", "waiting in each", "a new link", "task out")
    table = _table("CPU µs by the number of domains and of what waits for them", columns, report)
    for row in report.domains:
        new = "" if row.new_us is None else f"{row.new_us:.2f}"
        table.add_row(f"{row.domains:,}", f"{row.waiting_each:,}", new, f"{row.out_us:.2f}")
    return table


def _table(title: str, columns: tuple[str, ...], report: Report) -> Table:
    table = Table(title=title, caption=f"calibration: {report.calibration.best_s * 1000:.1f} ms")
    for column in columns:
        table.add_column(column, justify="right")
    return table
