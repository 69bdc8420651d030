"""HTTP server of the simulated web: prepared answers, as little work a request as Python allows, a log for the judges.

HTTP/1.1 with persistent connections; GET and HEAD. A client may vanish at any time.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from pipeline.errors import ConfigurationError
from pipeline.local.loop_watch import LoopWatch
from pipeline.local.request_log import RequestLog, line, prefix
from pipeline.local.simulated_limits import Quota
from pipeline.local.simulated_pages import Answer, make_answer, not_found
from pipeline.local.simulated_site import FirstAnswer
from pipeline.web.url import canonical_form

HOST: Final = "127.0.0.1"
MAX_HEAD_BYTES: Final = 64 << 10
PARENT_LOOK_S: Final = 0.5
BACKLOG: Final = 1_024
SECOND_NS: Final = 10**9
OVERLOAD_NS: Final = 3 * SECOND_NS
"""How long the web is overloaded after a SIGUSR1."""

_NOT_FOUND: Final = not_found()
_OVERLOADED: Final = FirstAnswer(503, ("seconds", 2))
_ROBOTS: Final = b"/robots.txt"
_ANY_SITE: Final = "http://site"
_BAD_REQUEST: Final = make_answer(400, "text/plain", b"Bad request\n", ("Connection: close",))

LateAnswer = Callable[[bytes], Answer | None]


class _Request(NamedTuple):
    host: bytes
    target: bytes
    start_ns: int
    late_ns: int
    head_only: bool
    close: bool
    agent: bytes


class Overload:
    """A web that has enough: as long as it lasts every page is answered with 503 and Retry-After, robots.txt as usual.

    Attributes:
        until_ns: its end, nanoseconds since the epoch.
    """

    def __init__(self) -> None:
        self.until_ns = 0

    def begin(self) -> None:
        """Be overloaded from now on."""
        self.until_ns = time.time_ns() + OVERLOAD_NS


class Connection(asyncio.Protocol):
    """One connection: requests are answered in order, one at a time.

    Args:
        answers: by Host header with port, then path and query.
        late_answer: asked for what isn't among them.
        log: takes a line for each request.
        number: of the connection, for the log.
        overload: of the web.
        watch: of the loop.
    """

    def __init__(
        self,
        answers: Mapping[bytes, Answer],
        late_answer: LateAnswer,
        log: RequestLog,
        number: int,
        *,
        overload: Overload,
        watch: LoopWatch,
    ) -> None:
        self._answers = answers
        self._late_answer = late_answer
        self._log = log
        self._number = number
        self._overload = overload
        self._watch = watch
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._slow: tuple[_Request, asyncio.TimerHandle] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a TCP server's is a Transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it was lost doesn't matter
        self._transport = None
        if self._slow is not None:
            request, timer = self._slow
            timer.cancel()
            self._write_log(request, 0, None)

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        self._answer_received()

    def _answer_received(self) -> None:
        while self._transport is not None and self._slow is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > MAX_HEAD_BYTES:
                    self._transport.close()
                return
            head, self._received = self._received[:end], self._received[end + 4 :]
            start_ns = time.time_ns()
            request = _parse(head, start_ns, self._watch.late_ns(start_ns))
            if request is None:
                self._transport.write(_BAD_REQUEST.response)
                self._transport.close()
                return
            self._answer(request)

    def _answer(self, request: _Request) -> None:
        if request.start_ns < self._overload.until_ns and request.target != _ROBOTS:
            self._send(request, *_first_answer(_OVERLOADED, time.time_ns()))
            return
        key = request.host + request.target
        if key not in self._answers:
            key = request.host + _in_plan(request.target)
        answer = self._answers.get(key) or self._late_answer(key) or _NOT_FOUND
        if answer.quota is not None:
            self._answer_within(answer.quota, request, answer)
        elif answer.first_answers:
            self._send(request, *_first_answer(answer.first_answers.pop(0), time.time_ns()))
        elif answer.delay_s:
            loop = asyncio.get_running_loop()
            self._slow = request, loop.call_later(answer.delay_s, self._answer_slow, request, answer)
        else:
            self._send(request, answer, None)

    def _answer_within(self, quota: Quota, request: _Request, answer: Answer) -> None:
        told = quota.ask(request.start_ns, may_refuse=request.target != _ROBOTS)
        if told.is_refused:
            answer = make_answer(quota.limit.status, "text/plain; charset=utf-8", b"Not now.\n", told.fields)
        else:
            answer = answer.with_fields(told.fields)
        self._send(request, answer, told.not_before_ns)

    def _answer_slow(self, request: _Request, answer: Answer) -> None:
        self._slow = None
        self._send(request, answer, None)
        self._answer_received()

    def _send(self, request: _Request, answer: Answer, retry_after_ns: int | None) -> None:
        if self._transport is None:
            return
        # Logged with the time before it is sent: the client's own end of the response is never earlier.
        self._write_log(request, answer.status, retry_after_ns)
        self._transport.write(answer.response[: answer.head_bytes] if request.head_only else answer.response)
        if request.close:
            self._transport.close()

    def _write_log(self, request: _Request, status: int, retry_after_ns: int | None) -> None:
        start = prefix(request.host, request.target, request.agent)
        end_ns = time.time_ns()
        # Who had vanished may have been through with it when the standstill began, but not before the request came in.
        late_ns = min(self._watch.late_ns(end_ns), end_ns - request.start_ns + request.late_ns)
        self._log.add(line(start, (status, request.start_ns, end_ns, retry_after_ns, self._number, late_ns)))


def _parse(head: bytes, start_ns: int, late_ns: int) -> _Request | None:
    """Read a request's head; None for one that can't be answered.

    A body is nothing that a crawler sends, and its bytes would be taken for the next request.
    """
    request_line, _, fields = head.partition(b"\r\n")
    parts = request_line.split(b" ")
    fields = b"\r\n" + fields.lower() + b"\r\n"
    host_at = fields.find(b"\r\nhost:")
    if len(parts) != 3 or host_at < 0 or b"\r\ncontent-length:" in fields or b"\r\ntransfer-encoding:" in fields:
        return None
    method, target, version = parts
    host = fields[host_at + 7 : fields.find(b"\r\n", host_at + 7)].strip()
    agent_at = fields.find(b"\r\nuser-agent:")
    agent = fields[agent_at + 13 : fields.find(b"\r\n", agent_at + 13)].strip() if agent_at >= 0 else b""
    close = version != b"HTTP/1.1" or b"\r\nconnection: close\r\n" in fields
    return _Request(host, target, start_ns, late_ns, method == b"HEAD", close, agent)


def _in_plan(target: bytes) -> bytes:
    """Return path and query as the plan has them: like most sites, these ignore tracking parameters."""
    if not target.startswith(b"/"):
        return target
    return canonical_form(_ANY_SITE + target.decode("latin-1")).removeprefix(_ANY_SITE).encode("latin-1")


def _first_answer(first: FirstAnswer, now_ns: int) -> tuple[Answer, int | None]:
    """Make a refusal, and say until when it asks to be left alone."""
    fields: tuple[str, ...] = ()
    until_ns = None
    match first.retry_after:
        case ("seconds", seconds):
            fields, until_ns = (f"Retry-After: {seconds}",), now_ns + seconds * SECOND_NS
        case ("date", seconds):
            until_s = now_ns // SECOND_NS + seconds
            fields, until_ns = (f"Retry-After: {formatdate(until_s, usegmt=True)}",), until_s * SECOND_NS
    return make_answer(first.status, "text/plain; charset=utf-8", b"Not now.\n", fields), until_ns


def listen(port: int) -> socket.socket:
    """Take a port of the loopback address; 0 takes a free one.

    Raises:
        ConfigurationError: it is in use.
    """
    try:
        return socket.create_server((HOST, port), backlog=BACKLOG)
    except OSError as exc:
        raise ConfigurationError(
            f"port {port} of {HOST}: {exc.strerror}; name another one, or 0 for a free one"
        ) from exc


def run(
    listener: socket.socket,
    answers: Mapping[bytes, Answer],
    late_answer: LateAnswer,
    log: Path,
    parent: int | None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until `parent` isn't the parent of this process any more.

    SIGUSR1 begins an `Overload`.

    Prints one line of JSON with the `port` when it is ready.

    Raises:
        OSError: the log can't be written: without it nobody could judge, so the server ends.
    """
    # The pages live as long as the process: no collection shall walk through them.
    gc.collect()
    gc.freeze()
    uvloop.run(_serve(listener, answers, late_answer, log, parent))


async def _serve(
    listener: socket.socket,
    answers: Mapping[bytes, Answer],
    late_answer: LateAnswer,
    path: Path,
    parent: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def fail(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        exception = context.get("exception") or RuntimeError(context["message"])
        if not isinstance(exception, ConnectionError) and not ended.done():  # clients may vanish
            ended.set_exception(exception)

    loop.set_exception_handler(fail)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    overload = Overload()
    loop.add_signal_handler(signal.SIGUSR1, overload.begin)
    connections = itertools.count(1)
    watch = LoopWatch(time.time_ns())
    watch.follow(loop.call_later)
    with RequestLog(path, loop.call_later) as log:
        server = await loop.create_server(
            lambda: Connection(answers, late_answer, log, next(connections), overload=overload, watch=watch),
            sock=listener,
            backlog=BACKLOG,
        )
        sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
        sys.stdout.flush()
        while not ended.done():
            await asyncio.wait([ended], timeout=PARENT_LOOK_S)
            if parent is not None and os.getppid() != parent:
                end()
        server.close()
        ended.result()
