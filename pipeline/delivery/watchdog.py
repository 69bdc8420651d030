"""Notices what heartbeats hide: intake that stands still while there is something to read, and a worker that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import Consumer, TopicPartition
from faust.types import TP

from pipeline.delivery.exits import ExitCode, exit_now

CALL_TIMEOUT_S = 5.0
LOOK_S = 1.0


class EndOffsets:
    """Reads how far a read_committed reader could get. Blocking; for an executor thread.

    Args:
        options: librdkafka options of the cluster.
        group: consumer group id; it is never joined.
    """

    def __init__(self, options: Mapping[str, str], group: str) -> None:
        self._options = {
            **options, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed",
        }  # fmt: skip
        self._consumer: Consumer | None = None

    def read(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """Return the last stable offset of each partition.

        Raises:
            KafkaException: the cluster did not say.
        """
        consumer = self._consumer = self._consumer or Consumer(self._options)
        return {
            tp: consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=CALL_TIMEOUT_S)[1]
            for tp in partitions
        }


class IntakeWatch:
    """Since when each partition has had something to read that has not arrived.

    Faust can lose sight of an assigned partition, an agent can die, a batch can be dropped at the tail of a partition:
    in each case heartbeats and commits of the other partitions go on, and only this comparison tells.
    """

    def __init__(self) -> None:
        self._seen: dict[TP, tuple[int, float]] = {}

    def unmoved(self, positions: Mapping[TP, int]) -> list[TP]:
        """Return the partitions whose position is the one of the last look: only their ends need to be asked for."""
        return [tp for tp, position in positions.items() if self._seen.get(tp, (-1, 0.0))[0] == position]

    def look(self, positions: Mapping[TP, int], ends: Mapping[TP, int], now_s: float) -> None:
        """Take what is known now.

        Args:
            positions: up to where records have arrived, of every partition that is meant to be read.
            ends: how far they could be read, where it was asked for.
            now_s: monotonic seconds.
        """
        seen = {}
        for tp, position in positions.items():
            before, since_s = self._seen.get(tp, (position, now_s))
            behind = position == before and ends.get(tp, position) > position
            seen[tp] = position, since_s if behind else now_s
        self._seen = seen

    def longest(self, now_s: float) -> tuple[TP, int, float] | None:
        """Return the partition that has waited longest, its position and for how many seconds; None without any."""
        waiting = [(now_s - since_s, tp, position) for tp, (position, since_s) in self._seen.items() if since_s < now_s]
        if not waiting:
            return None
        waited_s, tp, position = max(waiting)
        return tp, position, waited_s

    def clear(self) -> None:
        """Forget everything: partitions have gone, or the cluster does not say how far they go."""
        self._seen.clear()


class Watchdog:
    """Ends the process when a complaint lasts, from a thread of its own: a stuck event loop can't hinder it.

    Args:
        complaint: asked each second; empty while all is well.
        patience_s: how long a complaint may last.
    """

    def __init__(self, complaint: Callable[[], str], patience_s: float) -> None:
        self._complaint = complaint
        self._patience_s = patience_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more: the shutdown has a watchdog of its own."""
        self._stopped.set()

    def _watch(self) -> None:
        since_s: float | None = None
        while not self._stopped.wait(LOOK_S):
            complaint = self._complaint()
            if not complaint:
                since_s = None
            elif since_s is None:
                since_s = time.monotonic()
            elif time.monotonic() - since_s > self._patience_s:
                exit_now(f"this worker ends, starting it again is the cure: {complaint}", ExitCode.BUG)
