"""One known function, timed: figures from two machines are compared through it.

`python -m bench.calibration` prints the figure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

ROUNDS = 5
WORDS = 200_000
PRIME = 1_000_003


@dataclass(frozen=True, slots=True)
class Calibration:
    """How fast this machine runs plain Python at the moment.

    Attributes:
        best_s: CPU seconds of the fastest round: the machine.
        median_s: CPU seconds of the median round; far above the best on a machine that is busy or throttled.
        rounds: how many were run.
    """

    best_s: float
    median_s: float
    rounds: int


def reference_work() -> int:
    """Do what a pipeline in Python does much of: integers, small strings, a dict. Never to be changed.

    Returns:
        A checksum, always the same.
    """
    counts: dict[str, int] = {}
    state = 1
    for _ in range(WORDS):
        state = state * 31 % PRIME
        word = f"w{state % 5_000}"
        counts[word] = counts.get(word, 0) + 1
    return sum(len(word) * count for word, count in counts.items())


def calibrate(rounds: int = ROUNDS) -> Calibration:
    """Time `reference_work`; takes well under a second a round."""
    times_s = []
    for _ in range(rounds):
        start_s = time.process_time()
        reference_work()
        times_s.append(time.process_time() - start_s)
    times_s.sort()
    return Calibration(times_s[0], times_s[rounds // 2], rounds)


if __name__ == "__main__":
    result = calibrate()
    print(f"best {result.best_s * 1000:.1f} ms, median {result.median_s * 1000:.1f} ms of {result.rounds} rounds")
