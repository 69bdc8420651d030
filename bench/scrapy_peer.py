"""The peer: Scrapy on the same site, as an ordinary user writes it, tuned by its own advice for broad crawls.

The spider follows every link and writes title and text of every page as JSON lines. Settings are those of Scrapy's page
on broad crawls (docs.scrapy.org, "Broad Crawls"): more concurrency, a larger thread pool, log level, no cookies, no
retries, no redirects, a shorter download timeout; the priority queue it advises is the default by now. Besides:
no delay, no AutoThrottle, no robots.txt, the asyncio reactor (the default), and names under .test answered with the
loopback address without a thread.

`run_scrapy` starts it as a process of its own; `python -m bench.scrapy_peer` is that process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer

CONCURRENCY = 100
TIMEOUT_S = 900.0
POLL_S = 0.05
LOOPBACK = "127.0.0.1"
SETTINGS: dict[str, Any] = {
    # Scrapy's own advice for broad crawls.
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 15,
    # The site is our own: as fast as it goes.
    "AUTOTHROTTLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "TWISTED_DNS_RESOLVER": "bench.scrapy_peer.LoopbackResolver",
    # Doors that nobody uses.
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


@dataclass(frozen=True, slots=True)
class PeerResult:
    """What a run of Scrapy gave and cost.

    Attributes:
        pages: documents in its output.
        wall_s: from the first request to the end of the spider.
        cpu_s: CPU seconds of the process in the same time: the figure to compare, start-up apart.
        start_cpu_s: CPU seconds before the first request.
        total_cpu_s: CPU seconds of the whole process, its end included.
        total_wall_s: life of the process.
        peak_rss_bytes: its largest resident memory.
    """

    pages: int
    wall_s: float
    cpu_s: float
    start_cpu_s: float
    total_cpu_s: float
    total_wall_s: float
    peak_rss_bytes: int

    @property
    def cpu_s_per_1000_pages(self) -> float:
        """CPU seconds per 1,000 pages, start-up apart."""
        return self.cpu_s / self.pages * 1000

    @property
    def pages_per_s(self) -> float:
        """Pages per second, start-up apart."""
        return self.pages / self.wall_s


class LoopbackResolver(CachingThreadedResolver):
    """Answers names under .test itself, as a local name server would, but for nothing."""

    def getHostByName(self, name: str, timeout: Sequence[int] = ()) -> defer.Deferred[str]:  # noqa: N802 - Twisted's name
        """Return the address of a name."""
        if name.endswith(".test"):
            return defer.succeed(LOOPBACK)
        return super().getHostByName(name, timeout)


class EverythingSpider(scrapy.Spider):
    """Follows every link; an item a page."""

    name = "everything"
    start_urls: list[str]

    def __init__(self, start_urls: list[str], figures: Path, **arguments: Any) -> None:
        super().__init__(start_urls=start_urls, **arguments)
        self._figures = figures
        self._links = LinkExtractor()
        self._started = 0.0
        self._start_cpu_s = 0.0

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first requests."""
        self._started, self._start_cpu_s = time.monotonic(), time.process_time()
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        """Yield the page's item, and a request for each link: Scrapy drops those it has seen."""
        if not isinstance(response, TextResponse):
            return
        yield {
            "url": response.url,
            "title": response.css("title::text").get(""),
            "text": "\n".join(text.strip() for text in response.css("article p::text").getall()),
        }
        for link in self._links.extract_links(response):
            yield scrapy.Request(link.url)

    def closed(self, reason: str) -> None:
        """Write down what the crawl cost."""
        figures = {
            "reason": reason,
            "wall_s": time.monotonic() - self._started,
            "cpu_s": time.process_time() - self._start_cpu_s,
            "start_cpu_s": self._start_cpu_s,
        }
        self._figures.write_text(json.dumps(figures), encoding="utf-8")


def run_scrapy(
    start_urls: Sequence[str],
    pages: int | None = None,
    *,
    output: Path | None = None,
    concurrency: int = CONCURRENCY,
    timeout_s: float = TIMEOUT_S,
) -> PeerResult:
    """Crawl with Scrapy in a process of its own.

    Args:
        start_urls: where it begins.
        pages: it stops soon after so many (what is in flight then still counts); None for when nothing is left.
        output: file for the documents; None for one that is thrown away.
        concurrency: requests at the same time.
        timeout_s: a run that takes longer is ended.

    Raises:
        RuntimeError: it failed; with the end of its log.
        TimeoutError: it took longer than `timeout_s`.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-scrapy-") as name:
        directory = Path(name)
        documents = output or directory / "documents.jsonl"
        job = {"start_urls": list(start_urls), "pages": pages or 0, "concurrency": concurrency}
        (directory / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [sys.executable, "-m", "bench.scrapy_peer", str(directory), str(documents)]
        started = time.monotonic()
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            usage = _wait(process, started + timeout_s)
        total_wall_s = time.monotonic() - started
        if process.returncode != 0 or not (directory / "figures.json").exists():
            tail = (directory / "log").read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise RuntimeError(f"Scrapy ended with status {process.returncode}:\n{tail}")
        figures = json.loads((directory / "figures.json").read_text(encoding="utf-8"))
        with documents.open("rb") as lines:
            count = sum(1 for _ in lines)
    return PeerResult(
        pages=count,
        wall_s=figures["wall_s"],
        cpu_s=figures["cpu_s"],
        start_cpu_s=figures["start_cpu_s"],
        total_cpu_s=usage.ru_utime + usage.ru_stime,
        total_wall_s=total_wall_s,
        peak_rss_bytes=usage.ru_maxrss * 1024,
    )


def _wait(process: subprocess.Popen[bytes], deadline: float) -> resource.struct_rusage:
    """Wait for the end of a child and return what it alone used; RUSAGE_CHILDREN would mix it with others'."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise TimeoutError("Scrapy did not end in time")
        time.sleep(POLL_S)


def main() -> None:
    """Run the spider as `run_scrapy` wrote it down."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrapy_peer", description=main.__doc__)
    parser.add_argument("directory", type=Path, help="holds job.json, gets figures.json")
    parser.add_argument("documents", type=Path, help="JSON lines, written anew")
    options = parser.parse_args()
    job = json.loads((options.directory / "job.json").read_text(encoding="utf-8"))
    process = CrawlerProcess(
        SETTINGS
        | {
            "CONCURRENT_REQUESTS": job["concurrency"],
            "CLOSESPIDER_PAGECOUNT": job["pages"],
            "FEEDS": {str(options.documents): {"format": "jsonlines", "overwrite": True}},
        }
    )
    process.crawl(EverythingSpider, start_urls=job["start_urls"], figures=options.directory / "figures.json")
    process.start()


if __name__ == "__main__":
    main()
