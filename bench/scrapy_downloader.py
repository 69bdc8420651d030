"""Scrapy's engine and downloader with a callback that does nothing, for `bench.fetch`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from bench.scrapy_peer import SETTINGS


class FetchingSpider(scrapy.Spider):
    """Asks for so many pages; the first of each host before the clock starts."""

    name = "fetching"

    def __init__(self, url: Callable[[int], str], hosts: int, pages: int, figures: dict[str, Any]) -> None:
        super().__init__()
        self._url, self._hosts, self._pages, self._figures = url, hosts, pages, figures
        self._left = hosts
        self._began_s = self._cpu_s = 0.0

    async def start(self) -> AsyncIterator[Any]:
        """Yield the first page of each host."""
        for number in range(self._hosts):
            yield scrapy.Request(self._url(number), callback=self.parse_first)

    def parse_first(self, response: Response) -> Any:
        """Begin when all are there."""
        del response
        self._left -= 1
        if self._left == 0:
            self._left = self._pages
            self._began_s, self._cpu_s = time.perf_counter(), time.process_time()
            for number in range(self._hosts, self._hosts + self._pages):
                yield scrapy.Request(self._url(number), callback=self.parse_page)

    def parse_page(self, response: Response) -> None:
        """Count."""
        if not response.body:
            raise RuntimeError(f"{response.url}: no body")
        self._left -= 1
        if self._left == 0:
            self._figures |= {
                "pages": self._pages,
                "wall_s": time.perf_counter() - self._began_s,
                "cpu_s": time.process_time() - self._cpu_s,
            }


def run(url: Callable[[int], str], hosts: int, pages: int, in_flight: int) -> dict[str, Any]:
    """Fetch with Scrapy in this process.

    Args:
        url: number → URL.
        hosts: how many there are.
        pages: how many are fetched, the first of each host apart.
        in_flight: at the same time.

    Returns:
        pages, wall_s, cpu_s.
    """
    figures: dict[str, Any] = {}
    process = CrawlerProcess(
        SETTINGS | {"CONCURRENT_REQUESTS": in_flight, "CONCURRENT_REQUESTS_PER_DOMAIN": in_flight, "LOG_LEVEL": "ERROR"}
    )
    process.crawl(FetchingSpider, url=url, hosts=hosts, pages=pages, figures=figures)
    process.start()
    return figures
