"""The benchmark of sending clients tells of each what it says."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

import pytest

from bench.clients import GOAL_P99_S, GOAL_PER_S, Measured, measure, table_of
from bench.latency import Latencies
from bench.senders import BASELINE, Load, Sent

TRANSACTIONAL = "confluent-kafka, transactional, 50 ms"


@pytest.mark.broker
@pytest.mark.parametrize("name", [BASELINE, "aiokafka, idempotent", TRANSACTIONAL])
def test_every_kind_of_client_is_measured_twice(broker, name):
    """A row without latencies, or of messages that were never acknowledged, would be no comparison."""
    measured = measure(name, broker.bootstrap, getattr(broker, "pid", os.getpid()), Load(0.3, 50))
    for run in (measured.fastest, measured.fixed):
        assert 0 < run.acknowledged.p50 <= run.acknowledged.p99
        assert (name == TRANSACTIONAL) == (run.committed is not None)
    assert 0 == measured.fastest.asked_per_s
    assert measured.fastest.rate_per_s / 2 == pytest.approx(measured.fixed.asked_per_s) or (
        GOAL_PER_S == measured.fixed.asked_per_s
    )
    json.dumps(asdict(measured))


def sent(rate_per_s: float, p99: float) -> Sent:
    """A run, invented."""
    return Sent(rate_per_s, 0, Latencies(p99 / 2, p99, p99, p99), None, 0.01, 0.02)


def test_the_goal_asks_for_rate_and_latency_in_one_run():
    """Fast in one run and quick in another is neither."""
    fast, quick = sent(GOAL_PER_S, 2 * GOAL_P99_S), sent(GOAL_PER_S / 2, GOAL_P99_S)
    assert not Measured("", fast, quick).good
    assert Measured("", fast, replace(quick, rate_per_s=GOAL_PER_S)).good


def test_the_ratio_stands_last():
    """Whoever reads one column reads that one."""
    rows = [Measured(BASELINE, sent(10_000, 0.01), sent(5_000, 0.01)), Measured("x", sent(95_000, 0.01), sent(1, 0.01))]
    assert ["1.0", "9.5"] == list(table_of(rows, "", fixed=False).columns[-1].cells)
