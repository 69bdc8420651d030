"""Feeds toy stages while things go wrong; what it wrote is known only from the topics, as for everybody else."""

from __future__ import annotations

import abc
import random
import threading
import time
from collections.abc import Sequence

from confluent_kafka import KafkaError, Producer

FLUSH_S = 120.0
TICK_S = 0.05
POISON_SHARE = 0.005
KNOWN_KEY_SHARE = 0.4


class Writer(abc.ABC):
    """Writes in a thread of its own, through a broker's absence too; whatever was refused fails at the end.

    Args:
        bootstrap: address of the broker, which may go away for a while.
        flush_s: how long the last records may take.
    """

    def __init__(self, bootstrap: str, flush_s: float) -> None:
        self._flush_s = flush_s
        self._stop = threading.Event()
        self._refused: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,  # in order and once, through a broker's death too
                "message.timeout.ms": int(flush_s * 1000),
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once everything is written."""
        self._stop.set()
        self._thread.join()
        assert 0 == self._producer.flush(self._flush_s)
        assert [] == self._refused

    @abc.abstractmethod
    def _run(self) -> None:
        """Write until `_stop` is set."""

    def _report(self, error: KafkaError | None, message: object) -> None:
        del message
        if error is not None:
            self._refused.append(error)


class Feeder(Writer):
    """Writes records with values that are all different, some of them poison, keys old and new.

    Args:
        bootstrap: address of the broker, which may go away for a while.
        topics: where each record goes.
        rate_per_s: records a second and topic.
        seed: of what is written.
        bodies: what the records say besides their number, in turn.
    """

    def __init__(
        self, bootstrap: str, topics: list[str], rate_per_s: float, seed: int, bodies: Sequence[bytes] = ()
    ) -> None:
        super().__init__(bootstrap, FLUSH_S)
        self._topics = topics
        self._rate_per_s = rate_per_s
        self._bodies = bodies
        self._random = random.Random(seed)

    def _run(self) -> None:
        number, began_s = 0, time.monotonic()
        while not self._stop.wait(TICK_S):
            due = int((time.monotonic() - began_s) * self._rate_per_s)
            for number in range(number, due):  # noqa: B020  # goes on where the last round ended
                self._write(number)
            number = due
            self._producer.poll(0)

    def _write(self, number: int) -> None:
        key = number
        if number and self._random.random() < KNOWN_KEY_SHARE:
            key = self._random.randrange(number)
        verb = "poison" if self._random.random() < POISON_SHARE else "v"
        value = f"{verb}:{number}".encode()
        if self._bodies:
            value += b":" + self._bodies[number % len(self._bodies)]
        for topic in self._topics:
            self._producer.produce(topic, value, f"k{key}".encode(), on_delivery=self._report)
