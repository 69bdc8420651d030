from __future__ import annotations

import os
import random

import pytest

from tests.chaos.harness import ChaosRun
from tests.chaos.plan import plan

SHORT_S = 20.0
ROUND_S = 120.0
BROKER_KILL_EVERY_S = 30.0
MINUTES = float(os.environ.get("CHAOS_MINUTES", "10"))
SEED = os.environ.get("CHAOS_SEED")


def test_the_same_seed_gives_the_same_faults():
    """A run that found something can be had again."""
    assert plan(7, 100.0, 4, 6.0, 3) == plan(7, 100.0, 4, 6.0, 3)
    assert plan(7, 100.0, 4, 6.0, 3) != plan(8, 100.0, 4, 6.0, 3)


@pytest.mark.broker
def test_every_record_comes_out_once_whatever_is_killed(tmp_path):
    """The promise of the delivery core, with overlapping faults and one dead broker."""
    seed = int(SEED or 1)
    assert [] == ChaosRun(tmp_path, seed, SHORT_S, broker_kills=1).run(), f"CHAOS_SEED={seed}"


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_the_promise_holds_for_long(tmp_path):
    """Rounds of two minutes with seeds of their own, for `make chaos MINUTES=…`."""
    first = int(SEED or random.SystemRandom().randrange(1_000_000))
    for number in range(max(1, round(MINUTES * 60 / ROUND_S))):
        seed = first + number
        kills = round(ROUND_S / BROKER_KILL_EVERY_S)
        assert [] == ChaosRun(tmp_path / str(seed), seed, ROUND_S, kills).run(), f"CHAOS_SEED={seed}"
