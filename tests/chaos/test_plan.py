from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.plan import OF_BROKER, OF_STAGE, STATE_POINTS, WEIGHTS, AtPoint, Cut, Kind, plan
from tests.chaos.points import POINTS, Action
from tests.chaos.proxy import Mode
from tests.chaos.schedule import Schedule
from tests.chaos.settings import from_environment

LONG_S = 20_000.0


def faults(seed=7, duration_s=LONG_S, **options):
    """A plan of two stages with three workers each."""
    return plan(seed, duration_s, stages=2, workers=3, session_s=6.0, **options)


def test_the_same_seed_gives_the_same_faults():
    """A run that found something can be had again."""
    assert faults() == faults()
    assert faults() != faults(8)


def test_a_run_of_half_a_minute_has_every_kind_once():
    """The short run in front of every commit must not leave a kind to chance."""
    first = faults(duration_s=40.0)[: len(Kind)]
    assert dict.fromkeys(Kind, 1) == dict(Counter(fault.kind for fault in first))


def test_kinds_are_drawn_by_their_weights_and_others_never():
    """Whoever looks for one thing wants many of it."""
    drawn = Counter(fault.kind for fault in faults(weights={Kind.KILL: 3, Kind.ROLL: 1}))
    assert {Kind.KILL, Kind.ROLL} == set(drawn)
    assert 2 < drawn[Kind.KILL] / drawn[Kind.ROLL] < 4


def test_all_points_and_all_their_actions_are_drawn():
    """A fault that no seed gives is a promise that is never tested."""
    details = [fault.detail for fault in faults() if fault.kind is Kind.POINT]
    assert all(isinstance(detail, AtPoint) for detail in details)
    expected = {(point, action) for point, actions in POINTS.items() for action in actions}
    assert expected == {(detail.armed.point, detail.armed.action) for detail in details}


def test_a_stage_without_state_is_not_sent_where_it_never_comes():
    """A fault that can't happen takes the place of one that can."""
    drawn = {f.detail.armed.point for f in faults(without_state=(0,)) if f.kind is Kind.POINT and f.stage == 0}
    assert {point for point, actions in POINTS.items() if actions} - STATE_POINTS == drawn


def test_what_a_fault_is_meant_for_exists():
    """The broker has no worker, a stage's fault is for all of them, all others hit one."""
    for fault in faults():
        assert (fault.stage == -1) == (fault.kind in OF_BROKER)
        assert (fault.worker == -1) == (fault.kind in OF_STAGE | OF_BROKER)
        assert fault.stage < 2
        assert fault.worker < 3


def test_a_zombie_is_away_for_longer_than_its_session():
    """Otherwise nobody has taken its partitions, and nothing is fenced."""
    beyond = [fault for fault in faults() if fault.kind in {Kind.ZOMBIE, Kind.ABSENCE, Kind.LONG_CUT}]
    assert all(fault.lasts_s > 6.0 for fault in beyond)
    cuts = [fault.detail for fault in faults() if fault.kind in {Kind.CUT, Kind.LONG_CUT}]
    assert all(isinstance(detail, Cut) and detail.mode is not Mode.PASS for detail in cuts)


def test_a_worker_that_stops_itself_is_a_zombie_or_not():
    """Both: it may be continued before anybody has noticed, or when its partitions are others'."""
    stops = [f for f in faults() if isinstance(f.detail, AtPoint) and f.detail.armed.action is Action.STOP]
    assert {True, False} == {fault.lasts_s > 6.0 for fault in stops}


def test_a_run_can_be_asked_for_by_the_environment(tmp_path):
    """Faults, seed and inputs of one's own need no change of the code."""
    inputs = tmp_path / "inputs"
    inputs.write_bytes(b"first\nsecond\n")
    settings = from_environment(
        {
            "CHAOS_SEED": "5",
            "CHAOS_KINDS": "kill, zombie",
            "CHAOS_STAGES": "ordered",
            "CHAOS_WORKERS": "1",
            "CHAOS_RATE": "20",
            "CHAOS_INPUTS": str(inputs),
        },
        60.0,
    )
    assert (5, 60.0, ("ordered",), 1, 20.0) == (
        settings.seed,
        settings.duration_s,
        settings.stages,
        settings.workers,
        settings.rate_per_s,
    )
    assert {Kind.KILL, Kind.ZOMBIE} == set(settings.weights)
    assert (b"first", b"second") == settings.bodies
    assert WEIGHTS == from_environment({}, 60.0).weights


def test_a_kind_that_does_not_exist_is_refused():
    """A run without the faults that were asked for would be green for nothing."""
    with pytest.raises(ValueError, match="CHAOS_KINDS: 'zombi' is none of kill, "):
        from_environment({"CHAOS_KINDS": "zombi"}, 60.0)


def test_steps_are_done_when_they_are_due_and_put_right_at_the_end():
    """A run that ends early must leave no worker stopped and no network cut."""
    done = []

    def steps(name):
        done.append(f"{name} begins")
        try:
            yield 2.0
            done.append(f"{name} goes on")
            yield 2.0
        finally:
            done.append(f"{name} is right")

    schedule = Schedule()
    schedule.add(10.0, steps("one"))
    schedule.add(11.0, steps("other"))
    schedule.add(99.0, steps("late"))
    schedule.run(10.5)
    assert ["one begins"] == done
    schedule.run(12.5)
    assert ["one begins", "other begins", "one goes on"] == done
    schedule.close()
    assert ["one is right", "other is right"] == sorted(done[3:])
    assert 0 == len(schedule)
