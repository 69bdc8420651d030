"""Bringing work in: crawl definitions and tasks, written by an idempotent producer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from pipeline.contracts.codec import Codecs
from pipeline.errors import BrokerError, InputError
from pipeline.ops.crawl_definitions import check_definition
from pipeline.tasks.records import topic_of
from pipeline.topics import CRAWLS, TASKS
from pipeline.web.domains import registrable_domain
from pipeline.web.url import canonicalize

FLUSH_S = 30.0
PRIORITIES = range(1, 6)


def crawl_id(start_urls: Sequence[str], scope: Sequence[Mapping[str, str]], max_depth: int | None) -> str:
    """Name a crawl by its start points and scope, so that the same command means the same crawl.

    Args:
        start_urls: canonical.
        scope: ordered rules, as in the contract.
        max_depth: links followed; another depth is another crawl.
    """
    digest = hashlib.blake2b(digest_size=8)
    for url in sorted(start_urls):
        digest.update(url.encode() + b"\0")
    for rule in scope:
        of_source = f" {rule['source']}" if rule.get("source") else ""
        digest.update(f"{rule['action']} {rule['pattern']}{of_source}\0".encode())
    digest.update(str(max_depth).encode())
    return f"crawl-{digest.hexdigest()}"


class Submission:
    """Writes tasks and crawl definitions.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
    """

    def __init__(self, options: Mapping[str, str], codecs: Codecs) -> None:
        self._producer = Producer(
            {
                **options,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 1,
                "log_level": 3,  # errors: a coordinator that is still loading is no news for a person at a terminal
            }
        )
        self._encode_task = codecs.encoder(TASKS.subject)
        self._encode_crawl = codecs.encoder(CRAWLS.subject)
        self._failures: list[str] = []

    def define(self, crawl: Mapping[str, Any]) -> None:
        """Write a crawl definition (`crawl.crawls.v1-value`).

        Raises:
            ConfigurationError: the definition is wrong, see `check_definition`; nothing has been written then.
        """
        check_definition(crawl)
        self._produce(CRAWLS.name, self._encode_crawl(crawl), crawl["crawl"].encode())

    def submit(self, urls: Iterable[str], crawl: str, priority: int, now: float, source: str = "") -> int:
        """Write one task for each URL.

        Args:
            urls: as wished.
            crawl: id of the crawl they belong to.
            priority: 1 (urgent) to 5 (bulk).
            now: seconds since the epoch.
            source: name of the sender.

        Returns:
            How many.

        Raises:
            InputError: a URL or the priority is unusable; nothing has been written then.
        """
        if priority not in PRIORITIES:
            raise InputError("invalid_task", f"{priority} is not 1 (urgent) to 5 (bulk)", "priority")
        tasks = [canonicalize(url) for url in urls]
        topic = topic_of(priority)
        for canonical in tasks:
            task = {
                "crawl": crawl,
                "url": canonical.wire,
                "priority": priority,
                "depth": 0,
                "source": source,
                "submitted_at_ms": int(now * 1000),
            }
            key = registrable_domain(canonical.host).encode()
            self._produce(topic.name, self._encode_task(task), key)
        return len(tasks)

    def flush(self) -> None:
        """Wait until everything is on the broker.

        Raises:
            BrokerError: something could not be delivered.
        """
        left = self._producer.flush(FLUSH_S)
        if left or self._failures:
            raise BrokerError(f"{left + len(self._failures)} records could not be delivered: {self._failures[:1]}")

    def _produce(self, topic: str, value: bytes, key: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._note)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _note(self, error: object, message: object) -> None:
        del message
        if error is not None:
            self._failures.append(str(error))
