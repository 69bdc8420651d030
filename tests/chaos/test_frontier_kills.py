"""The frontier is killed at any point: no URL is lost, none is scheduled twice."""

from __future__ import annotations

import pytest

from tests.chaos.frontier_run import AT_RESTORE, AT_SHUTDOWN, FrontierRun
from tests.chaos.points import POINTS, Action

pytestmark = pytest.mark.broker

IN_TRANSACTION = [name for name, actions in POINTS.items() if Action.KILL in actions and name not in AT_RESTORE]
SHORT = ("after_produce", "after_offsets", "before_commit", "after_commit", "after_apply", "drained", "restore_written")


@pytest.mark.timeout(120)
def test_killed_once_at_each_kind_of_point_it_loses_no_url_and_gives_none_out_twice(tmp_path):
    """Outputs, state and positions are one transaction: what is half done is undone, what is done is not done again."""
    with FrontierRun(tmp_path) as run:
        for point in SHORT:
            run.kill_at(point)
        assert list(SHORT) == run.points_passed()
        assert [] == run.faults()


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("passes", [1, 2, 5])
def test_killed_at_every_point_it_loses_no_url_and_gives_none_out_twice(tmp_path, passes):
    """A transaction's later records and later transactions too; every third time its disk is lost with it."""
    with FrontierRun(tmp_path) as run:
        points = [*IN_TRANSACTION, *AT_RESTORE]
        for number, point in enumerate(points):
            once = point in (*AT_SHUTDOWN, *AT_RESTORE)
            run.kill_at(point, 1 if once else passes, lose_disk=number % 3 == 0)
        assert points == run.points_passed()
        assert [] == run.faults()
