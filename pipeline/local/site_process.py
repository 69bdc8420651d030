"""A site in a process of its own, which ends with the process that started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import psutil

from pipeline.errors import ConfigurationError

STOP_S: Final = 10.0


class SiteProcess:
    """Runs a module that prints one line of JSON when it serves, and ends by SIGTERM.

    Args:
        module: it takes `--parent`, the process to end with; a line with `error` says why it does not serve.
        arguments: further ones.

    Attributes:
        ready: what it printed.

    Raises:
        ConfigurationError: it does not serve.
    """

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--parent", str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is the parent's to handle
            text=True,
        )
        first_line = self._process.stdout.readline() if self._process.stdout else ""
        self.ready: dict[str, Any] = json.loads(first_line or '{"error": "it ended without a word"}')
        if "error" in self.ready:
            self.stop()
            raise ConfigurationError(f"the simulated web did not start: {self.ready['error']}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def cpu_s(self) -> float:
        """CPU seconds of the server so far, making the pages included: take a difference."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        """Resident memory of the server."""
        size: int = psutil.Process(self.pid).memory_info().rss
        return size

    def stop(self) -> None:
        """End the server; the log is whole afterwards."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
