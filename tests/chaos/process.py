"""Toy workers as processes, and waiting for what they do."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.chaos import clock, lines, points
from tests.chaos.points import Action, Armed
from tests.chaos.toy import Toy

T = TypeVar("T")
POLL_S = 0.02
LIMIT_S = 40.0
LOG_TAIL_CHARACTERS = 4_000
SESSION_S = 6


def until(condition: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """Return the condition's answer as soon as it is true.

    Raises:
        AssertionError: it did not become true in time; says what was waited for.
    """
    deadline = time.monotonic() + limit_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {limit_s} s for {what}"
        time.sleep(POLL_S)
    return answer


class ToyWorker:
    """One worker of a toy stage, over all its starts.

    Args:
        kind: parallel or ordered.
        name: worker name.
        toy: what it does.
        bootstrap: address of the broker.
        directory: holds its log and data.
        settings: section and key → value, over the defaults of the tests.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        toy: Toy,
        *,
        bootstrap: str,
        directory: Path,
        settings: Mapping[str, object],
    ) -> None:
        self.kind = kind
        self.name = name
        self.toy = toy
        self.data_dir = directory / "data"
        self.log_file = directory / f"{kind}-{name}.log"
        self.settings: dict[str, object] = {
            "broker.bootstrap": bootstrap,
            "worker.name": name,
            "worker.data_dir": self.data_dir,
            "delivery.session_timeout_s": SESSION_S,
            "delivery.heartbeat_s": 0.5,
            "delivery.transaction_timeout_s": SESSION_S,
            "delivery.commit_interval_s": 0.1,
            **settings,
        }
        self.starts = 0
        """How often it was started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._file_limit_bytes: int | None = None
        self._clock = directory / "clock"
        clock.shift(self._clock, 0.0)

    @property
    def state_dir(self) -> Path:
        """Where the stores of its partitions are."""
        return self.data_dir / "state" / f"toy-{self.kind}-{self.name}"

    @property
    def has_full_disk(self) -> bool:
        """Whether its files can grow no further."""
        return self._file_limit_bytes is not None

    @property
    def running(self) -> bool:
        """Whether the process is there, stopped ones included."""
        return self._process is not None and self._process.poll() is None

    def start(self, toy: Toy | None = None) -> ToyWorker:
        """Start the process; `toy` replaces what it does from now on."""
        assert not self.running
        self.starts += 1
        self.toy = toy or self.toy
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_") and name != "TOY"
        }
        for dotted, value in self.settings.items():
            environment["HEADRACE_" + dotted.replace(".", "__").upper()] = str(value)
        environment["TOY"] = self.toy.to_json()
        environment["TOY_CLOCK"] = str(self._clock)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.toy", self.kind],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=Path(__file__).parents[2],
            )
        self._limit_files()
        return self

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is somebody to get it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would, and wait for its end."""
        self.send(signal.SIGKILL)
        self.exit_status()

    def limit_files(self, size_bytes: int | None) -> None:
        """Let its files grow no further than that, as on a full disk, from now on and after a restart; None: as before.

        Its log and its journal are files, too: they lose lines.
        """
        self._file_limit_bytes = size_bytes
        self._limit_files()

    def _limit_files(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = most if self._file_limit_bytes is None else self._file_limit_bytes
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (limit, most))

    def shift_clock(self, seconds: float) -> None:
        """Let its wall clock be so many seconds ahead from now on, behind where it is negative."""
        clock.shift(self._clock, seconds)

    def lose_disk(self) -> None:
        """Remove its data directory; it must not be running."""
        assert not self.running
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def exit_status(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end of the process and return its status."""
        assert self._process is not None
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end in {limit_s} s:\n{self.log()}") from None

    def log(self) -> str:
        """Everything it has said in all its starts."""
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def tell_stacks(self) -> None:
        """Let it write to its log where all its threads are."""
        self.send(signal.SIGQUIT)

    def says(self, text: str, limit_s: float = LIMIT_S) -> None:
        """Wait until its log has the text."""
        until(lambda: text in self.log(), f"{text!r} in the log of {self.name}:\n{self._tail()}", limit_s)

    def _tail(self) -> str:
        return self.log()[-LOG_TAIL_CHARACTERS:]


class Stage:
    """One toy stage on topics of its own, with as many workers as a test wants.

    Args:
        kind: parallel or ordered.
        toy: what its workers do.
        bootstrap: address of the broker.
        directory: of this stage alone.
        partitions: of every topic.
    """

    def __init__(self, kind: str, toy: Toy, bootstrap: str, directory: Path, partitions: int) -> None:
        self.kind = kind
        self.toy = toy
        self.bootstrap = bootstrap
        self.directory = directory
        self.partitions = partitions
        self.workers: list[ToyWorker] = []
        self._holds: dict[tuple[str, str], str] = {}
        Path(toy.gates).mkdir(parents=True, exist_ok=True)
        Path(toy.journal).touch()

    def worker(self, name: str = "a", *, place: str = "", toy: Toy | None = None, **settings: object) -> ToyWorker:
        """Make a worker that is not started yet.

        Args:
            name: worker name.
            place: folder of its log and data; its name when empty.
            toy: what it does; the stage's own when None.
            settings: section and key, joined by two underscores → value.
        """
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        made = ToyWorker(
            self.kind,
            name,
            toy or self.toy,
            bootstrap=self.bootstrap,
            directory=self.directory / (place or name),
            settings={"topics.partitions": self.partitions, **dotted},
        )
        self.workers.append(made)
        return made

    def end(self) -> None:
        """End every worker that is still there."""
        for worker in self.workers:
            worker.kill() if worker.running else None

    def open_gate(self, name: str) -> None:
        """Let records go on that wait for it, now and later."""
        (Path(self.toy.gates) / name).touch()

    def arm(self, worker: str, armed: Armed) -> Armed:
        """Let something happen at a point of a worker."""
        return points.arm(Path(self.toy.gates), worker, armed)

    def fired(self) -> list[points.Firing]:
        """Return what has happened at points so far."""
        return points.fired(Path(self.toy.gates))

    def hold(self, point: str, worker: str) -> None:
        """Let a worker wait at a point from now on."""
        self._holds[point, worker] = self.arm(worker, Armed(point, Action.HOLD)).identifier

    def release(self, point: str, worker: str) -> None:
        """Let it go on."""
        points.disarm(Path(self.toy.gates), worker, point)

    def stands_at(self, point: str, worker: str) -> None:
        """Wait until the worker stands at the point where it is held."""
        identifier = self._holds[point, worker]
        until(
            lambda: identifier in {firing.identifier for firing in self.fired()},
            f"{worker} at {point}:\n{self._logs()}",
        )

    def journal(self, event: str | None = None, worker: str | None = None, **fields: object) -> list[dict[str, Any]]:
        """Return the lines that the workers left, those of one event, worker or field where one is named."""
        wanted = fields | ({"event": event} if event else {}) | ({"worker": worker} if worker else {})
        return [
            row
            for row in lines.read(Path(self.toy.journal))
            if all(row.get(name) == value for name, value in wanted.items())
        ]

    def assigned_to(self, worker: str, limit_s: float = LIMIT_S) -> list[int]:
        """Return the partition numbers that a worker was assigned last; waits for the first assignment."""
        rows = until(lambda: self.journal("assigned", worker), f"an assignment of {worker}:\n{self._logs()}", limit_s)
        return sorted({partition for _, partition in rows[-1]["partitions"]})

    def begun(self, value: bytes) -> int:
        """How often the handling of a record with that value was begun, by whomever."""
        return len(self.journal("begin", value=value.decode()))

    def until_begun(self, value: bytes, times: int = 1) -> None:
        """Wait until the handling of a record was begun so often."""
        until(lambda: self.begun(value) >= times, f"{value!r} begun {times} times:\n{self._logs()}")

    def _logs(self) -> str:
        return "\n".join(worker._tail() for worker in self.workers)
