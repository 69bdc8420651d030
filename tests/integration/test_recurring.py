"""Recurring work on a real broker: pages are polled through kills, each document is published once, the crawl ends."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline.topics import DOCUMENTS, LANES, TASKS
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import canonicalize
from tests.frontier_world import make_task
from tests.pipeline_world import PipelineWorld

CRAWL = "watched"
INTERVAL_MS = 200

pytestmark = [pytest.mark.broker, pytest.mark.chaos]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Everything, running."""
    with PipelineWorld(tmp_path_factory.mktemp("recurring"), seed=6, hosts=3, pages=4) as running:
        yield running


def watch(world, url):
    """Submit a recurring task."""
    key = registrable_domain(canonicalize(url).host).encode()
    value = world.codecs.encode(TASKS.subject, make_task(url, CRAWL, interval_ms=INTERVAL_MS))
    world.write(TASKS.name, value, key, partition_for(key, world.settings.topics.partitions))


def polls(world, url):
    """Return the numbers of the polls of a URL that were given out, in order."""
    rows = [
        world.codecs.decode(lane.subject, record.value) for lane in LANES.values() for record in world.read(lane.name)
    ]
    return [row["poll"] for row in sorted(rows, key=lambda row: row["delivery"]) if row["url"] == url and row["poll"]]


def test_pages_are_polled_through_kills_and_published_once(world):
    """Polls follow each other without a gap; a page that stays the same is one document; the crawl still ends."""
    watched = sorted(world.expectation.documents)[:2]
    for url in watched:
        watch(world, url)
    run = world.begin(CRAWL)
    world.until(lambda: run.status().ended, "the end of the crawl", pause_s=1.5)
    before = {url: max(polls(world, url)) for url in watched}
    for stage in ("frontier", "fetch", "parse"):
        world.kill(stage)
    world.until(lambda: all(max(polls(world, url)) >= before[url] + 2 for url in watched), "more polls", pause_s=0.5)
    world.until(lambda: run.status().ended, "the end of the crawl, once more", pause_s=1.5)
    run.close()
    for url in watched:
        numbers = polls(world, url)
        assert list(range(1, max(numbers) + 1)) == sorted(set(numbers))
    rows = [world.codecs.decode(DOCUMENTS.subject, record.value) for record in world.read(DOCUMENTS.name)]
    published = Counter(row["url"] for row in rows)
    assert {1} == set(published.values())
    assert set(watched) <= published.keys()
