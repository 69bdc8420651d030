from __future__ import annotations

import pytest

from tests.chaos.harness import ChaosRun
from tests.chaos.settings import ChaosSettings

SHORT_S = 25.0
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
