"""A real frontier worker that is killed at named points, between a feed and a fetch stage that are the test's own."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.frontier.records import TABLES
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.local.topic_judge import judge_topics
from pipeline.local.topic_reader import read_all
from pipeline.ops import topics
from pipeline.state.contract_rows import ContractRows
from pipeline.topics import FETCHES, FRONTIER_STATE, LANES, LINKS, PROGRESS, TASKS, TASKS_URGENT, all_names
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import canonicalize
from tests.chaos import clock
from tests.chaos.checker import wrong_stores
from tests.chaos.points import Action, Armed, arm, fired, is_armed
from tests.frontier_world import make_links, make_outcome, make_task

ROOT = Path(__file__).parents[2]
NAME = "frontier-0"
CRAWL = "default"
DOMAINS = 8
TASKS_FED, LINKS_FED = 12, 6
FAILS_FIRST = 3
"""One of so many URLs can't be fetched the first time."""
HELD_S = 0.1
"""An answer is so late: with a task out a fault may give it out again."""
LIMIT_S = 60.0
FLUSH_S = 10.0
FED_AS_FOUND = "link records without or beyond link records announced"
"""Nobody parses here: links come from the test."""
AT_SHUTDOWN = ("revoke", "drained", "revoked")
AT_RESTORE = ("restore_start", "restore_read", "restore_written", "restore_end", "offsets_read")


