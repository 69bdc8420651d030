"""The monitor: a plain process that reads the lag of every group and the progress of every crawl from outside.

It works when every worker is dead, which is when its figures are needed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.config import Settings, client_options
from pipeline.contracts.codec import Codecs
from pipeline.delivery.cluster_client import ClusterClient
from pipeline.delivery.global_table import GlobalTable
from pipeline.delivery.open_transactions import OFFSETS_TOPIC
from pipeline.errors import BrokerError
from pipeline.ops.endpoint import Health
from pipeline.ops.lag import LagReader, PartitionLag
from pipeline.ops.uncommitted import Partition, Tail, TailWatch, read_tails
from pipeline.topics import INPUTS, PROGRESS, all_names, group_id

log = logging.getLogger(__name__)

STALE_ROUNDS = 5


class Monitor:
    """Looks at the cluster in rounds and remembers the last one.

    Args:
        settings: the whole configuration.
        codecs: contracts.
        interval_s: pause between rounds.
    """

    def __init__(self, settings: Settings, codecs: Codecs, interval_s: float) -> None:
        options = client_options(settings.broker)
        self._settings = settings
        self._interval_s = interval_s
        self._reader = LagReader(options)
        self._progress = GlobalTable(
            options, PROGRESS.name, settings.topics.partitions, codecs.decoder(PROGRESS.subject)
        )
        self._lags: dict[str, list[PartitionLag]] = {}
        self._read_at: dict[str, float] = {}
        self._tails = TailWatch()
        self._rounds = 0

    def start(self) -> None:
        """Begin to follow the crawls' progress."""
        self._progress.start()

    def close(self) -> None:
        """End all clients."""
        self._progress.stop()
        self._reader.close()

    def look(self) -> None:
        """Do one round. A group whose lag can't be read has none until it can: absent is better than wrong."""
        self._rounds += 1
        for stage, topics in INPUTS.items():
            names = [topic.name for topic in topics]
            try:
                self._lags[stage] = self._reader.read(group_id(stage), names, self._settings.topics.partitions)
                self._read_at[stage] = time.time()
            except BrokerError as exc:
                log.warning("%s", exc)
                self._lags.pop(stage, None)
        try:
            self._tails.look(asyncio.run(self._read_tails()), time.monotonic())
        except BrokerError as exc:
            log.warning("%s", exc)
            self._tails.look({}, time.monotonic())

    async def _read_tails(self) -> dict[Partition, Tail]:
        async with ClusterClient(self._settings.broker) as client:
            return await read_tails(client, [*(name for name, _ in all_names()), OFFSETS_TOPIC])

    def run(self) -> None:
        """Look until the process is ended."""
        while True:
            began_s = time.monotonic()
            self.look()
            time.sleep(max(0.0, self._interval_s - (time.monotonic() - began_s)))

    def health(self) -> Health:
        """Red while the figures are old."""
        oldest = min((self._read_at.get(stage, 0.0) for stage in INPUTS), default=0.0)
        age_s = time.time() - oldest
        limit_s = STALE_ROUNDS * self._interval_s + 10
        return Health(age_s < limit_s, "figures are fresh" if age_s < limit_s else "figures are old or missing")

    def status(self) -> dict[str, Any]:
        """Return lag by stage and topic, and the progress of each crawl by partition."""
        crawls: dict[str, dict[int, Mapping[str, Any]]] = {}
        for row in self._progress.rows().values():
            crawls.setdefault(row["crawl"], {})[row["partition"]] = row
        return {
            "round": self._rounds,
            "lag": {
                stage: {
                    topic: sum(lag.lag for lag in lags if lag.topic == topic) for topic in {lag.topic for lag in lags}
                }
                for stage, lags in list(self._lags.items())  # another thread looks meanwhile
            },
            "crawls": {crawl: list(rows.values()) for crawl, rows in crawls.items()},
        }

    def register(self, registry: CollectorRegistry) -> None:
        """Add the figures to a Prometheus registry."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of the last round."""
        labels = ["group", "topic", "partition"]
        families = {
            "lag": GaugeMetricFamily(
                "headrace_group_lag", "Offsets left to do, finished ones left out.", labels=labels
            ),
            "committed": GaugeMetricFamily("headrace_group_committed_offset", "Committed offset.", labels=labels),
            "end": GaugeMetricFamily("headrace_group_end_offset", "Last stable offset.", labels=labels),
            "finished_ahead": GaugeMetricFamily(
                "headrace_group_finished_ahead", "Offsets finished beyond the committed one.", labels=labels
            ),
            "never_committed": GaugeMetricFamily(
                "headrace_group_never_committed",
                "1 where the group never committed: its lag is then what it would read from the start.",
                labels=labels,
            ),
        }
        for lags in list(self._lags.values()):
            for lag in lags:
                place = [lag.group, lag.topic, str(lag.partition)]
                for name, family in families.items():
                    value = getattr(lag, name)
                    if value is not None:
                        family.add_metric(place, value)
        yield from families.values()
        age = GaugeMetricFamily("headrace_lag_age_seconds", "Age of the figures of a group.", labels=["group"])
        for stage, read_at in list(self._read_at.items()):
            age.add_metric([group_id(stage)], time.time() - read_at)
        yield age
        yield from self._collect_tails()

    def _collect_tails(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        held_back = GaugeMetricFamily(
            "headrace_partition_uncommitted_tail",
            "Offsets behind an open transaction: high watermark less last stable offset.",
            labels=labels,
        )
        stands = GaugeMetricFamily(
            "headrace_partition_held_back_seconds",
            "How long the last stable offset has stood still with something behind it.",
            labels=labels,
        )
        for tail in self._tails.standing(time.monotonic()):
            place = [tail.topic, str(tail.partition)]
            held_back.add_metric(place, tail.held_back)
            stands.add_metric(place, tail.stands_s)
        yield held_back
        yield stands
