from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.chaos.harness import ChaosRun
from tests.chaos.report import Report
from tests.chaos.settings import ChaosSettings, from_environment

SHORT_S = 25.0
ROUND_S = 120.0
MINUTES = float(os.environ.get("CHAOS_MINUTES", "10"))
SHORT = ChaosSettings(
    # Sixteen faults, one of each kind, before the time is over, with an action at a point that is reached.
    seed=1,
    duration_s=SHORT_S,
    stages=("stateful", "ordered"),
    workers=2,
    gap_s=(0.4, 2.2),
)


@pytest.mark.broker
@pytest.mark.timeout(400)
def test_every_record_comes_out_once_whatever_goes_wrong(tmp_path):
    """The promise of the delivery core, with overlapping faults of every kind."""
    report = ChaosRun(tmp_path, SHORT).run()
    assert [] == report.wrong, report.table()


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_the_promise_holds_for_long(tmp_path, capsys):
    """Rounds of two minutes with seeds of their own, for `make chaos MINUTES=…`."""
    first = from_environment(os.environ, ROUND_S)
    total = Report()
    for number in range(max(1, round(MINUTES * 60 / ROUND_S))):
        settings = replace(first, seed=first.seed + number)
        total.add(ChaosRun(tmp_path / str(settings.seed), settings).run())
        assert [] == total.wrong, f"CHAOS_SEED={settings.seed}\n{total.table()}"
    with capsys.disabled():
        print(f"\n{total.table()}")  # noqa: T201  # what the run was for
