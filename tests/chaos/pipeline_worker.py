"""Workers of the real pipeline in their places: processes that are broken, and what is known of when they were."""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.local.kafka import LocalBroker
from pipeline.local.site_judge import Interruption
from pipeline.local.supervisor import WorkerProcess
from tests.chaos import clock
from tests.chaos.places import Place
from tests.chaos.proxy import Mode, Proxy

END_S = 40.0
TOLD_S = 10.0
"""A process in trouble may hold what it was told until it is rid of it; one that dies so soon afterwards, too."""
SECOND_NS = 10**9


class PipelineWorker:
    """One worker of a stage over all its starts; what is done to it is as to a `ToyWorker`.

    Args:
        process: of the fleet.
        state_dir: where its state is.
        clock_file: that its clock follows.
    """

    def __init__(self, process: WorkerProcess, state_dir: Path, clock_file: Path) -> None:
        self.name = process.label
        self.state_dir = state_dir
        self.starts = 0
        """How often it was started."""
        self._process = process
        self._file_limit_bytes: int | None = None
        self._clock = clock_file
        self.shift_clock(0.0)

    @property
    def running(self) -> bool:
        """Whether the process is there, stopped ones included."""
        return self._process.pid is not None

    @property
    def has_full_disk(self) -> bool:
        """Whether its files can grow no further."""
        return self._file_limit_bytes is not None

    def start(self) -> None:
        """Start the process."""
        self.starts += 1
        self._process.start()
        self._limit_files()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is somebody to get it."""
        self._process.send(number)

    def kill(self) -> None:
        """End it as a power cut would, and wait for its end."""
        self._process.kill()
        self._process.wait(END_S)

    def exit_status(self) -> int:
        """Wait for the end of the process and return its status."""
        assert self._process.wait(END_S), f"{self.name} did not end in {END_S} s:\n{self.log()[-6000:]}"
        status = self._process.exit_status
        assert status is not None
        return status

    def lose_disk(self) -> None:
        """Remove its state; it must not be running."""
        assert not self.running
        shutil.rmtree(self.state_dir, ignore_errors=True)

    def limit_files(self, size_bytes: int | None) -> None:
        """Let its files grow no further than that, as on a full disk, after a restart, too; None: as before."""
        self._file_limit_bytes = size_bytes
        self._limit_files()

    def _limit_files(self) -> None:
        pid = self._process.pid
        if pid is None:
            return
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = most if self._file_limit_bytes is None else self._file_limit_bytes
        with suppress(ProcessLookupError):  # it has just ended
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, most))

    def shift_clock(self, seconds: float) -> None:
        """Let its wall clock be so many seconds ahead from now on, behind where it is negative."""
        clock.shift(self._clock, seconds)

    def log(self) -> str:
        """Everything it has said in all its starts."""
        return self._process.log.read_text(encoding="utf-8", errors="replace") if self._process.log.exists() else ""

    def tell_stacks(self) -> None:
        """Let it write to its log where all its threads are."""
        self.send(signal.SIGQUIT)


class Trouble:
    """When somebody could not say what he knew: since when, and until when, in nanoseconds since the epoch."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int | None]] = []

    def begin(self) -> None:
        """It begins now, where it has not begun yet."""
        if not self.spans or self.spans[-1][1] is not None:
            self.spans.append((time.time_ns(), None))

    def end(self) -> int:
        """It ends now; returns how long it has lasted, nanoseconds, 0 where there was none."""
        if not self.spans or self.spans[-1][1] is not None:
            return 0
        began_ns, now_ns = self.spans[-1][0], time.time_ns()
        self.spans[-1] = (began_ns, now_ns)
        return now_ns - began_ns

    def since(self, at_ns: int) -> int:
        """Return since when there was trouble at a moment, or shortly before it; the moment where there was none."""
        return min(
            (
                began_ns
                for began_ns, ended_ns in self.spans
                if began_ns <= at_ns and (ended_ns is None or at_ns - ended_ns <= TOLD_S * SECOND_NS)
            ),
            default=at_ns,
        )


class WatchedBroker(LocalBroker):
    """A broker that knows when it was away."""

    def __init__(self, directory: Path, **options: object) -> None:
        super().__init__(directory, **options)
        self.trouble = Trouble()
        self.came_back: Callable[[int], None] = lambda _: None
        """Called with how long it was away, nanoseconds."""

    def start(self) -> str:
        address = super().start()
        away_ns = self.trouble.end()
        if away_ns:
            self.came_back(away_ns)
        return address

    def _end(self, number: signal.Signals) -> None:
        if self.pid is not None:
            self.trouble.begin()
        super()._end(number)


class WatchedProxy(Proxy):
    """A proxy that tells when it begins and ends to stand in the way."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: Callable[[Mode], None] = lambda _: None

    def set(self, mode: Mode, delay_s: float = 0.0) -> None:
        super().set(mode, delay_s)
        self.changed(mode)


class PipelinePlace(Place):
    """A place of the pipeline; it notes when what its process was told may have been lost.

    Args:
        stage_name: of the stage.
        worker: its process.
        proxy: between it and the broker.
        points: directory in which its points are armed.
        broker: of all.
        agent: User-Agent of its requests, in small letters.
        session_s: after which a silent worker loses its partitions.
    """

    def __init__(
        self,
        stage_name: str,
        worker: PipelineWorker,
        proxy: WatchedProxy,
        points: Path,
        *,
        broker: WatchedBroker,
        agent: str,
        session_s: float,
    ) -> None:
        super().__init__(stage_name, worker, proxy, points)
        self.interruptions: list[Interruption] = []
        self._broker = broker
        self._agent = agent
        self._session_ns = int(session_s * SECOND_NS)
        self._stopped = Trouble()
        self._cut = Trouble()
        proxy.changed = self._network_changed

    @property
    def name(self) -> str:
        """Stage and number."""
        return self.worker.name

    def note_exit(self) -> None:
        now_ns = time.time_ns()
        since_ns = min(trouble.since(now_ns) for trouble in (self._stopped, self._cut, self._broker.trouble))
        if since_ns < now_ns or self.worker.exit_status() != 0:  # else it has handed everything over in order
            self.interruptions.append(Interruption(since_ns, now_ns, self._agent))
        super().note_exit()

    def stop(self) -> None:
        self._stopped.begin()
        super().stop()

    def go_on(self) -> None:
        super().go_on()
        if not self.stopped:
            self.silent(self._stopped.end())

    def _network_changed(self, mode: Mode) -> None:
        if mode is Mode.PASS:
            self.silent(self._cut.end())
        else:
            self._cut.begin()

    def silent(self, for_ns: int) -> None:
        """It could say nothing for so long: beyond the session its partitions are others', and its answers lost."""
        if for_ns >= self._session_ns:
            now_ns = time.time_ns()
            self.interruptions.append(Interruption(now_ns - for_ns, now_ns, self._agent))
