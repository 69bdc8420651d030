"""What a run is made of, and how it is asked for by the environment (`docs/operations/chaos.md`)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.plan import GAP_S, WEIGHTS, Kind

STAGES: Mapping[str, tuple[str, bool]] = {
    "parallel": ("parallel", False),
    "stateful": ("parallel", True),
    "ordered": ("ordered", True),
}
"""Stage of a run → kind of its toy, and whether it keeps state."""


@dataclass(frozen=True)
class ChaosSettings:
    """One run.

    Attributes:
        seed: of the faults and of what is fed.
        duration_s: how long things go wrong.
        stages: of `STAGES`.
        workers: of each stage.
        rate_per_s: records a second that each stage is fed.
        weights: how often each kind of fault is drawn, against the others.
        gap_s: shortest and longest time between two faults.
        bodies: what the records say, one after the other and from the beginning again; none: nothing but a number.
    """

    seed: int
    duration_s: float
    stages: tuple[str, ...] = tuple(STAGES)
    workers: int = 3
    rate_per_s: float = 100.0
    weights: Mapping[Kind, int] = field(default_factory=lambda: WEIGHTS)
    gap_s: tuple[float, float] = GAP_S
    bodies: tuple[bytes, ...] = ()


def from_environment(environment: Mapping[str, str], duration_s: float) -> ChaosSettings:
    """Return the settings of the first round of a long run.

    Args:
        environment: `CHAOS_SEED`, `CHAOS_KINDS`, `CHAOS_STAGES`, `CHAOS_WORKERS`, `CHAOS_RATE`, `CHAOS_INPUTS`.
        duration_s: of a round.

    Raises:
        ValueError: a value that means nothing; names the variable and what it may be.
    """
    names = names_from(environment, "CHAOS_STAGES", list(STAGES))
    kinds = names_from(environment, "CHAOS_KINDS", [kind.name.lower() for kind in Kind])
    inputs = environment.get("CHAOS_INPUTS")
    return ChaosSettings(
        seed=int(environment.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000)),
        duration_s=duration_s,
        stages=tuple(names),
        workers=int(environment.get("CHAOS_WORKERS") or ChaosSettings.workers),
        rate_per_s=float(environment.get("CHAOS_RATE") or ChaosSettings.rate_per_s),
        weights={kind: weight for kind, weight in WEIGHTS.items() if kind.name.lower() in kinds},
        bodies=tuple(Path(inputs).read_bytes().splitlines()) if inputs else (),
    )


def names_from(environment: Mapping[str, str], variable: str, possible: list[str]) -> list[str]:
    """Return the names that a variable lists, with commas between; all that are possible where it names none.

    Raises:
        ValueError: it names something else.
    """
    named = [name.strip() for name in environment.get(variable, "").split(",") if name.strip()]
    unknown = [name for name in named if name not in possible]
    if unknown:
        raise ValueError(f"{variable}: {unknown[0]!r} is none of {', '.join(possible)}")
    return named or possible
