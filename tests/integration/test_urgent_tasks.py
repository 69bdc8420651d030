"""Urgent tasks behind a backlog on a real broker: what comes first, whatever time it takes."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import Producer

from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.frontier.records import SEEN, url_row_key
from pipeline.local.stack import LocalStack
from pipeline.local.supervisor import Fleet
from pipeline.local.topic_reader import read_all
from pipeline.ops import topics
from pipeline.state.view import changelog_key
from pipeline.topics import FRONTIER_STATE, LANE_BULK, LANE_URGENT, TASKS, TASKS_URGENT
from pipeline.web.partition import partition_for
from pipeline.web.url import url_key
from tests.chaos.process import until
from tests.frontier_world import make_task

pytestmark = pytest.mark.broker

CRAWL = "default"
DOMAINS, BACKLOG = 50, 20_000
FLUSH_S = 30.0
READ_S = 60.0


class Frontier:
    """One worker of the frontier on a broker of its own, and nobody who fetches."""

    def __init__(self, directory, bootstrap):
        environ = {"HEADRACE_CONFIG": os.devnull, "HEADRACE_BROKER__BOOTSTRAP": bootstrap}
        self.bootstrap = bootstrap
        self.settings = load(environ=environ).settings
        options = client_options(self.settings.broker)
        topics.apply(options, self.settings)
        self.codecs = load_codec()
        self.producer = Producer({**options, "enable.idempotence": True, "linger.ms": 5, "log_level": 3})
        self.fleet = Fleet(directory, environ, {"frontier": 1})

    def partition(self, domain):
        """The partition of a domain."""
        return partition_for(domain.encode(), self.settings.topics.partitions)

    def write(self, topic, domain, path, priority):
        """Write a task; returns its URL."""
        url = f"http://{domain}/{path}"
        value = self.codecs.encode(TASKS.subject, make_task(url, CRAWL, priority=priority))
        while True:
            try:
                self.producer.produce(topic.name, value, domain.encode(), self.partition(domain))
            except BufferError:
                self.producer.poll(0.1)
            else:
                return url

    def given_out(self, lane):
        """The URLs in a lane."""
        return [self.codecs.decode(lane.subject, row.value)["url"] for row in read_all(self.bootstrap, lane.name)]

    def claims(self):
        """The keys of the URLs in the order in which they came into the state, by partition."""
        prefix = changelog_key(SEEN, url_row_key(CRAWL, b""))
        found = {}
        for row in read_all(self.bootstrap, FRONTIER_STATE.name):
            if row.key.startswith(prefix):
                found.setdefault(row.partition, {}).setdefault(row.key.removeprefix(prefix))
        return {partition: list(keys) for partition, keys in found.items()}


@pytest.fixture
def frontier(tmp_path):
    """A worker that is not started yet."""
    with LocalStack(tmp_path / "local", registry=False) as stack:
        made = Frontier(tmp_path, stack.addresses.bootstrap)
        yield made
        made.fleet.stop()


@pytest.mark.timeout(120)
def test_urgent_tasks_are_read_before_a_backlog_and_do_not_wait_for_its_windows(frontier):
    """Nobody fetches, so each domain's window stays full with bulk: the urgent ones are in their lane anyway."""
    names = [f"d{number}.test" for number in range(DOMAINS)]
    for number in range(BACKLOG):
        frontier.write(TASKS, names[number % DOMAINS], f"bulk/{number}", 5)
    first = [frontier.write(TASKS_URGENT, f"new-{name}", "urgent", 1) for name in names]
    assert not frontier.producer.flush(FLUSH_S)
    frontier.fleet.start()
    total = BACKLOG + len(first)
    until(lambda: sum(map(len, frontier.claims().values())) == total, "the whole backlog in the state", READ_S)
    keys = {url_key(url) for url in first}
    for claimed in frontier.claims().values():
        last = max(at for at, key in enumerate(claimed) if key in keys)
        assert last < len(claimed) / 2, "a partition's urgent tasks were read behind its backlog"
    assert sorted(first) == sorted(frontier.given_out(LANE_URGENT))
    assert 2 * DOMAINS == len(frontier.given_out(LANE_BULK))
    second = [frontier.write(TASKS_URGENT, name, "urgent", 1) for name in names]
    assert not frontier.producer.flush(FLUSH_S)
    until(lambda: len(frontier.given_out(LANE_URGENT)) == 2 * DOMAINS, "urgent tasks beside full windows", READ_S)
    assert sorted(second) == sorted(set(frontier.given_out(LANE_URGENT)) - set(first))
    assert 2 * DOMAINS == len(frontier.given_out(LANE_BULK))
