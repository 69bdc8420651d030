"""What a worker's state takes, as Prometheus series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from pipeline.state.memory import StoreMemory


class StateGauges:
    """A collector; register it with the worker's registry.

    Args:
        stage: value of the label `stage`.
        memory: of the process's stores; read at each scrape.
    """

    def __init__(self, stage: str, memory: StoreMemory) -> None:
        self._stage = stage
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, all partitions of the worker together."""
        rows: Counter[str] = Counter()
        filter_bytes = disk_bytes = 0
        for store in list(self._memory.stores):
            figures = store.figures()
            if figures is not None:
                rows.update(figures.rows)
                filter_bytes += figures.filter_bytes
                disk_bytes += figures.disk_bytes
        family = GaugeMetricFamily("headrace_state_rows", "Rows of the state, estimated.", labels=["stage", "table"])
        for table, count in rows.items():
            family.add_metric([self._stage, table], count)
        yield family
        for name, meaning, value in (
            ("filter", "Memory for filters and indexes of the state's files.", filter_bytes),
            ("cache", "Memory for rows that were read.", self._memory.cache.get_usage()),
            ("buffer", "Memory for rows that are not in files yet.", self._memory.buffers.get_usage()),
            ("disk", "What the state's files take.", disk_bytes),
        ):
            gauge = GaugeMetricFamily(f"headrace_state_{name}_bytes", meaning, labels=["stage"])
            gauge.add_metric([self._stage], value)
            yield gauge
