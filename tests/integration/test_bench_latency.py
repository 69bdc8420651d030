"""The benchmark of idle latency measures what it says."""

from __future__ import annotations

import pytest

from bench.latency import LEGS, Latencies, measure


def test_percentiles_are_values_that_were_measured():
    """The nearest rank: no figure lies between two measurements."""
    assert (50, 90, 99, 100) == Latencies.of(range(1, 101))
    assert (7, 7, 7, 7) == Latencies.of([7])
    assert (1, 2, 2, 2) == Latencies.of([2, 1])


@pytest.mark.broker
def test_the_legs_of_a_task_add_up_to_its_latency(tmp_path):
    """A profile that leaves time out would send people looking in the wrong place."""
    measured = measure(1, 0.6, tmp_path)
    assert set(LEGS) == set(measured.legs)
    assert abs(measured.total.p50 - sum(leg.p50 for leg in measured.legs.values())) < 0.001
    assert 0 < measured.total.p50 < 10
