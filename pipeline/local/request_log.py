"""The site's own log of requests: one JSON object a line, written by the simulated web, read by its judges."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pipeline.web.url import canonical_form

FLUSH_S = 0.1
"""A line is in the file so long after its answer, at the latest."""


class LoggedRequest(NamedTuple):
    """One request as the site saw it.

    Attributes:
        host: Host header, with the port.
        path: path and query.
        status: status that was sent; 0 when the client went away before the answer.
        start_ns: when the request was read, wall clock, nanoseconds since the epoch.
        end_ns: when the answer was handed to the connection, or the client was seen to be gone. Never later than the
            client's own end of the response.
        retry_after_ns: earliest next request that the answer asked for, nanoseconds since the epoch.
        connection: number of the connection.
        agent: User-Agent header, in small letters; empty where there was none.
        late_ns: how much earlier the request may have come in and, for a client that had vanished, have been over: the
            site's own process stood still and read nothing. 0 where it was in time, and in lines that don't tell.
    """

    host: str
    path: str
    status: int
    start_ns: int
    end_ns: int
    retry_after_ns: int | None = None
    connection: int = 0
    agent: str = ""
    late_ns: int = 0

    @property
    def earliest_end_ns(self) -> int:
        """When it may have been over, by what the log knows."""
        return self.end_ns - self.late_ns

    @property
    def url(self) -> str:
        """The URL that was asked for."""
        return f"http://{self.host}{self.path}"

    @property
    def page(self) -> str:
        """The canonical URL of what was asked for: links are asked for as they are written."""
        return canonical_form(self.url)


def prefix(host: bytes, path: bytes, agent: bytes = b"") -> bytes:
    """Return the beginning of a line. Any bytes can stand in a request."""
    names = {"host": host.decode("latin-1"), "path": path.decode("latin-1"), "agent": agent.decode("latin-1")}
    return json.dumps(names, separators=(",", ":")).encode("ascii")[:-1]


def line(start: bytes, request: tuple[int, int, int, int | None, int, int]) -> bytes:
    """Return one line.

    Args:
        start: from `prefix`.
        request: status, start, end, Retry-After, connection and lateness, as in `LoggedRequest`.
    """
    status, start_ns, end_ns, retry_after_ns, connection, late_ns = request
    after = b"null" if retry_after_ns is None else b"%d" % retry_after_ns
    return b'%b,"status":%d,"start_ns":%d,"end_ns":%d,"retry_after_ns":%b,"connection":%d,"late_ns":%d}\n' % (
        start,
        status,
        start_ns,
        end_ns,
        after,
        connection,
        late_ns,
    )


class RequestLog:
    """Appends lines to a file, gathered for at most `FLUSH_S`.

    Args:
        path: the file; made with its directory where it is missing, continued where it exists.
        call_later: the event loop's.
    """

    def __init__(self, path: Path, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._call_later = call_later
        self._lines: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        os.close(self._file)

    def add(self, text: bytes) -> None:
        """Take one line."""
        if not self._lines:
            self._call_later(FLUSH_S, self.flush)
        self._lines.append(text)

    def flush(self) -> None:
        """Write what was gathered."""
        if self._lines:
            text, self._lines = b"".join(self._lines), []
            while text:
                text = text[os.write(self._file, text) :]


def read_log(path: Path) -> list[LoggedRequest]:
    """Read a log, in order of the requests' starts; a last line that is not whole yet is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    requests = [LoggedRequest(**json.loads(text)) for text in whole.splitlines()]
    return sorted(requests, key=lambda request: request.start_ns)
