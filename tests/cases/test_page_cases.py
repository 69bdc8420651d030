"""Cases on real fetch and parse workers before a site on this machine: bodies of any size, a silent registry."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline import topics
from pipeline.config import client_options, load
from pipeline.contracts import load_codec
from pipeline.contracts.codec import frame
from pipeline.local.kafka import LocalBroker
from pipeline.local.supervisor import Fleet
from pipeline.local.topic_reader import read_all
from pipeline.ops.topics import apply
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key
from tests.chaos.ledger import Offsets, produce
from tests.chaos.process import until

pytestmark = pytest.mark.broker

SIZES = (900_000, 999_886, 1_000_000, 1_000_033, 1_048_576, 5_000_000)
CONTENTS = ("random", "letters")
PARTITIONS = 2
KEY = b"site.test"
STALL_S = 30.0
UNKNOWN_ID = 256


class Site(BaseHTTPRequestHandler):
    """Answers `/random/1000` and `/letters/1000` with so many bytes of text."""

    def do_GET(self):
        """Answer one request."""
        _, content, size = self.path.split("/")
        noise = random.Random(size).randbytes(int(size))
        body = noise if content == "random" else b"a" * int(size)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=latin-1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


class World:
    """One worker each of fetch and parse on a broker of their own, with a registry that never answers."""

    def __init__(self, directory, silent, site):
        self.site = f"http://site.test:{site.server_port}"
        self.codecs = load_codec()
        self.broker = LocalBroker(directory / "kafka")
        self.broker.start()
        environ = {
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self.broker.bootstrap,
            "HEADRACE_REGISTRY__URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "HEADRACE_TOPICS__PARTITIONS": str(PARTITIONS),
            "HEADRACE_POLITENESS__DELAY_S": "0",
            "HEADRACE_FETCH__ROBOTS": "false",
            "HEADRACE_FETCH__RESOLVE": '{"*.test" = "127.0.0.1"}',
            "HEADRACE_FETCH__ALLOW_ADDRESSES": '["127.0.0.1"]',
        }
        settings = load(environ=environ).settings
        apply(client_options(settings.broker), settings)
        self.fleet = Fleet(directory, environ, {"fetch": 1, "parse": 1})
        self.fleet.start()
        for worker in self.fleet.all:
            until(lambda w=worker: b"headrace_assigned_partitions" in w.read("/metrics"), worker.tail())
            until(lambda w=worker: f"}} {PARTITIONS}.0" in self._assigned(w), f"partitions:\n{worker.tail()}")

    @staticmethod
    def _assigned(worker):
        lines = worker.read("/metrics").decode().splitlines()
        return "".join(line for line in lines if line.startswith("headrace_assigned_partitions{"))

    def fetch(self, *values):
        """Write lane records and wait until both stages have nothing left."""
        produce(self.broker.bootstrap, topics.LANE_NORMAL.name, [(KEY, value) for value in values])
        self.until_done("fetch", topics.LANE_NORMAL)
        self.until_done("parse", topics.PAGES)

    def until_done(self, stage, topic):
        """Wait until a stage has no lag."""
        group = Offsets(self.broker.bootstrap, topics.group_id(stage))
        until(
            lambda: (
                (partition := partition_for(KEY, PARTITIONS)) in (found := group.lag(topic.name, PARTITIONS))
                and 0 == found[partition]
            ),
            f"{stage} without lag:\n{self.fleet.by_stage[stage][0].tail()}",
            STALL_S,
        )
        group.close()

    def task(self, path):
        """A lane record."""
        url = self.site + path
        return self.codecs.encode(
            topics.LANE_NORMAL.subject,
            {
                "crawl": "c", "url": url, "url_key": url_key(url), "delivery": 1, "attempt": 0, "priority": 3,
                "depth": 0, "source": "", "submitted_at_ms": 1, "emitted_at_ms": 1, "not_before_ms": 0, "delay_ms": 0,
                "timeout_ms": 0, "redirects": [], "etag": None, "last_modified": None,
            },
        )  # fmt: skip

    def read(self, topic):
        """Return the records of a topic, decoded, by path."""
        rows = [self.codecs.decode(topic.subject, row.value) for row in read_all(self.broker.bootstrap, topic.name)]
        return [(row["url"].removeprefix(self.site), row) for row in rows]

    def letters(self, topic):
        """Return the reasons of a topic's dead letters."""
        return [dict(row.headers)["dlq-reason"] for row in read_all(self.broker.bootstrap, topic.dlq)]

    def close(self):
        """End everything."""
        self.fleet.stop()
        self.broker.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Workers that have their partitions: what was there before would go back to the frontier."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        made = World(tmp_path_factory.mktemp("pages"), silent, site)
        yield made
        made.close()
        site.shutdown()


def test_kaf_09_every_page_is_published_or_ends_as_too_large(world):
    """KAF-09: what fits its record packed goes on, the rest is an outcome that says so; none vanishes, none stalls."""
    paths = [f"/{content}/{size}" for size in SIZES for content in CONTENTS]
    small = [f"/letters/{size}" for size in range(1_000, 1_012)]
    began_s = time.monotonic()
    world.fetch(*(world.task(path) for pair in zip(paths, small, strict=True) for path in pair))
    assert time.monotonic() - began_s < STALL_S
    outcomes = dict(world.read(topics.FETCHES))
    pages = Counter(path for path, _ in world.read(topics.PAGES))
    answers = Counter(path for path, _ in world.read(topics.PARSED))
    assert {*paths, *small} == outcomes.keys()
    published = {path for path, outcome in outcomes.items() if outcome["outcome"] == "FETCHED"}
    assert {*small, *(path for path in paths if "letters" in path)} == published
    assert {("TOO_LARGE", "inline_bytes")} == {
        (outcomes[path]["outcome"], outcomes[path]["reason"]) for path in paths if path not in published
    }
    assert dict.fromkeys(published, 1) == dict(pages) == dict(answers)
    assert [] == world.letters(topics.LANE_NORMAL)


def test_kaf_06_an_unknown_schema_id_is_one_dead_letter_though_the_registry_is_silent(world):
    """KAF-06: ids come from the lock, so a registry that hangs delays nobody, and a missing id stays missing."""
    good = [world.task(f"/letters/{size}") for size in range(2_000, 2_099)]
    strange = frame(UNKNOWN_ID) + good[0][5:]
    before = len(world.read(topics.FETCHES))
    world.fetch(*good[:41], strange, *good[41:])
    produce(world.broker.bootstrap, topics.PAGES.name, [(KEY, strange)])
    world.until_done("parse", topics.PAGES)
    assert [b"schema_rejected"] == world.letters(topics.LANE_NORMAL)
    assert b"schema_rejected" == world.letters(topics.PAGES)[-1]
    assert 1 == world.letters(topics.PAGES).count(b"schema_rejected")
    outcomes = world.read(topics.FETCHES)[before:]
    assert 99 == len(outcomes)
    assert {"FETCHED"} == {outcome["outcome"] for _, outcome in outcomes}
    assert all(worker.restarts == 0 and worker.pid for worker in world.fleet.all)
