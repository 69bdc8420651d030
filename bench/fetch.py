"""What fetching a page costs: `python -m bench.fetch [--pages N] [--hosts N] [--json]`.

Pages of 44 KB of 200 hosts by HTTP/1.1, plain and by TLS, 96 at a time, connections kept: our fetch stage without
Kafka, its client alone, bare aiohttp, httpx as it installs, and Scrapy with a callback that does nothing. Each client
has a process of its own, the site another one. The last column is Scrapy's CPU a page to the client's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.calibration import calibrate
from bench.machine import machine, sentence

CLIENTS: Final = ("stage", "client", "aiohttp", "httpx", "scrapy")
SCHEMES: Final = ("http", "https")
PACKAGES: Final = ("aiohttp", "httpx", "Scrapy")
RUN_S: Final = 300.0
ROOT: Final = Path(__file__).parents[1]


def measure(hosts: int, pages: int) -> list[dict[str, Any]]:
    """Run every client by every scheme.

    Returns:
        Rows: scheme, client, pages, wall_s, cpu_s.
    """
    rows = []
    with tempfile.TemporaryDirectory(prefix="headrace-fetch-") as directory:
        site = subprocess.Popen(
            [sys.executable, "-m", "bench.fetch_site", directory],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            ports = json.loads(site.stdout.readline()) if site.stdout else {}
            for scheme in SCHEMES:
                job = {"scheme": scheme, "port": ports[scheme], "hosts": hosts, "pages": pages}
                written = json.dumps({**job, "authority": f"{directory}/ca.pem"})
                for client in CLIENTS:
                    done = subprocess.run(
                        [sys.executable, "-m", "bench.fetch_clients", client, written],
                        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=RUN_S,
                    )  # fmt: skip
                    rows.append({"scheme": scheme, "client": client, **json.loads(done.stdout.splitlines()[-1])})
        finally:
            if site.stdin:
                site.stdin.close()
            site.wait()
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.fetch", description=__doc__)
    parser.add_argument("--pages", type=int, default=6_000, help="of each run")
    parser.add_argument("--hosts", type=int, default=200, help="they take turns")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    described, calibration = machine(PACKAGES), calibrate()
    rows = measure(options.hosts, options.pages)
    if options.json:
        print(json.dumps({"machine": described, "calibration_s": calibration.best_s, "rows": rows}))
        return
    table = Table(title="a page of 44 KB", caption=f"calibration: {calibration.best_s * 1000:.1f} ms")
    for column in ("scheme", "client", "CPU-ms a page", "pages/s a core", "pages/s", "Scrapy's CPU, times"):
        table.add_column(column, justify="right")
    costs = {(row["scheme"], row["client"]): row["cpu_s"] / row["pages"] for row in rows}
    for row in rows:
        cost_s = costs[row["scheme"], row["client"]]
        table.add_row(
            row["scheme"], row["client"], f"{cost_s * 1000:.2f}", f"{1 / cost_s:,.0f}",
            f"{row['pages'] / row['wall_s']:,.0f}", f"{costs[row['scheme'], 'scrapy'] / cost_s:.1f}",
        )  # fmt: skip
    console = Console()
    console.print(sentence(described))
    console.print(table)


if __name__ == "__main__":
    main()
