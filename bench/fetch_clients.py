"""What `bench.fetch` compares, one client a process: `python -m bench.fetch_clients NAME JOB`.

Each fetches so many pages of 200 hosts, 96 at a time, a first page of each host before the clock starts, and prints
pages, wall time and CPU as JSON. `stage` is the whole fetch stage without Kafka: lane record in, gate, robots.txt,
request, page and outcome records out. The others only bring the body.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import aiohttp
import httpx
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from pipeline import topics
from pipeline.config import Fetch, Settings
from pipeline.contracts import load_codec
from pipeline.fetch.client import Client
from pipeline.fetch.guard import AddressGuard
from pipeline.fetch.stage import FetchStage
from pipeline.web.domains import registrable_domain
from pipeline.web.url import canonical_form, url_key

LOOPBACK: Final = "127.0.0.1"
IN_FLIGHT: Final = 96
PARTITIONS: Final = 6
AGENT: Final = "headrace-bench/1"


class Job(NamedTuple):
    """What is to be fetched.

    Attributes:
        scheme: http or https.
        port: of the site.
        hosts: how many.
        pages: how many, the first of each host apart.
        authority: file of the certificate authority.
    """

    scheme: str
    port: int
    hosts: int
    pages: int
    authority: str

    def url(self, number: int) -> str:
        """Return the URL of a page: hosts take turns."""
        return f"{self.scheme}://site{number % self.hosts:03}.bench.test:{self.port}/news/{number}.html"

    def tls(self) -> ssl.SSLContext:
        """Return a context that trusts the site."""
        return ssl.create_default_context(cafile=self.authority)


Get = Callable[[str], Awaitable[int]]
"""URL → length of its body."""


async def measure(job: Job, get: Get) -> dict[str, Any]:
    """Fetch everything; see the module's text."""
    numbers = itertools.count()

    async def fetch(last: int) -> None:
        while (number := next(numbers)) < last:
            length = await get(job.url(number))
            if length < 1:
                raise RuntimeError(f"{job.url(number)}: no body")

    async def fetch_to(last: int) -> None:
        nonlocal numbers
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(fetch(last))

    await fetch_to(job.hosts)
    numbers = itertools.count(job.hosts)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    await fetch_to(job.hosts + job.pages)
    return {"pages": job.pages, "wall_s": time.perf_counter() - began_s, "cpu_s": time.process_time() - cpu_s}


def settings(job: Job) -> Settings:
    """Return the usual configuration, but that this machine may be asked, by as many requests as there are."""
    fetch = Fetch(
        user_agent=AGENT,
        allow_addresses=[f"{LOOPBACK}:{job.port}"],
        resolve={"*.bench.test": LOOPBACK},
        per_address=IN_FLIGHT * 2,
        per_domain=IN_FLIGHT,
    )
    return Settings(fetch=fetch)


class LaneRecord(NamedTuple):
    """A record of a lane, as the stage reads it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


async def stage(job: Job) -> dict[str, Any]:
    """The fetch stage."""
    codecs = load_codec()
    made = FetchStage(settings(job), codecs, membership_is_fresh=lambda: True, tls=job.tls())
    encode = codecs.encoder(topics.LANE_NORMAL.subject)
    await made.start()
    for partition in range(PARTITIONS):
        made.opened(partition, None)

    def record(url: str) -> LaneRecord:
        now_ms = int(time.time() * 1000)
        task = {
            "crawl": "bench", "url": url, "url_key": url_key(canonical_form(url)), "delivery": 1, "attempt": 0,
            "priority": 3, "depth": 1, "source": "", "submitted_at_ms": now_ms, "emitted_at_ms": now_ms,
            "not_before_ms": 0, "delay_ms": 0, "timeout_ms": 0, "redirects": [], "etag": None, "last_modified": None,
        }  # fmt: skip
        host = httpx.URL(url).host
        return LaneRecord(
            topics.LANE_NORMAL.name, sum(host.encode()) % PARTITIONS, 0, now_ms, registrable_domain(host).encode(),
            encode(task),
        )  # fmt: skip

    waiting = {job.url(number): record(job.url(number)) for number in range(job.hosts + job.pages)}

    async def get(url: str) -> int:
        result = await made.handle(waiting[url], backlog=False)
        return sum(len(output.value or b"") for output in result.outputs if output.topic == topics.PAGES.name)

    try:
        return await measure(job, get)
    finally:
        await made.stop()


async def client(job: Job) -> dict[str, Any]:
    """The stage's client alone."""
    async with Client(settings(job).fetch, AddressGuard([f"{LOOPBACK}:{job.port}"]), tls=job.tls()) as made:

        async def get(url: str) -> int:
            return len((await made.get(url)).body.data)

        return await measure(job, get)


class LoopbackResolver(AbstractResolver):
    """Answers every name at once."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Return the one address."""
        del family
        return [{"hostname": host, "host": LOOPBACK, "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Nothing is held."""


async def bare_aiohttp(job: Job) -> dict[str, Any]:
    """The library below, with nothing around it."""
    connector = aiohttp.TCPConnector(limit=0, resolver=LoopbackResolver(), ssl=job.tls())
    async with aiohttp.ClientSession(connector=connector, headers={"User-Agent": AGENT}) as session:

        async def get(url: str) -> int:
            async with session.get(url) as response:
                return len(await response.read())

        return await measure(job, get)


async def bare_httpx(job: Job) -> dict[str, Any]:
    """Httpx as it installs. It asks by Host header, since it takes no resolver."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(verify=job.tls(), limits=limits, headers={"User-Agent": AGENT}) as session:

        async def get(url: str) -> int:
            where = httpx.URL(url)
            headers = {"Host": where.netloc.decode()}
            extensions = {"sni_hostname": where.host}
            answer = await session.get(where.copy_with(host=LOOPBACK), headers=headers, extensions=extensions)
            return len(answer.content)

        return await measure(job, get)


def scrapy_downloader(job: Job) -> dict[str, Any]:
    """Scrapy with a callback that does nothing: its engine, scheduler and downloader."""
    from bench.scrapy_downloader import run  # noqa: PLC0415 - Twisted is loaded in this process alone

    return run(job.url, job.hosts, job.pages, IN_FLIGHT)


ASYNCHRONOUS: Final = {"stage": stage, "client": client, "aiohttp": bare_aiohttp, "httpx": bare_httpx}


def main() -> None:
    """Run one client and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench.fetch_clients", description="Run one client.")
    parser.add_argument("name", choices=[*ASYNCHRONOUS, "scrapy"])
    parser.add_argument("job", help="as JSON")
    options = parser.parse_args()
    job = Job(**json.loads(options.job))
    run = ASYNCHRONOUS.get(options.name)
    print(json.dumps(scrapy_downloader(job) if run is None else uvloop.run(run(job))))


if __name__ == "__main__":
    main()
