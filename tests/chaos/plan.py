"""What goes wrong in a run, and when: drawn from a seed before the run begins, so that a run can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

PAUSE_S = (0.4, 3.0)
"""Between two faults: mostly shorter than a recovery, so that they overlap."""
SHORT_STOP_S = (0.5, 3.0)
BEYOND_SESSION_S = (1.0, 4.0)
BROKER_DOWN_S = (0.5, 8.0)


class Kind(Enum):
    """What happens to a process."""

    KILL = "killed, started again at once"
    WIPE = "killed, its disk lost"
    ABSENCE = "killed, away longer than the session"
    TERMINATE = "asked to end, started again"
    PAUSE = "stopped and continued within the session"
    ZOMBIE = "stopped for longer than the session and continued"
    BROKER = "broker killed and started again"


WEIGHTS = {Kind.KILL: 30, Kind.WIPE: 8, Kind.ABSENCE: 8, Kind.TERMINATE: 20, Kind.PAUSE: 12, Kind.ZOMBIE: 22}


class Fault(NamedTuple):
    """One thing that goes wrong.

    Attributes:
        at_s: seconds from the beginning of the run.
        kind: what.
        worker: index of the worker, -1 for the broker.
        lasts_s: until it is continued or started again.
    """

    at_s: float
    kind: Kind
    worker: int
    lasts_s: float


def plan(seed: int, duration_s: float, workers: int, session_s: float, broker_kills: int) -> list[Fault]:
    """Draw the faults of a run.

    Args:
        seed: the same gives the same.
        duration_s: no fault begins later.
        workers: how many there are.
        session_s: after which a silent worker loses its partitions.
        broker_kills: spread over the second half of the run.
    """
    chance = random.Random(seed)
    faults = []
    at_s = 0.0
    while (at_s := at_s + chance.uniform(*PAUSE_S)) < duration_s:
        (kind,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        faults.append(Fault(at_s, kind, chance.randrange(workers), _lasts_s(kind, session_s, chance)))
    for number in range(broker_kills):
        at_s = duration_s * (0.5 + 0.5 * (number + chance.random()) / broker_kills)
        faults.append(Fault(at_s, Kind.BROKER, -1, chance.uniform(*BROKER_DOWN_S)))
    return sorted(faults, key=lambda fault: fault.at_s)


def _lasts_s(kind: Kind, session_s: float, chance: random.Random) -> float:
    spans: dict[Kind, Sequence[float]] = {
        Kind.ABSENCE: [session_s + beyond for beyond in BEYOND_SESSION_S],
        Kind.ZOMBIE: [session_s + beyond for beyond in BEYOND_SESSION_S],
        Kind.PAUSE: SHORT_STOP_S,
    }
    return chance.uniform(*spans.get(kind, (0.0, 0.5)))
