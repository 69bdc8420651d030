"""The origin of the benchmark: the plain simulated web in a process of its own, with its CPU kept apart.

`python -m bench.origin` serves it until Ctrl-C, for a look with other clients.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.local.request_log import read_log
from pipeline.local.simulated_web import ServedWeb, SimulatedWeb

HOSTS = 200
PAGES = 20


class Origin:
    """44 KB pages with 60 links to 26 domains, every one there at once.

    Args:
        seed: of the web.
        hosts: its domains.
        pages: of each domain.
        directory: where its log goes; None for a temporary one.

    Used as a context manager.

    Attributes:
        web: what is served: `start_urls`, `expected_documents()`.
        port: where.
        log: its requests, see `pipeline.local.request_log`.
    """

    def __init__(self, seed: int = 1, hosts: int = HOSTS, pages: int = PAGES, directory: Path | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="headrace-origin-") if directory is None else None
        self.log = (directory or Path(self._temporary.name if self._temporary else "")) / "requests.jsonl"
        self._served = ServedWeb(seed, hosts, pages, self.log, plan="plain")
        self._cpu_before_s = self._served.cpu_s()  # making the pages is no part of serving them

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._served.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def web(self) -> SimulatedWeb:
        """The plan of the web."""
        return self._served.web

    @property
    def port(self) -> int:
        """Port on the loopback address."""
        return self._served.port

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._served.pid

    def cpu_s(self) -> float:
        """CPU seconds spent on requests since the start, or since the last `reset`."""
        return self._served.cpu_s() - self._cpu_before_s

    def reset(self) -> None:
        """Begin to count CPU anew: another crawler is about to start."""
        self._cpu_before_s = self._served.cpu_s()


def main() -> None:
    """Serve until Ctrl-C, then say what it cost."""
    parser = argparse.ArgumentParser(prog="python -m bench.origin", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--pages", type=int, default=PAGES)
    options = parser.parse_args()
    with Origin(options.seed, options.hosts, options.pages) as origin:
        print(f"http://site0001.test:{origin.port}/ and {options.hosts - 1} other domains, by Host header on 127.0.0.1")
        try:
            while True:
                time.sleep(60)
        except KeyboardInterrupt:
            cpu_s = origin.cpu_s()
            print(f"{len(read_log(origin.log))} requests, {cpu_s:.2f} CPU-s")


if __name__ == "__main__":
    main()
