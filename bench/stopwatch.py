"""What this process spends: CPU, time, memory, disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import psutil


class Spent(NamedTuple):
    """What something has cost: CPU of the whole process, the store's own threads included, and time on the clock."""

    cpu_s: float
    wall_s: float

    def of(self, count: int) -> float:
        """Return microseconds of CPU for each of so many."""
        return self.cpu_s / max(1, count) * 1e6


class Stopwatch:
    """Measures from its making on."""

    def __init__(self) -> None:
        self._cpu_s, self._wall_s = time.process_time(), time.perf_counter()

    def spent(self) -> Spent:
        """Return what was spent so far."""
        return Spent(time.process_time() - self._cpu_s, time.perf_counter() - self._wall_s)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    size: int = psutil.Process().memory_info().rss
    return size


def disk_bytes(directory: Path) -> int:
    """Return what the files of a directory take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def settle() -> None:
    """Wait until this process's own threads have nothing left to do, a minute at most: what was loaded is compacted."""
    for _ in range(120):
        watch = Stopwatch()
        time.sleep(0.5)
        if watch.spent().cpu_s < 0.02:
            return