class FrontierRun:
    """Feeds, answers, kills and judges; a context manager.

    Args:
        directory: for everything; must be empty.

    Attributes:
        wrong: what was given out though it was out already, or under a number that was not its next.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._points = directory / "points"
        self._stack = LocalStack(directory / "local", registry=False)
        self._numbers = itertools.count()
        self._fed: set[str] = set()
        self._ended: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._out: dict[str, tuple[float, dict[str, Any], int]] = {}
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._stack.start()
        try:
            self._start()
        except BaseException:
            self._stack.stop()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._lanes.close()
        self._fleet.stop()
        self._stack.stop()

    def _start(self) -> None:
        clock_file = self._directory / "clock"
        environ = {
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self._stack.addresses.bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": "0.05",
            "HEADRACE_FRONTIER__RETRY_PAUSES_S": "[0.1]",
            "CHAOS_POINTS": str(self._points),
            "CHAOS_CLOCK": str(clock_file),
            "CHAOS_NAME": NAME,
            "PYTHONPATH": str(ROOT),
        }
        clock.shift(clock_file, 0.0)
        settings = with_addresses(load(environ=environ).settings, self._stack.addresses)
        options = client_options(settings.broker)
        topics.apply(options, settings)
        self._partitions = settings.topics.partitions
        self._codecs = load_codec()
        self._producer = Producer({**options, "enable.idempotence": True, "linger.ms": 1, "log_level": 3})
        reading = {"group.id": "chaos-fetch", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._lanes = Consumer({**options, **reading, "log_level": 3})
        places = [TopicPartition(lane.name, n, 0) for lane in LANES.values() for n in range(self._partitions)]
        self._lanes.assign(places)
        self._fleet = Fleet(self._directory, environ, {"frontier": 1}, command=("-m", "tests.chaos.faulty_worker"))
        self._worker = self._fleet.all[0]
        self._fleet.start()

    # ---- what is done

    def feed(self) -> None:
        """Write tasks, some urgent and some known already, and a record of links to pages of one domain."""
        for turn in range(TASKS_FED):
            number = next(self._numbers)
            url = f"http://d{number % DOMAINS}.test/{number}"
            self._submit(url, priority=1 + number % 5)
            if turn % 4 == 3:
                self._submit(url, priority=5)
        domain = f"d{next(self._numbers) % DOMAINS}.test"
        self._link([f"http://{domain}/{next(self._numbers)}" for _ in range(LINKS_FED)])
        self._producer.flush(FLUSH_S)

    def kill_at(self, point: str, passes: int = 1, *, lose_disk: bool = False) -> None:
        """Feed, let the worker end itself at a point, and wait until another one has ended all that was fed.

        Args:
            point: name of the point.
            passes: the worker ends when it passes it for this time.
            lose_disk: its state is lost with it.
        """
        restarts, delivered = self._worker.restarts, self._delivered.total()
        self.feed()
        arm(self._points, NAME, Armed(point, Action.KILL, passes=passes))
        if point in AT_RESTORE:
            self._worker.kill()
            lose_disk = True
        elif point in AT_SHUTDOWN:
            self._until(lambda: self._delivered.total() > delivered, "a worker that has partitions")
            self._worker.terminate()
        if lose_disk:
            self._until(lambda: self._worker.pid is None, "the end of the worker", alive=False)
            shutil.rmtree(self._directory / "state" / NAME)
        self._until(lambda: not is_armed(self._points, NAME, point), f"{point} to be passed")
        self._until(lambda: self._worker.restarts > restarts, "another worker")
        self.until_ended()

    def until_ended(self) -> None:
        """Wait until every URL has ended."""
        self._until(lambda: self._ended.keys() >= self._fed, "the end of all URLs")

    def points_passed(self) -> list[str]:
        """Return where the worker was killed, in order."""
        return [firing.point for firing in fired(self._points)]

    # ---- what has come of it

    def faults(self) -> list[str]:
        """End the worker and judge all topics, and its stores."""
        self._until(self._has_told_all, "the last progress")
        self._fleet.stop()
        held = {name: read_all(self._stack.addresses.bootstrap, name) for name, _ in all_names()}
        findings = judge_topics(held, self._codecs)
        changelog = FRONTIER_STATE
        rows = ContractRows(self._codecs.encoder(changelog.subject), self._codecs.decoder(changelog.subject))
        states = (self._directory / "state").glob("frontier-*")
        return [
            *self.wrong,
            *(f"ended more than once: {url}" for url, count in self._ended.items() if count > 1),
            *(f"never wished: {url}" for url in self._delivered.keys() - self._fed),
            *(f"{rule}: {found}" for rule, found in findings.faults.items() if rule != FED_AS_FOUND),
            *wrong_stores(held[changelog.name], states, TABLES, rows.unwrap),
        ]

    # ---- in between

    def _submit(self, url: str, priority: int) -> None:
        topic = TASKS_URGENT if priority == 1 else TASKS
        key = registrable_domain(canonicalize(url).host).encode()
        value = self._codecs.encode(TASKS.subject, make_task(url, CRAWL, priority=priority))
        self._producer.produce(topic.name, value, key, partition_for(key, self._partitions))
        self._fed.add(url)

    def _link(self, urls: list[str]) -> None:
        domain = registrable_domain(canonicalize(urls[0]).host)
        value = self._codecs.encode(LINKS.subject, make_links(urls, CRAWL))
        self._producer.produce(LINKS.name, value, partition=partition_for(domain.encode(), self._partitions))
        self._fed.update(urls)

    def _until(self, condition: Callable[[], object], what: str, *, alive: bool = True) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                left = sorted(self._fed - self._ended.keys())
                told = f"{len(left)} URLs have not ended, such as {left[:3]}, of which {sorted(self._out)[:3]} are out"
                raise AssertionError(f"waited {LIMIT_S} s for {what}; {told}; the worker: {self._worker.tail()}")
            if alive:
                self._fleet.look_after()
            self._play_fetch()

    def _play_fetch(self) -> None:
        """Take what is in the lanes, and answer what was taken a while ago."""
        for message in self._lanes.consume(100, 0.05):
            assert message.error() is None
            lane = self._codecs.decode(LANES["normal"].subject, message.value())
            url, number = lane["url"], lane["delivery"]
            if url in self._out:
                self.wrong.append(f"given out as {number} while {self._out[url][1]['delivery']} is out: {url}")
            if number != self._delivered[url] + 1:
                self.wrong.append(f"given out as {number} after {self._delivered[url]}: {url}")
            self._delivered[url] = number
            self._out[url] = time.monotonic(), lane, message.partition()
        for url, (since_s, lane, partition) in list(self._out.items()):
            if time.monotonic() - since_s < HELD_S:
                continue
            del self._out[url]
            fails = lane["delivery"] == 1 and int(url.rpartition("/")[2]) % FAILS_FIRST == 0
            outcome = make_outcome(lane, "NETWORK_ERROR" if fails else "ROBOTS_DENIED", time.time())
            self._ended[url] += not fails
            key = registrable_domain(canonicalize(url).host).encode()
            self._producer.produce(FETCHES.name, self._codecs.encode(FETCHES.subject, outcome), key, partition)
        self._producer.flush(FLUSH_S)

    def _has_told_all(self) -> bool:
        rows = read_all(self._stack.addresses.bootstrap, PROGRESS.name)
        newest = {row.partition: self._codecs.decode(PROGRESS.subject, row.value) for row in rows}
        return not any(progress["waiting"] or progress["out"] for progress in newest.values())
