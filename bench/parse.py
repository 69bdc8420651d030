"""What parsing a page costs: one page of 44 KB with 60 links, in CPU microseconds by step.

`python -m bench.parse [--json]`. The steps run as they do in a worker process, with its settings of the allocator; the
way over the pipe is measured at its end here, with a worker that parses the same page.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

import zstandard
from selectolax.lexbor import LexborHTMLParser

from pipeline import topics
from pipeline.config import Settings
from pipeline.contracts import load_codec
from pipeline.parse.content import Options
from pipeline.parse.document import PageReader
from pipeline.parse.html import parse_html, read_links
from pipeline.parse.metadata import read_metadata
from pipeline.parse.pool import WORKER_ENVIRONMENT, ParsePool
from pipeline.parse.stage import worker_command
from pipeline.parse.text import main_text
from pipeline.web.encoding import decide
from pipeline.web.url import url_key

URL: Final = "https://mill.test/news/story.html"
CONTENT_TYPE: Final = "text/html"
PAGE_BYTES: Final = 44 << 10
LINKS: Final = 60
ROUNDS: Final = 9
CALLS: Final = 100
PIPE_PAGES: Final = 3_000
PIPE_IN_FLIGHT: Final = 24
BUDGET_US: Final = 500.0
BUDGET_STEPS: Final = ("encoding", "tree", "links", "main text")
WORDS: Final = (
    "river", "gate", "water", "mill", "wheel", "steady", "spill", "lead", "stone", "course", "flow", "valley", "bridge",
    "miller", "grain", "barley", "evening", "report", "minister", "market", "price", "council", "harvest", "winter",
)  # fmt: skip


def make_page(seed: int = 1) -> bytes:
    """Return an article with menu, cards, scripts and style, as news pages have them: 44 KB, 60 links to 25 domains."""
    chance = random.Random(seed)  # noqa: S311 - a page, not a secret

    def words(count: int) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(count))

    def link(number: int) -> str:
        host = f"https://{words(1)}{number % 24}.test" if number % 3 == 0 else ""
        return f'<a class="more" href="{host}/news/2024/05/{number:02}/{words(1)}-{words(1)}.html">{words(3)}</a>'

    menu = "".join(f'<li class="menu-item">{link(number)}</li>' for number in range(LINKS // 2))
    paragraphs = "".join(f"<p>{words(40)} {link(number)} {words(40)}</p>" for number in range(LINKS // 2, LINKS))
    cards = "".join(f'<div class="card"><span>{words(6)}</span><div><em>{words(3)}</em></div></div>' for _ in range(60))
    described = {"@type": "NewsArticle", "datePublished": "2024-05-10T08:00:00+02:00", "author": {"name": "A. Miller"}}
    start = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{words(6)}</title>'
        '<meta name="robots" content="index,follow"><link rel="canonical" href="/news/story.html">'
        f'<script type="application/ld+json">{json.dumps(described)}</script></head><body><nav><ul>{menu}</ul></nav>'
        f"<main><article><h1>{words(6)}</h1>{paragraphs}<aside>{words(30)}</aside></article></main>{cards}<script>"
    )
    end = f"</script><footer>{words(20)}</footer></body></html>"
    filling = "var state = {ready: true};"
    missing = PAGE_BYTES - len(start) - len(end)
    return (start + (filling * (missing // len(filling) + 1))[:missing] + end).encode()


def make_value(body: bytes) -> bytes:
    """Return the page as the value of a page record."""
    record = {
        "crawl": "bench", "url": URL, "url_key": url_key(URL), "delivery": 1, "depth": 0, "priority": 3, "source": "",
        "status": 200, "content_type": CONTENT_TYPE, "robots_header": "", "body_encoding": "ZSTD",
        "body": zstandard.compress(body, 1), "body_ref": None, "body_bytes": len(body),
        "body_sha256": hashlib.sha256(body).digest(), "truncated": None, "redirects": [], "submitted_at_ms": 0,
        "fetched_at_ms": 1_717_172_775_000,
    }  # fmt: skip
    return load_codec().encode(topics.PAGES.subject, record)


def cpu_us(call: Callable[[], object]) -> float:
    """Return the median CPU time of a call over rounds of many, in microseconds."""
    call()
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        began_s = time.process_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.process_time() - began_s) / CALLS * 1e6)
    return statistics.median(rounds)


async def pipe_us(value: bytes) -> float:
    """Return the CPU time that a page costs this side of the pipe, in microseconds."""
    settings = Settings()
    pool = ParsePool(worker_command(settings), recycle_pages=PIPE_PAGES * 2)
    await pool.start()
    try:
        slots = asyncio.Semaphore(PIPE_IN_FLIGHT)

        async def one() -> None:
            async with slots:
                await pool.parse(value, 0, 0)

        began_s = time.process_time()
        await asyncio.gather(*(one() for _ in range(PIPE_PAGES)))
        return (time.process_time() - began_s) / PIPE_PAGES * 1e6
    finally:
        await pool.stop()


def measure() -> dict[str, float]:
    """Return microseconds by step."""
    body = make_page()
    value = make_value(body)
    tree = LexborHTMLParser(body)
    reader = PageReader(load_codec(), partitions=6, options=Options())
    assert len(read_links(tree, URL, "UTF-8").found) == LINKS
    figures = {
        "encoding": cpu_us(lambda: decide(body, CONTENT_TYPE)),
        "tree": cpu_us(lambda: LexborHTMLParser(body)),
        "links": cpu_us(lambda: read_links(tree, URL, "UTF-8")),
        "main text": cpu_us(lambda: main_text(tree)),
        "metadata": cpu_us(lambda: read_metadata(tree, "headrace")),
        "the whole document": cpu_us(lambda: parse_html(body, URL, fetched_at_s=2e9, content_type=CONTENT_TYPE)),
        "page record to finished records": cpu_us(lambda: reader.outputs(value, 0, 0)),
        "over the pipe, the stage's side": asyncio.run(pipe_us(value)),
    }
    figures["encoding, tree, links, main text"] = sum(figures[step] for step in BUDGET_STEPS)
    return figures


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(prog="python -m bench.parse", description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON object")
    as_json = options.parse_args().json
    if any(os.environ.get(name) != value for name, value in WORKER_ENVIRONMENT.items()):
        # The allocator reads its settings when a process starts.
        command = [sys.executable, "-m", "bench.parse", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **WORKER_ENVIRONMENT})  # noqa: S606 - ourselves
    figures = measure()
    if as_json:
        print(json.dumps(figures))
        return
    print(f"CPU microseconds for a page of {PAGE_BYTES >> 10} KB with {LINKS} links")
    for name, figure in figures.items():
        print(f"{name:<40}{figure:>8.0f}")
    print(f"{'budget for the last':<40}{BUDGET_US:>8.0f}")


if __name__ == "__main__":
    main()
