"""The benchmark of delivery runs real workers; here on a handful of records."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import pytest

from bench import commit_cost
from bench.delivery import GOAL_PER_S, KINDS, SMALL_BYTES, Bench, Kind, Measured, commit_table_of, good, table_of
from bench.record_events import _cut
from pipeline.delivery.assignment import Batch
from tests.fakes import FakeRecord

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def bench(broker, tmp_path_factory):
    """A small input on the session's broker."""
    made = Bench(broker.bootstrap, getattr(broker, "pid", os.getpid()), tmp_path_factory.mktemp("bench"))
    made.fill(SMALL_BYTES, 60_000)
    return made


@pytest.mark.parametrize(
    "kind", [KINDS[0], Kind("parallel", "pass", SMALL_BYTES, record_events=True), Kind("ordered", "dedup", SMALL_BYTES)]
)
def test_a_worker_measures_itself_and_ends(bench, kind):
    """Each kind of worker must do its work and tell of it: also the ones that are only there to compare with."""
    measured = bench.run(kind, 1.0)
    assert kind.name == measured.name
    assert 0 < measured.records <= 60_000
    assert measured.rate_per_s > 0
    assert measured.cpu_us > 0
    assert (kind.runner != "faust") == (measured.commits > 0)
    json.dumps(asdict(measured))
    assert 1 == table_of([measured]).row_count


async def test_transactions_are_timed_by_partitions_touched(broker):
    """The identity must be one that the broker checks and takes, or nothing is measured."""
    (cost,) = await commit_cost.measure(broker.bootstrap, getattr(broker, "pid", os.getpid()), 3, (2,))
    assert 2 == cost.touched
    assert 0 < cost.spaced.p50 <= cost.spaced.p99
    assert cost.per_s > 0
    assert 1 == commit_table_of([cost]).row_count


def test_cut_batches_are_a_chain():
    """A hole between two of them would end the worker; control records at the end belong to the last."""
    records = [FakeRecord("t", b"", b"", 0, offset=offset) for offset in (5, 6, 9)]
    parts = _cut(Batch(records, 4, 12, None))
    assert [(4, 6), (6, 7), (7, 12)] == [(part.start, part.end) for part in parts]
    assert [[record] for record in records] == [list(part.records) for part in parts]
    assert [Batch((), 3, 4, None)] == _cut(Batch((), 3, 4, None))


def row(kind: Kind, rate_per_s: float) -> Measured:
    """A worker, invented."""
    return Measured(kind.name, kind.value_bytes, 1, rate_per_s, 1.0, 1.0, 1, 0.1)


def test_every_runner_of_ours_has_to_reach_the_goal():
    """One that is quick does not make up for the other; plain Faust, and one event a record, have no goal."""
    ours = [Kind(runner, "pass", SMALL_BYTES) for runner in ("parallel", "ordered")]
    quick = [row(kind, GOAL_PER_S) for kind in ours]
    assert good([row(KINDS[0], 1), row(KINDS[1], 1), *quick])
    assert not good([quick[0], row(ours[1], GOAL_PER_S - 1)])
