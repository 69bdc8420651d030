from __future__ import annotations

from prometheus_client import CollectorRegistry

from pipeline.frontier.parked import Parked
from pipeline.ops.parked_gauges import ParkedGauges


def test_what_is_parked_is_told_for_all_partitions_together():
    """An operator sees that a crawl waits for a site, for how much of it, and until when at most."""
    parked = {}
    registry = CollectorRegistry()
    registry.register(ParkedGauges(parked))

    def told() -> list[float | None]:
        names = ("domains", "tasks", "until_timestamp_seconds")
        return [registry.get_sample_value(f"headrace_parked_{name}", {"stage": "frontier"}) for name in names]

    assert [0, 0, 0] == told()
    parked.update({0: Parked(1, 20, 1_700_000_000_500), 3: Parked(2, 5, 1_600_000_000_000)})
    assert [3, 25, 1_700_000_000.5] == told()
