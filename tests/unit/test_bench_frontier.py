from __future__ import annotations

import gc

import pytest

from bench.frontier_peer import SetAndHeap
from bench.frontier_world import PARTITIONS, FrontierWorker, Pages, Web

SITES, STORED = 24, 50


@pytest.fixture
def worker(tmp_path):
    """A worker with 24 sites of 50 pages, of which every tenth waits."""
    threshold = gc.get_threshold()
    opened = FrontierWorker(tmp_path)
    opened.load(Web(SITES), STORED)
    yield opened
    opened.close()
    gc.set_threshold(*threshold)
    gc.unfreeze()


def given_out(worker):
    """How many tasks go when all may."""
    return len(worker.give_out(10_000)[1])


def test_what_is_loaded_in_bulk_is_what_the_frontier_knows(worker):
    """A row that the frontier does not find would turn the look-up that is measured into a claim."""
    assert SITES * STORED // 10 == given_out(worker)
    for number in range(PARTITIONS):
        pages = Pages(Web(SITES), number, STORED, worker.codecs)
        worker.handle([pages.record(recent=0, stored=60) for _ in range(20)])
    assert 0 == given_out(worker)


def test_a_page_has_the_new_links_that_are_told(worker):
    """The cost of a link is that of its mix."""
    given_out(worker)
    pages = Pages(Web(SITES), 0, STORED, worker.codecs)
    worker.handle([pages.record(recent=0, stored=0)])
    assert 60 == given_out(worker)
    worker.handle([pages.record() for _ in range(10)])
    assert 60 == given_out(worker)


def test_tasks_end_by_their_outcomes(worker):
    """An outcome that the frontier takes for a stale one costs next to nothing."""
    _, outcomes = worker.give_out(10_000)
    worker.handle(outcomes)
    assert not worker._stage.counters["stale_outcomes"]
    assert SITES * STORED // 10 == len(outcomes)


def test_the_peer_knows_the_same_urls(worker):
    """It is measured with the same links."""
    peer = SetAndHeap()
    peer.load(Web(SITES), STORED)
    pages = Pages(Web(SITES), 0, STORED, worker.codecs)
    peer.handle([pages.record(recent=0, stored=60), pages.record(recent=0, stored=0)])
    assert SITES * STORED + 60 == len(peer._seen)
