"""Places for workers: each has a process, most of the time, its way to the broker, and what is wrong with it now."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pipeline.delivery.exits import ExitCode
from tests.chaos.points import Armed, arm, disarm, is_armed
from tests.chaos.process import ToyWorker
from tests.chaos.proxy import Proxy

# What a worker may end with by itself when others are killed around it.
EXPECTED = frozenset({0, ExitCode.BROKER, ExitCode.REPLACED, -signal.SIGKILL, -signal.SIGTERM})
WITH_FULL_DISK = EXPECTED | {ExitCode.BUG, ExitCode.CONFIGURATION}


class Place:
    """One worker of a stage over all its lives.

    Args:
        stage_name: of which.
        worker: its process.
        proxy: between it and the broker.
        points: directory in which its points are armed.
    """

    def __init__(self, stage_name: str, worker: ToyWorker, proxy: Proxy, points: Path) -> None:
        self.stage_name = stage_name
        self.worker = worker
        self.proxy = proxy
        self.away = 0
        """How many disruptions want no process here."""
        self.stopped = 0
        """How many disruptions have sent it SIGSTOP."""
        self.had_full_disk = False
        """Whether its disk is full, or was at some time: its lines in the journal may have holes."""
        self.exits: Counter[int] = Counter()
        """Status → how often it has ended so."""
        self._full_disk_in_life = False
        self._points = points

    @property
    def name(self) -> str:
        """Stage and worker."""
        return f"{self.stage_name}-{self.worker.name}"

    @property
    def untouched(self) -> bool:
        """Whether there is a process that runs."""
        return not self.away and not self.stopped and self.worker.running

    def start_if_ended(self) -> None:
        """Start the process anew where it has ended and is not wanted away.

        Raises:
            AssertionError: it has ended as nothing that was done to it explains.
        """
        if self.away or self.worker.running:
            return
        self.note_exit()
        self._full_disk_in_life = self.worker.has_full_disk
        self.worker.start()

    def note_exit(self) -> None:
        """Count how it ended; raises as `start_if_ended`."""
        status = self.worker.exit_status()
        self.exits[status] += 1
        expected = WITH_FULL_DISK if self._full_disk_in_life else EXPECTED
        assert status in expected, f"{self.name} ended with {status}:\n{self.worker.log()[-6000:]}"

    def fill_disk(self, left_bytes: int) -> None:
        """Let files grow no further than that."""
        self.had_full_disk = self._full_disk_in_life = True
        self.worker.limit_files(left_bytes)

    def arm(self, armed: Armed) -> Armed:
        """Let something happen at a point."""
        return arm(self._points, self.worker.name, armed)

    def is_armed(self, armed: Armed) -> bool:
        """Whether it has not happened yet."""
        return is_armed(self._points, self.worker.name, armed.point)

    def disarm(self, armed: Armed) -> None:
        """Let it not happen any more."""
        disarm(self._points, self.worker.name, armed.point)

    def stop(self) -> None:
        """Send SIGSTOP."""
        self.stopped += 1
        self.worker.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Send SIGCONT once nobody wants it stopped any more."""
        self.stopped -= 1
        if not self.stopped:
            with suppress(ProcessLookupError):
                self.worker.send(signal.SIGCONT)
