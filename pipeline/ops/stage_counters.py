"""Counters that a pure stage keeps, as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric


class StageCounters:
    """A collector; register it with the worker's registry.

    Args:
        stage: value of the label `stage`.
        counters: name → count since the worker started; read at each scrape.
    """

    def __init__(self, stage: str, counters: Mapping[str, int]) -> None:
        self._stage = stage
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the counters."""
        family = CounterMetricFamily("headrace_stage_events", "What a stage has counted.", labels=["stage", "event"])
        for name, count in dict(self._counters).items():
            family.add_metric([self._stage, name], count)
        yield family
