"""A steady feed of simple inputs for one stage of the pipeline, the same in every partition."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import zstandard
from confluent_kafka import Producer

from bench.background import Background
from pipeline.contracts.codec import Codecs
from pipeline.topics import DOCUMENTS, FETCHES, LANE_NORMAL, PAGES, PARSED, SEGMENTS, TASKS, Topic
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key

CRAWL = "bench"
PAGE = b"<html><title>A page</title>" + b"<p>A paragraph of a page that somebody has written.</p>" * 40 + b"</html>"
FLUSH_S = 10.0


class Recipe(NamedTuple):
    """What a stage is fed with, and where it shows.

    Attributes:
        source: topic of the inputs.
        output: topic that gets a record in the same partition: for each input, of the store for each file.
        make: partition and number of an input → domain and record.
    """

    source: Topic
    output: Topic
    make: Callable[[int, int], tuple[str, Mapping[str, Any]]]


def crawl_definition() -> dict[str, Any]:
    """The crawl that all inputs belong to: without limits."""
    return {
        "crawl": CRAWL, "start_urls": ["http://d0.test/"], "scope": [], "max_pages": None, "max_depth": None,
        "max_pages_per_domain": None, "delay_ms": None, "created_at_ms": 0,
    }  # fmt: skip


def recipes(partitions: int, site_port: int) -> dict[str, Recipe]:
    """Return the recipe of each stage.

    Args:
        partitions: of every topic.
        site_port: where every name under .test answers.
    """
    names = [_domains(number, partitions) for number in range(partitions)]
    firsts = [next(domains) for domains in names]

    def page_url(partition: int, number: int) -> str:
        return f"http://{firsts[partition]}:{site_port}/{number}"

    def task(partition: int, number: int) -> tuple[str, Mapping[str, Any]]:
        domain = next(names[partition])  # a new one each: nobody answers, and only so many tasks of a domain are out
        asked = {"not_before_ms": 0, "timeout_ms": 0, "redirects": [], "replay": False}
        return domain, {**_origin(), **asked, "url": f"http://{domain}/{number}"}

    def lane(partition: int, number: int) -> tuple[str, Mapping[str, Any]]:
        return firsts[partition], {**_origin(), **_located(page_url(partition, number)), **_given_out()}

    def page(partition: int, number: int) -> tuple[str, Mapping[str, Any]]:
        return firsts[partition], {**_origin(), **_located(page_url(partition, number)), **_response()}

    def document(partition: int, number: int) -> tuple[str, Mapping[str, Any]]:
        return firsts[partition], _document(firsts[partition], page_url(partition, number))

    return {
        "frontier": Recipe(TASKS, LANE_NORMAL, task),
        "fetch": Recipe(LANE_NORMAL, FETCHES, lane),
        "parse": Recipe(PAGES, PARSED, page),
        "store": Recipe(DOCUMENTS, SEGMENTS, document),
    }


def _domains(partition: int, partitions: int) -> Iterator[str]:
    """Yield registrable domains that belong to a partition."""
    for number in itertools.count():
        domain = f"d{number}.test"
        if partition_for(domain.encode(), partitions) == partition:
            yield domain


def _now_ms() -> int:
    return int(time.time() * 1000)


def _origin() -> dict[str, Any]:
    return {"crawl": CRAWL, "depth": 0, "source": "bench", "priority": 3, "submitted_at_ms": _now_ms()}


def _located(url: str) -> dict[str, Any]:
    return {"url": url, "url_key": url_key(url), "delivery": 1, "redirects": []}


def _given_out() -> dict[str, Any]:
    return {
        "attempt": 0, "emitted_at_ms": _now_ms(), "not_before_ms": 0, "delay_ms": 0, "timeout_ms": 0, "etag": None,
        "last_modified": None,
    }  # fmt: skip


def _response() -> dict[str, Any]:
    return {
        "status": 200, "content_type": "text/html; charset=utf-8", "robots_header": "", "body_encoding": "ZSTD",
        "body": zstandard.compress(PAGE, 1), "body_ref": None, "body_bytes": len(PAGE),
        "body_sha256": hashlib.sha256(PAGE).digest(), "truncated": None, "fetched_at_ms": _now_ms(),
    }  # fmt: skip


def _document(domain: str, url: str) -> dict[str, Any]:
    text = PAGE.decode()
    return {
        "id": url_key(url), "crawl": CRAWL, "url": url, "domain": domain, "source": "bench", "depth": 0,
        "title": "A page", "text": text, "language": None, "authors": [], "published": None,
        "published_evidence": None, "modified": None, "canonical": None, "encoding": "utf-8",
        "content_hash": hashlib.sha256(text.encode()).digest(), "links": 0, "redirects": [],
        "submitted_at_ms": _now_ms(), "fetched_at_ms": _now_ms(), "parsed_at_ms": _now_ms(),
    }  # fmt: skip


class Feed(Background):
    """Writes so many inputs a second to each partition, from a thread of its own. Used as a context manager.

    Args:
        bootstrap: host:port.
        recipe: what is written.
        codecs: contracts.
        partitions: of the topic.
        rate_per_s: inputs a second of each partition.
    """

    def __init__(self, bootstrap: str, recipe: Recipe, codecs: Codecs, partitions: int, rate_per_s: float) -> None:
        super().__init__("feed")
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 3}
        )
        self._recipe = recipe
        self._encode = codecs.encoder(recipe.source.subject)
        self._partitions = partitions
        self._pause_s = 1 / rate_per_s

    def _close(self) -> None:
        self._producer.flush(FLUSH_S)

    def _run(self) -> None:
        begun_s = time.monotonic()
        for number in itertools.count():
            if self._stop.wait(max(0.0, begun_s + number * self._pause_s - time.monotonic())):
                return
            for partition in range(self._partitions):
                domain, record = self._recipe.make(partition, number)
                self._producer.produce(self._recipe.source.name, self._encode(record), domain.encode(), partition)
            self._producer.poll(0)
