"""Work beside a measurement, in a thread of its own."""

from __future__ import annotations

import abc
import threading
from types import TracebackType
from typing import Self


class Background(abc.ABC):
    """Runs as long as its context; the thread looks at `_stop`.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._close()

    @abc.abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""

    @abc.abstractmethod
    def _close(self) -> None:
        """End the clients; the thread has ended."""
