"""What a link costs the frontier when it knows few URLs and when it knows many: `make bench-frontier`.

For each size so many URLs are loaded in bulk into the six partitions of one worker, a tenth of them waiting, the others
done. Then a worker is started on them and gets link records of 60 URLs, as the runner hands them over: they are
decoded, looked up, claimed, queued, and after each round of 600 the changes are packed for the changelog and written.
Nothing is sent to a broker. Loading, measuring and the peer have processes of their own. CPU is that of the whole
process, the threads that write and compact the store's files included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench.calibration import calibrate
from bench.frontier_peer import SetAndHeap
from bench.frontier_report import Domains, Loaded, Peer, Report, Size, tables_of
from bench.frontier_world import (
    PAGE_LINKS,
    PARTITIONS,
    ROUND_RECORDS,
    WAITING_SHARE,
    FrontierWorker,
    Pages,
    Record,
    Web,
)
from bench.stopwatch import Stopwatch, disk_bytes, resident_bytes, settle
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.frontier.records import SEEN
from pipeline.state.contract_rows import ContractRows
from pipeline.state.view import changelog_key, from_changelog
from pipeline.topics import FRONTIER_STATE

SMALLEST, DEFAULT, LARGEST_FOR_PEER = 100_000, 10_000_000, 10_000_000
MOST_SITES, PAGES_PER_SITE = 100_000, 100
WARM_RECORDS, MIXED_RECORDS, OTHER_RECORDS = 1_200, 9_000, 600
TASKS = 20_000
DOMAIN_COUNTS = (10, 1_000, 100_000)
DOMAIN_LINKS = 100_000
DEEP_SHARE = 10
"""The deep domain has one of so many URLs of the largest size."""

_Result = TypeVar("_Result")


def load_size(urls: int, directory: Path) -> Loaded:
    """Load so many URLs."""
    sites = _sites(urls)
    worker = FrontierWorker(directory)
    spent = worker.load(Web(sites), urls // sites)
    settle()
    worker.close()
    rows = urls + urls // WAITING_SHARE
    return Loaded(spent.of(rows), spent.wall_s + rows * _unwrap_s(worker.codecs), _most_resident_bytes())


def measure_size(urls: int, loaded: Loaded, directory: Path) -> Size:
    """Measure with so many URLs, which were loaded before."""
    sites = _sites(urls)
    web, stored = Web(sites), urls // sites
    idle_bytes = resident_bytes()
    watch = Stopwatch()
    worker = FrontierWorker(directory)
    opened = watch.spent()
    pages = _pages(web, stored, worker.codecs)
    worker.handle(_records(pages, WARM_RECORDS))
    settle()  # a start leaves small files, which are merged at once
    mixed = [worker.handle(_records(pages, ROUND_RECORDS)) for _ in range(MIXED_RECORDS // ROUND_RECORDS)]
    cold = worker.handle(_records(pages, OTHER_RECORDS, recent=0, stored=PAGE_LINKS))
    new = worker.handle(_records(pages, OTHER_RECORDS, recent=0, stored=0))
    out, outcomes = worker.give_out(TASKS // PARTITIONS)
    outcome = worker.handle(outcomes)
    size = Size(
        urls=urls,
        domains=sites,
        resident_bytes=_most_resident_bytes(),
        idle_bytes=idle_bytes,
        loading_bytes=loaded.resident_bytes,
        disk_bytes=disk_bytes(directory),
        load_us=loaded.row_us,
        restore_s=loaded.restore_s,
        open_s=opened.wall_s,
        mixed_us=sum(spent.cpu_s for spent in mixed) / (MIXED_RECORDS * PAGE_LINKS) * 1e6,
        mixed_wall_us=sum(spent.wall_s for spent in mixed) / (MIXED_RECORDS * PAGE_LINKS) * 1e6,
        stored_us=cold.of(OTHER_RECORDS * PAGE_LINKS),
        new_us=new.of(OTHER_RECORDS * PAGE_LINKS),
        out_us=out.of(len(outcomes)),
        outcome_us=outcome.of(len(outcomes)),
    )
    worker.close()
    return size


def measure_peer(urls: int) -> Peer:
    """Measure the set and the heap with so many URLs."""
    sites = _sites(urls)
    web, stored = Web(sites), urls // sites
    peer = SetAndHeap()
    peer.load(web, stored)
    pages = _pages(web, stored, load_codec())
    peer.handle(_records(pages, WARM_RECORDS))
    mixed = peer.handle(_records(pages, MIXED_RECORDS))
    return Peer(urls, mixed.of(MIXED_RECORDS * PAGE_LINKS), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measure_domains(count: int, directory: Path) -> Domains:
    """Measure with new links of so many domains in turn, after each has had its first ones."""
    web = Web(count)
    worker = FrontierWorker(directory)
    pages = _pages(web, 0, worker.codecs)
    worker.handle(_records(pages, max(count, WARM_RECORDS), recent=0, stored=0, links=1))
    new = worker.handle(_records(pages, DOMAIN_LINKS, recent=0, stored=0, links=1))
    out, outcomes = worker.give_out(TASKS // PARTITIONS)
    worker.close()
    return Domains(count, 1 + DOMAIN_LINKS // count, new.of(DOMAIN_LINKS), out.of(len(outcomes)))


def measure_depth(domains: int, waiting_each: int, directory: Path) -> Domains:
    """Measure tasks given out where so many URLs wait for each domain."""
    worker = FrontierWorker(directory)
    worker.load(Web(domains), waiting_each, waiting_share=1)
    settle()
    out, outcomes = worker.give_out(TASKS if domains == 1 else TASKS // PARTITIONS)
    worker.close()
    return Domains(domains, waiting_each, None, out.of(len(outcomes)))


def _sites(urls: int) -> int:
    return max(SMALLEST // PAGES_PER_SITE, min(MOST_SITES, urls // PAGES_PER_SITE))


def _most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _pages(web: Web, stored: int, codecs: Codecs) -> list[Pages]:
    return [Pages(web, number, stored, codecs) for number in range(PARTITIONS) if web.of_partition[number]]


def _records(pages: list[Pages], count: int, **links: int) -> list[Record]:
    return [pages[number % len(pages)].record(**links) for number in range(count)]


def _unwrap_s(codecs: Codecs, rows: int = 100_000) -> float:
    """Return CPU seconds to unpack a record of the changelog."""
    codec = ContractRows(codecs.encoder(FRONTIER_STATE.subject), codecs.decoder(FRONTIER_STATE.subject))
    key, value = changelog_key(SEEN, bytes(24)), codec.wrap(bytes(24))
    watch = Stopwatch()
    for _ in range(rows):
        from_changelog(key)
        codec.unwrap(value)
    return watch.spent().cpu_s / rows


def _apart(measure: Callable[..., _Result], *arguments: object) -> _Result:
    """Measure in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def measure(urls: int, directory: Path, say: Callable[[str], None]) -> Report:
    """Measure everything up to so many URLs."""
    calibration = calibrate()
    sizes, peers, domains = [], [], []
    count = SMALLEST
    while count <= urls:
        say(f"{count:,} URLs")
        with _place(directory) as place:
            sizes.append(_apart(measure_size, count, _apart(load_size, count, place), place))
        if count <= LARGEST_FOR_PEER:
            peers.append(_apart(measure_peer, count))
        count *= 10
    for number in DOMAIN_COUNTS:
        say(f"{number:,} domains")
        with _place(directory) as place:
            domains.append(_apart(measure_domains, number, place))
    for number, waiting_each in ((MOST_SITES, 10), (1, urls // DEEP_SHARE)):
        say(f"{waiting_each:,} waiting URLs in each of {number:,} domains")
        with _place(directory) as place:
            domains.append(_apart(measure_depth, number, waiting_each, place))
    return Report(sizes, peers, domains, calibration)


@contextmanager
def _place(directory: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=directory) as place:
        yield Path(place)


def main() -> None:
    """Print the tables; the status says whether the goals were reached."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontier", description=__doc__)
    parser.add_argument("--urls", type=int, default=DEFAULT, help="the largest size; sizes are 100,000 and tenfold")
    parser.add_argument("--directory", type=Path, default=None, help="where stores are; 100,000,000 URLs take 4 GB")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    stderr = Console(stderr=True)
    report = measure(options.urls, options.directory or Path(tempfile.gettempdir()), stderr.print)
    if options.json:
        print(json.dumps(asdict(report) | {"growth": report.growth, "reached": report.reached}))
    else:
        for table in tables_of(report):
            Console(width=150).print(table)
    sys.exit(not report.reached)


if __name__ == "__main__":
    main()
