"""Worker processes on one machine: started, counted, killed, started again."""

from __future__ import annotations

import ctypes
import http.client
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from pipeline.delivery.exits import ExitCode
from pipeline.errors import ConfigurationError

PR_SET_PDEATHSIG = 1  # linux/prctl.h
RESTART_PAUSE_S = 1.0
STOP_LIMIT_S = 20.0
LOG_TAIL_BYTES = 4_000
LOG_PART_BYTES = 64_000
ENDPOINT_TIMEOUT_S = 2.0
RUNNER_ENDS = re.compile(r"this worker ends .*?: (.*)")
ENDPOINT = re.compile(r"\bmetrics\b.* on (http://\S+)")


def _die_with_parent() -> None:
    """In the child: be asked to stop when the supervisor is gone, however it went (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class WorkerProcess:
    """One worker under one stable name, through all its processes.

    Args:
        label: shown to people; stage and number.
        command: arguments after the Python interpreter.
        environ: added to the environment of this process.
        log: file its output is appended to.
    """

    def __init__(self, label: str, command: list[str], environ: Mapping[str, str], log: Path) -> None:
        self.label = label
        self.restarts = 0
        self.log = log
        self._command = command
        self._environ = dict(environ)
        self._past_cpu_s = 0.0
        self._cpu_s = 0.0
        self._ended_at_s: float | None = None
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None while there is no process."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        """How its last process ended, a signal as its negative number; None while it runs and before the first."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start a process. To be called from the main thread: the death signal is bound to the thread that forks."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._log_start = out.tell()
            self._process = subprocess.Popen(
                [sys.executable, *self._command],
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C in the terminal is the supervisor's to handle
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # nothing but the call itself happens in the child
            )
        self._ended_at_s = None

    def endpoint(self) -> str | None:
        """Base URL of its metrics, as the log of its present process says; None while it has not said it."""
        said = ENDPOINT.search(self._own_log())
        return said and said[1]

    def read(self, path: str) -> bytes:
        """Ask its endpoint; empty while it does not answer."""
        base = self.endpoint()
        if base is None:
            return b""
        try:
            with urllib.request.urlopen(base + path, timeout=ENDPOINT_TIMEOUT_S) as answer:  # noqa: S310  # loopback
                body: bytes = answer.read()
        except (OSError, http.client.HTTPException):  # it went away before, or in the middle of its answer
            return b""
        return body

    def kill(self) -> None:
        """SIGKILL, as a node that loses power."""
        self._count_cpu()
        if self._process:
            self._process.kill()

    def terminate(self) -> None:
        """SIGTERM, as a deploy."""
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is somebody to get it."""
        if self._process:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to end; False when it took longer and was killed."""
        if self._process is None:
            return True
        self._count_cpu()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def look_after(self) -> None:
        """Count its CPU time; start it again where it has ended.

        Raises:
            ConfigurationError: it ended because of its configuration; starting it again would not help.
        """
        if self._process is None:
            return
        code = self._process.poll()
        if code is None:
            self._count_cpu()
            return
        if code == ExitCode.CONFIGURATION:
            raise ConfigurationError(f"{self.label} can't work: {self.last_words()} (its log: {self.log})")
        if self._ended_at_s is None:
            self._ended_at_s = time.monotonic()
            self._past_cpu_s, self._cpu_s = self._past_cpu_s + self._cpu_s, 0.0
        # A killed one comes back at once; one that ended by itself may have a reason that lasts.
        if code == -signal.SIGKILL or time.monotonic() - self._ended_at_s >= RESTART_PAUSE_S:
            self.restarts += 1
            self.start()

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far, their children included."""
        return self._past_cpu_s + self._cpu_s

    def tail(self, length: int = LOG_TAIL_BYTES) -> str:
        """End of its log, in bytes."""
        try:
            return self.log.read_bytes()[-length:].decode(errors="replace")
        except FileNotFoundError:
            return "(no log)"

    def last_words(self) -> str:
        """Why it has ended, as its command or its runner said; the end of its log where neither did."""
        end = self.tail(LOG_PART_BYTES)
        _, mark, message = f"\n{end}".rpartition("\nheadrace: ")
        if mark:
            return message.strip()
        said = RUNNER_ENDS.findall(end)
        return said[-1].strip() if said else self.tail()

    def _own_log(self) -> str:
        """Beginning of what the process that runs now has written."""
        if self._process is None:
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read(LOG_PART_BYTES).decode(errors="replace")

    def _count_cpu(self) -> None:
        if self.pid is not None:
            self._cpu_s = process_cpu_s(self.pid) or self._cpu_s


def process_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children, ended ones included; 0 where it is gone."""
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        total = times.user + times.system + times.children_user + times.children_system
        for child in process.children(recursive=True):
            own = child.cpu_times()
            total += own.user + own.system
    except psutil.NoSuchProcess:
        return 0.0
    return float(total)


class Fleet:
    """All workers of a run.

    Args:
        directory: where logs and data are.
        environ: configuration shared by all.
        workers: stage → how many.
        name: first part of the workers' names; on a cluster that others use too it must be nobody else's, since a
            worker of the same name is replaced.
        command: arguments after the Python interpreter, without the stage.
        own: label of a worker → what is added to its environment alone.
    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str],
        workers: Mapping[str, int],
        *,
        name: str = "",
        command: Sequence[str] = ("-m", "pipeline.cli", "worker"),
        own: Callable[[str], Mapping[str, str]] = lambda _: {},
    ) -> None:
        self.by_stage: dict[str, list[WorkerProcess]] = {stage: [] for stage in workers}
        for stage, count in workers.items():
            for number in range(count):
                label = f"{stage}-{number}"
                environment = {
                    **environ,
                    "HEADRACE_WORKER__NAME": f"{name}-{number}" if name else str(number),
                    "HEADRACE_WORKER__DATA_DIR": str(directory),
                    "HEADRACE_WORKER__METRICS_PORT": "0",  # a configured one is free for one of them only
                    **own(label),
                }
                log = directory / "logs" / f"{label}.log"
                self.by_stage[stage].append(WorkerProcess(label, [*command, stage], environment, log))

    @property
    def all(self) -> list[WorkerProcess]:
        """Every worker."""
        return [worker for workers in self.by_stage.values() for worker in workers]

    def start(self) -> None:
        """Start them all."""
        for worker in self.all:
            worker.start()

    def look_after(self) -> None:
        """Restart what has ended; see `WorkerProcess.look_after`."""
        for worker in self.all:
            worker.look_after()

    def stop(self) -> list[str]:
        """Ask all to stop and wait; returns the labels of those that had to be killed."""
        for worker in self.all:
            worker.terminate()
        deadline = time.monotonic() + STOP_LIMIT_S
        return [worker.label for worker in self.all if not worker.wait(max(0.1, deadline - time.monotonic()))]
