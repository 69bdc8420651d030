"""A small compacted topic that every worker holds whole: crawl definitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pipeline.errors import InputError

log = logging.getLogger(__name__)

GROUP = "headrace-tables"
POLL_S = 0.2


class GlobalTable:
    """Follows all partitions of a topic in a thread of its own; commits nothing.

    Args:
        options: librdkafka options of the cluster.
        topic: a compacted topic; its keys are UTF-8.
        partitions: how many it has.
        decode: record value → row; a value it refuses is left out and logged.
    """

    def __init__(
        self, options: Mapping[str, str], topic: str, partitions: int, decode: Callable[[bytes], Mapping[str, Any]]
    ) -> None:
        self._options = {
            **options, "group.id": GROUP, "enable.auto.commit": False, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "enable.partition.eof": True, "fetch.wait.max.ms": 100,
        }  # fmt: skip
        self._topic = topic
        self._partitions = partitions
        self._decode = decode
        self._rows: dict[str, Mapping[str, Any]] = {}
        self._stop = threading.Event()
        self._read_whole = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"table {topic}", daemon=True)

    def start(self) -> None:
        """Begin to follow the topic."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(5)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the topic has been read whole once; False when it took longer."""
        return self._read_whole.wait(timeout_s)

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return the newest row of a key, None where there is none (yet)."""
        return self._rows.get(key)

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return all rows."""
        return dict(self._rows)

    def _follow(self) -> None:
        consumer = Consumer(self._options)
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
        behind = set(range(self._partitions))
        try:
            while not self._stop.is_set():
                for message in consumer.consume(1_000, POLL_S):
                    error = message.error()
                    if error is None:
                        self._note(message.key() or b"", message.value())
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the public name of the constant
                        behind.discard(message.partition() or 0)
                        if not behind:
                            self._read_whole.set()
                    else:
                        log.warning("table %s: %s", self._topic, error)
        finally:
            consumer.close()

    def _note(self, key: bytes, value: bytes | None) -> None:
        name = key.decode(errors="replace")
        if value is None:
            self._rows.pop(name, None)
            return
        try:
            self._rows[name] = self._decode(value)
        except InputError as exc:
            log.warning("table %s, key %s: %s", self._topic, name, exc)
