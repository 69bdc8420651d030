"""No site is asked before it allows it, whoever is killed: counted at the sites themselves."""

from __future__ import annotations

import json

import pytest

from tests.chaos.limits_run import LimitsRun


def told(verdict) -> str:
    """What a run has come to, for whoever looks for the cause."""
    return json.dumps(verdict.as_json(), indent=1)


@pytest.mark.broker
@pytest.mark.timeout(120)
def test_sites_are_asked_as_they_allow_through_kills_and_rebalances(tmp_path):
    """Crawl-delay, Retry-After in both forms, 429 without it, windows in every style; each kind of disruption once."""
    verdict = LimitsRun(tmp_path, 3, pages=12, disruptions=8, gap_s=(1.0, 2.5), limit_s=80.0).run()
    assert [] == verdict.wrong, told(verdict)
    assert 8 == len(verdict.done)


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [11, 12])
def test_sites_are_asked_as_they_allow_through_many_kills_and_rebalances(tmp_path, seed):
    """The longer the run the more often a wish is handed over: to a successor, through a lost disk, past a zombie."""
    verdict = LimitsRun(tmp_path, seed, pages=80, disruptions=28, gap_s=(1.5, 5.0), limit_s=500.0).run()
    assert [] == verdict.wrong, told(verdict)
    assert 28 == verdict.done.total()
