"""What the frontier has parked, as Prometheus series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric


class Parked(Protocol):
    """What is parked in a partition, as the frontier counts it."""

    @property
    def domains(self) -> int: ...

    @property
    def tasks(self) -> int: ...

    @property
    def until_ms(self) -> int: ...


class ParkedGauges:
    """A collector; register it with the worker's registry.

    Args:
        parked: what is parked, by partition; read at each scrape.
    """

    def __init__(self, parked: Mapping[int, Parked]) -> None:
        self._parked = parked

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges, all partitions of the worker together."""
        parked = list(dict(self._parked).values())
        figures = (
            ("domains", "Domains whose next request is more than a minute away.", sum(row.domains for row in parked)),
            ("tasks", "Tasks that wait for such a domain.", sum(row.tasks for row in parked)),
            (
                "until_timestamp_seconds",
                "When the last of them may be asked again, seconds since the epoch; 0 for none.",
                max((row.until_ms for row in parked), default=0) / 1000,
            ),
        )
        for name, meaning, value in figures:
            family = GaugeMetricFamily(f"headrace_parked_{name}", meaning, labels=["stage"])
            family.add_metric(["frontier"], value)
            yield family
