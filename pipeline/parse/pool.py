"""The parse stage's worker processes: pages go in over a pipe, finished records come back.

A parser in C can crash, hang or eat memory on one page out of millions. So pages are parsed in processes that may die:

- Several pages are under way to a process at a time (the window), so that crossing the pipe costs no waiting.
- A process answers in the order it was asked, so the page at fault is the oldest unanswered one. It is tried once more,
  after all that wait: the first death may have had another cause, such as a kernel short of memory. When that process
  dies too the page ends as `parse_crash`. The other pages under way go to the next process and notice nothing.
- The time limit counts from when a page's turn starts, not from when it was sent.
- After `recycle_pages` pages a process is replaced, which ends leaks; the next one is started before it is needed.

No clock is read but the event loop's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from pipeline.delivery.api import Output
from pipeline.errors import BugError, ConfigurationError, InputError
from pipeline.parse import frames

WINDOW: Final = 6
ATTEMPTS: Final = 2

WORKER_ENVIRONMENT: Final = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""glibc gives the memory of a page's tree back and takes it anew for the next one: 0.1 ms of page faults a page."""

_AHEAD_PAGES: Final = 1_000
_START_LIMIT_S: Final = 60.0
_START_ATTEMPTS: Final = 3
_LATE_LOOKS: Final = 2
_LATE_LOOK_S: Final = 0.05


class _Page:
    """A page on its way."""

    __slots__ = ("crashes", "frame", "result")

    def __init__(self, frame: bytes, result: asyncio.Future[list[Output]]) -> None:
        self.frame = frame
        self.result = result
        self.crashes = 0


