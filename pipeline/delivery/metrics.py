"""What a worker tells of its delivery, as Prometheus series. Faust's own sensors count batches, not records."""

from __future__ import annotations

from collections.abc import Mapping

from faust.types import TP
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pipeline.state.changelog import Restored

TRANSACTION_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)
LATENCY_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 300)


class DeliveryMetrics:
    """Series of one worker.

    Args:
        registry: where they are registered.
        stage: value of the label `stage`.
    """

    def __init__(self, registry: CollectorRegistry, stage: str) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"headrace_{name}", text, ["stage", *labels], registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"headrace_{name}", text, ["stage", *labels], registry=registry)

        self.records = counter("records", "Input records finished.").labels(stage)
        self.outputs = counter("outputs", "Records published.").labels(stage)
        self.commits = counter("commits", "Transactions committed.").labels(stage)
        self.aborts = counter("aborts", "Transactions aborted.").labels(stage)
        self.fenced = counter("fenced", "Transactions refused because the partitions had moved.").labels(stage)
        self.skipped = counter("skipped", "Records found finished already after an assignment.").labels(stage)
        self.cancelled = counter("cancelled", "Records cancelled at a revoke and left to the next owner.").labels(stage)
        self.unreadable_maps = counter("unreadable_offset_maps", "Commit metadata that could not be read.").labels(
            stage
        )
        self.restored = counter("restored_changes", "Changelog records read at assignments.").labels(stage)
        self.foreign = counter("foreign_changes", "Changelog records of no table of ours, passed over.").labels(stage)
        self.restore_s = counter("restore_seconds", "Time spent reading changelogs.").labels(stage)
        self.in_flight = gauge("in_flight", "Records started and not finished.").labels(stage)
        self.assigned = gauge("assigned_partitions", "Partition numbers this worker owns.").labels(stage)
        self.breaker_open = gauge(
            "breaker_open", "Partitions stopped because too much went to the dead letters."
        ).labels(stage)
        self.last_commit = gauge("last_commit_timestamp_seconds", "When the last transaction committed.").labels(stage)
        self.transaction_s = Histogram(
            "headrace_transaction_seconds", "Length of a transaction.", ["stage"],
            buckets=TRANSACTION_BUCKETS_S, registry=registry,
        ).labels(stage)  # fmt: skip
        self.latency_s = Histogram(
            "headrace_stage_latency_seconds", "From timestamp to commit: a partition's oldest record.", ["stage"],
            buckets=LATENCY_BUCKETS_S, registry=registry,
        ).labels(stage)  # fmt: skip
        self._dead_letters = counter("dead_letters", "Dead letters by reason.", "reason")
        self._lag = gauge("lag", "Offsets left to do, finished ones left out.", "topic", "partition")
        self._stage = stage

    def lags(self, left: Mapping[TP, int]) -> None:
        """Replace the lags: partitions that went to somebody else are absent, not stale."""
        self._lag.clear()
        for tp, offsets in left.items():
            self._lag.labels(self._stage, tp.topic, str(tp.partition)).set(offsets)

    def dead_letter(self, reason: str) -> None:
        """Count one."""
        self._dead_letters.labels(self._stage, reason).inc()

    def note_restore(self, restored: Restored) -> None:
        """Count what was read to bring a store up to its changelog."""
        self.restored.inc(restored.records)
        self.restore_s.inc(restored.seconds)
        self.foreign.inc(restored.foreign)
