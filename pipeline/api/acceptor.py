"""Accepting tasks: what arrives while a transaction runs goes into the next one, so that many users share its cost."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from pipeline.delivery.transactions import ReplacedError
from pipeline.errors import BrokerError
from pipeline.ops.endpoint import Health
from pipeline.tasks.records import Wish

log = logging.getLogger(__name__)

MAX_TASKS: Final = 5_000
"""Of a transaction; one request may have more."""


class Writes(Protocol):
    """Writes tasks, all or none; `TaskWriter` does."""

    def write(self, wishes: Sequence[Wish]) -> None: ...


_Request = tuple[Sequence[Wish], "Future[None]"]


class Acceptor:
    """A thread around a writer.

    Args:
        writer: used by the thread alone.
        replaced: called by the thread when another process of the same name has taken over: this one must end.
        stall_s: a transaction that takes longer turns the health red.
        clock: seconds; only goes forward.
    """

    def __init__(
        self,
        writer: Writes,
        replaced: Callable[[ReplacedError], None],
        stall_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._replaced = replaced
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="acceptor", daemon=True)
        self._stall_s = stall_s
        self._clock = clock
        self._busy_since_s: float | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        """Write what was accepted before, and end; a broker that does not answer is waited for no longer than that."""
        self._requests.put(None)
        self._thread.join(limit_s)

    def accept(self, wishes: Sequence[Wish]) -> Future[None]:
        """Return what is done once all tasks are on the broker.

        Its error is a `BrokerError` where they are not, or where nobody knows. A cancelled one is not begun.
        """
        future: Future[None] = Future()
        self._requests.put((wishes, future))
        return future

    def health(self) -> Health:
        """Tell whether the thread does what it should; that a broker is away is no reason to begin anew."""
        since_s = self._busy_since_s
        busy_s = 0.0 if since_s is None else self._clock() - since_s
        if busy_s > self._stall_s:
            return Health(False, f"a transaction has been under way for {busy_s:.0f} s")
        return Health(self._thread.is_alive(), "requests are answered" if self._thread.is_alive() else "it has ended")

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            requests = [request]
            tasks = len(request[0])
            last = False
            while tasks < MAX_TASKS and not last:
                try:
                    more = self._requests.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                else:
                    requests.append(more)
                    tasks += len(more[0])
            self._write([one for one in requests if one[1].set_running_or_notify_cancel()])
            if last:
                return

    def _write(self, requests: Sequence[_Request]) -> None:
        if not requests:
            return
        self._busy_since_s = self._clock()
        failure: Exception | None = None
        try:
            self._writer.write([wish for wishes, _ in requests for wish in wishes])
        except BrokerError as exc:
            log.warning("%d requests were not accepted: %s", len(requests), exc)
            failure = exc
        except Exception as exc:
            log.exception("tasks could not be written")
            failure = exc
        self._busy_since_s = None
        for _, future in requests:
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
        if isinstance(failure, ReplacedError):
            self._replaced(failure)