class _Process(asyncio.SubprocessProtocol):
    """One worker process and the pages it has."""

    def __init__(self, pool: ParsePool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport
        self._requests: asyncio.WriteTransport
        self._received = bytearray()
        self._turn_started = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._late_looks = 0
        self.under_way: deque[_Page] = deque()
        self.given = 0
        self.timed_out = False
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._transport.get_pid()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transports; asyncio calls it once the process runs."""
        # Casts, for uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._requests = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        self._pool._born(self)  # noqa: SLF001 - pool and process are one machine

    def send(self, page: _Page) -> None:
        """Give the process a page."""
        if not self.under_way:
            self._turn_starts()
        self.under_way.append(page)
        self.given += 1
        self._requests.write(page.frame)

    def retire(self) -> None:
        """Let the process finish what it has and end; the end of its input tells it."""
        self._requests.close()

    def kill(self) -> None:
        """End the process now."""
        with contextlib.suppress(ProcessLookupError):
            self._transport.kill()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take bytes of answers; asyncio calls it with whatever arrived."""
        del fd  # only the output is a pipe
        received = self._received
        received += data
        while len(received) >= frames.LENGTH.size:
            (length,) = frames.LENGTH.unpack_from(received)
            end = frames.LENGTH.size + length
            if len(received) < end:
                return
            payload = bytes(memoryview(received)[frames.LENGTH.size : end])
            del received[:end]
            self._answered(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand back what was not answered; asyncio calls it when the process is dead and its output is read."""
        del exc
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        self._pool._lost(self)  # noqa: SLF001 - pool and process are one machine

    def cause_of_death(self) -> str:
        """Say how the process ended."""
        if self.timed_out:
            return f"it took longer than {self._pool.time_limit_s:g} s"
        status = self._transport.get_returncode()
        if status is None:
            return "the process is lost"
        if status == frames.MEMORY_EXIT_STATUS:
            return "it needed more memory than allowed"
        if status < 0:
            with contextlib.suppress(ValueError):
                return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with status {status}"

    def _answered(self, payload: bytes) -> None:
        if payload == frames.READY:
            if not self.ready.done():
                self.ready.set_result(None)
            return
        page = self.under_way.popleft()
        if self.under_way:
            self._turn_starts()
        if not page.result.done():
            try:
                page.result.set_result(frames.read_answer(payload))
            except (InputError, frames.ParseFailure, frames.UnknownFrame) as exc:
                page.result.set_exception(exc)
        self._pool._dispatch()  # noqa: SLF001 - pool and process are one machine

    def _turn_starts(self) -> None:
        self._turn_started = self._loop.time()
        self._late_looks = 0
        if self._timer is None:
            self._timer = self._loop.call_at(self._turn_started + self._pool.time_limit_s, self._look)

    def _look(self) -> None:
        """See whether the page whose turn it is has had its time. One timer a process, not one a page."""
        self._timer = None
        if not self.under_way:
            return
        due = self._turn_started + self._pool.time_limit_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        elif self._late_looks < _LATE_LOOKS:
            # The loop itself may have been held up: answers that wait in the pipe are read first.
            self._late_looks += 1
            self._timer = self._loop.call_later(_LATE_LOOK_S, self._look)
        else:
            self.timed_out = True
            self.kill()


class ParsePool:
    """Processes that parse.

    Args:
        command: program and arguments of a worker; it speaks `pipeline.parse.frames` on its standard input and output.
        processes: how many work at a time.
        time_limit_s: for one page, from when its turn starts.
        recycle_pages: pages after which a process is replaced.

    Attributes:
        crashes: processes that died while they had work.
        recycled: processes that were replaced for their age.
    """

    def __init__(
        self, command: Sequence[str], *, processes: int = 1, time_limit_s: float = 10.0, recycle_pages: int = 20_000
    ) -> None:
        self.time_limit_s = time_limit_s
        self.crashes = 0
        self.recycled = 0
        self._command = tuple(command)
        self._size = processes
        self._recycle_pages = recycle_pages
        self._waiting: deque[_Page] = deque()
        self._serving: list[_Process] = []
        self._standby: deque[_Process] = deque()
        self._all: set[_Process] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._failed_starts = 0
        self._failure: BugError | None = None
        self._stopping = False

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that are given pages now."""
        return [process.pid for process in self._serving]

    async def start(self) -> None:
        """Start all processes and wait until each is ready.

        Raises:
            ConfigurationError: the command can't be started, or ends before it is ready.
        """
        for result in await asyncio.gather(*(self._start_one() for _ in range(self._size)), return_exceptions=True):
            if isinstance(result, BaseException):
                await self.stop()
                raise result

    async def stop(self) -> None:
        """End all processes; pages that are still under way are cancelled."""
        self._stopping = True
        for page in [*self._waiting, *(page for process in self._all for page in process.under_way)]:
            page.result.cancel()
        self._waiting.clear()
        for process in self._all:
            process.kill()  # it holds nothing: what it is at is of no use any more
        await asyncio.gather(
            *self._starting, return_exceptions=True
        )  # not cancelled, for a process half started would be nobody's
        for process in list(self._all):
            await process.gone

    async def parse(self, value: bytes, partition: int, now_ms: int) -> list[Output]:
        """Parse one page.

        Args:
            value: value of the page record, as it was read.
            partition: partition it was read from.
            now_ms: time of parsing that the records carry, milliseconds since the epoch.

        Returns:
            The records of the page, encoded.

        Raises:
            InputError: the record is no page, or `parse_crash`: the process died or was ended, twice.
            ParseFailure: the parser failed in a way nobody foresaw.
            BugError: worker processes no longer start, or the pool is stopped.
        """
        if self._failure is not None:
            raise self._failure
        if self._stopping:
            raise BugError("a page for a pool that is stopped")
        page = _Page(frames.request(value, partition, now_ms), asyncio.get_running_loop().create_future())
        self._waiting.append(page)
        self._dispatch()
        return await page.result

    def _dispatch(self) -> None:
        """Give waiting pages to the processes that have least, as far as their windows go."""
        while self._waiting and self._serving:
            process = min(self._serving, key=_load)
            if len(process.under_way) >= WINDOW:
                return
            page = self._waiting.popleft()
            if page.result.done():
                continue  # cancelled while it waited: its partition is another worker's now
            process.send(page)
            if process.given >= self._recycle_pages:
                self._serving.remove(process)
                process.retire()
                self.recycled += 1
            self._refill()

    def _refill(self) -> None:
        """Keep enough processes serving, and start the successor of one that is soon retired."""
        self._fill()
        ageing = sum(process.given >= self._recycle_pages - _AHEAD_PAGES for process in self._serving)
        wanted = self._size + ageing
        while len(self._serving) + len(self._standby) + len(self._starting) < wanted and not self._stopping:
            task = asyncio.create_task(self._start_later())
            self._starting.add(task)
            task.add_done_callback(self._start_ended)

    def _fill(self) -> None:
        while len(self._serving) < self._size and self._standby:
            self._serving.append(self._standby.popleft())

    def _start_ended(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        error = task.exception()
        if error is not None:
            self._give_up(error)
        if not self._stopping and self._failure is None:
            self._refill()

    async def _start_later(self) -> None:
        """Start a process that is needed soon; one that does not start is tried again a few times."""
        while True:
            try:
                await self._start_one()
            except ConfigurationError as exc:
                if self._stopping:
                    return
                self._failed_starts += 1
                if self._failed_starts >= _START_ATTEMPTS:
                    self._give_up(exc)
                    return
            else:
                self._failed_starts = 0
                return

    async def _start_one(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            # A session of its own: Ctrl-C ends the stage, which then ends its workers in order.
            _, process = await loop.subprocess_exec(
                lambda: _Process(self),
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=None,
                env={**os.environ, **WORKER_ENVIRONMENT},
                start_new_session=True,
            )
        except OSError as exc:
            raise ConfigurationError(f"parse worker {self._command[0]}: {exc.strerror}") from exc
        if self._stopping:
            process.kill()
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await asyncio.wait([process.ready, process.gone], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            process.kill()
            raise ConfigurationError(f"parse worker: not ready within {_START_LIMIT_S:g} s") from None
        if not process.ready.done() or process.gone.done():
            raise ConfigurationError(f"parse worker: not ready, {process.cause_of_death()}; its messages stand above")
        self._standby.append(process)
        self._fill()
        self._dispatch()

    def _born(self, process: _Process) -> None:
        self._all.add(process)

    def _lost(self, process: _Process) -> None:
        """Put the pages of a dead process back; only the one whose turn it was is suspect."""
        self._all.discard(process)
        if process in self._serving:
            self._serving.remove(process)
        if process in self._standby:
            self._standby.remove(process)
        if self._stopping:
            return
        if process.under_way:
            self.crashes += 1
            suspect = process.under_way.popleft()
            suspect.crashes += 1
            self._waiting.extendleft(reversed(process.under_way))
            if suspect.crashes < ATTEMPTS:
                self._waiting.append(suspect)
            elif not suspect.result.done():
                suspect.result.set_exception(InputError("parse_crash", process.cause_of_death()))
        if process.ready.done():  # one that was not is seen to by whoever started it
            self._refill()
            self._dispatch()

    def _give_up(self, cause: BaseException) -> None:
        self._failure = BugError(f"parse workers no longer start: {cause}")
        for page in self._waiting:
            if not page.result.done():
                page.result.set_exception(self._failure)
        self._waiting.clear()


def _load(process: _Process) -> int:
    return len(process.under_way)
