"""What goes wrong in a run, and when: drawn from a seed before the run begins, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from tests.chaos.points import POINTS, Action, Armed
from tests.chaos.proxy import Mode

GAP_S = (0.6, 4.0)
"""Between two faults: mostly shorter than a recovery, so that they overlap, and long enough for work in between."""
SHORT_S = (0.5, 3.0)
BEYOND_SESSION_S = (1.0, 4.0)
BROKER_DOWN_S = (0.5, 8.0)
STALL_S = (0.2, 7.0)
DISK_FULL_S = (1.0, 5.0)
DELAY_S = (0.02, 0.5)
SCALED_S = (4.0, 9.0)
HOUR_S = 3600.0
CLOCK_JUMPS_S = (-26 * HOUR_S, -2 * HOUR_S, -30.0, -2.0, 2.0, 30.0, 2 * HOUR_S, 26 * HOUR_S)
"""Seconds, and so many hours that a store seems older than what its changelog keeps of deletions."""
FILE_LIMITS_BYTES = (0, 4 << 10, 64 << 10)


class Kind(Enum):
    """What happens."""

    KILL = "killed, started again at once"
    WIPE = "killed, its disk lost"
    ABSENCE = "killed, away longer than the session"
    TERMINATE = "asked to end, started again"
    PAUSE = "stopped and continued within the session"
    ZOMBIE = "stopped for longer than the session and continued"
    POINT = "a fault at a named point"
    CUT = "network cut or slow, within the session"
    LONG_CUT = "network cut for longer than the session"
    DISK_FULL = "disk full"
    CLOCK = "wall clock jumps"
    ROLL = "all workers of a stage restarted, one by one"
    SCALE = "stage scaled to 1, 3, 2 workers and back"
    BROKER_KILL = "broker killed and started again"
    BROKER_STOP = "broker stopped in order and started again"
    BROKER_TORN = "broker killed, tails of its segments torn"


WEIGHTS: Mapping[Kind, int] = {
    Kind.KILL: 24, Kind.WIPE: 6, Kind.ABSENCE: 6, Kind.TERMINATE: 12, Kind.PAUSE: 8, Kind.ZOMBIE: 12, Kind.POINT: 30,
    Kind.CUT: 10, Kind.LONG_CUT: 6, Kind.DISK_FULL: 6, Kind.CLOCK: 8, Kind.ROLL: 2, Kind.SCALE: 2,
    Kind.BROKER_KILL: 2, Kind.BROKER_STOP: 2, Kind.BROKER_TORN: 2,
}  # fmt: skip
"""How often each is drawn, against the others."""
OF_STAGE = frozenset({Kind.ROLL, Kind.SCALE})
OF_BROKER = frozenset({Kind.BROKER_KILL, Kind.BROKER_STOP, Kind.BROKER_TORN})

# What makes a worker pass a point that it passes only once in a life; the others it passes while it works.
TRIGGERS: Mapping[str, Kind] = {
    "revoke": Kind.TERMINATE, "drained": Kind.TERMINATE, "revoked": Kind.TERMINATE, "offsets_read": Kind.KILL,
    "restore_start": Kind.KILL, "restore_end": Kind.KILL, "restore_read": Kind.WIPE, "restore_written": Kind.WIPE,
}  # fmt: skip
STATE_POINTS = frozenset(
    {"before_apply", "after_apply", "restore_start", "restore_read", "restore_written", "restore_end"}
)
PASSES: Mapping[str, int] = {"before_produce": 300, "after_produce": 300}
"""At the latest at this pass; points that are not here: at the 20th, or at the first where a trigger is needed."""
ORDINARY_PASSES = 20


class AtPoint(NamedTuple):
    """Detail of `Kind.POINT`: what happens there, and what is done to the worker so that it gets there, if need be."""

    armed: Armed
    trigger: Kind | None


class Cut(NamedTuple):
    """Detail of `Kind.CUT` and `Kind.LONG_CUT`: what the proxy does; `delay_s` is for `Mode.DELAY`."""

    mode: Mode
    delay_s: float


class Fault(NamedTuple):
    """One thing that goes wrong.

    Attributes:
        at_s: seconds from the beginning of the run.
        kind: what.
        stage: index of the stage; -1 for the broker.
        worker: index of the worker in its stage; -1 for the whole stage or the broker.
        lasts_s: until it is put right: a worker continued or started again, a network whole, a clock right, a disk
            empty, a broker back. Of `SCALE`: each of its sizes.
        detail: `AtPoint`, `Cut`, for `CLOCK` the seconds of the jump, for `DISK_FULL` the bytes that a file may have.
    """

    at_s: float
    kind: Kind
    stage: int
    worker: int
    lasts_s: float
    detail: AtPoint | Cut | float | None = None


def plan(
    seed: int,
    duration_s: float,
    *,
    stages: int,
    workers: int,
    session_s: float,
    weights: Mapping[Kind, int] = WEIGHTS,
    gap_s: tuple[float, float] = GAP_S,
    without_state: Collection[int] = (),
) -> list[Fault]:
    """Draw the faults of a run. The first ones are one of each kind, in an order that the seed gives.

    Args:
        seed: the same gives the same.
        duration_s: no fault begins later.
        stages: how many there are.
        workers: how many each stage has.
        session_s: after which a silent worker loses its partitions.
        weights: how often each kind is drawn, against the others; one that is not there never happens.
        gap_s: shortest and longest time between two faults.
        without_state: stages that pass no point of `STATE_POINTS`.
    """
    chance = random.Random(seed)
    first = [kind for kind in Kind if weights.get(kind)]
    chance.shuffle(first)
    faults: list[Fault] = []
    at_s = 0.0
    while (at_s := at_s + chance.uniform(*gap_s)) < duration_s:
        kind = first.pop() if first else chance.choices(list(weights), list(weights.values()))[0]
        stage = -1 if kind in OF_BROKER else chance.randrange(stages)
        worker = -1 if kind in OF_STAGE | OF_BROKER else chance.randrange(workers)
        detail = _detail(kind, chance, stage not in without_state)
        faults.append(Fault(at_s, kind, stage, worker, _lasts_s(kind, detail, session_s, chance), detail))
    return faults


def _detail(kind: Kind, chance: random.Random, has_state: bool) -> AtPoint | Cut | float | None:
    if kind is Kind.POINT:
        points = [point for point, actions in POINTS.items() if actions and (has_state or point not in STATE_POINTS)]
        point = chance.choice(points)
        trigger = TRIGGERS.get(point)
        passes = 1 if trigger else chance.randint(1, PASSES.get(point, ORDINARY_PASSES))
        action = chance.choice(POINTS[point])
        return AtPoint(Armed(point, action, passes, seconds=chance.uniform(*STALL_S)), trigger)
    if kind is Kind.CUT:
        return Cut(chance.choice([mode for mode in Mode if mode is not Mode.PASS]), chance.uniform(*DELAY_S))
    if kind is Kind.LONG_CUT:
        return Cut(chance.choice([Mode.STALL, Mode.HOLD_REQUESTS, Mode.HOLD_ANSWERS, Mode.RESET]), 0.0)
    if kind is Kind.CLOCK:
        return chance.choice(CLOCK_JUMPS_S)
    if kind is Kind.DISK_FULL:
        return float(chance.choice(FILE_LIMITS_BYTES))
    return None


def _lasts_s(kind: Kind, detail: object, session_s: float, chance: random.Random) -> float:
    beyond_s = (session_s + BEYOND_SESSION_S[0], session_s + BEYOND_SESSION_S[1])
    spans = {
        Kind.ABSENCE: beyond_s,
        Kind.ZOMBIE: beyond_s,
        Kind.LONG_CUT: beyond_s,
        Kind.PAUSE: SHORT_S,
        Kind.CUT: SHORT_S,
        Kind.CLOCK: (SHORT_S[0], session_s),
        Kind.DISK_FULL: DISK_FULL_S,
        Kind.SCALE: SCALED_S,
        **dict.fromkeys(OF_BROKER, BROKER_DOWN_S),
    }
    if isinstance(detail, AtPoint) and detail.armed.action is Action.STOP:
        return chance.uniform(*(beyond_s if chance.random() < 1 / 2 else SHORT_S))
    return chance.uniform(*spans.get(kind, (0.0, 0.5)))
