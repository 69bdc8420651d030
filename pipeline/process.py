"""What a long-running process sets for itself at its start."""

from __future__ import annotations

import gc
import io
import os
import resource
import sys
from typing import Any, TextIO

GENERATION_0_OBJECTS = 20_000
GENERATION_1_ROUNDS = 20
GENERATION_2_ROUNDS = 50


def calm_garbage_collection() -> None:
    """Collect less often, and never what was there from the start.

    Records are trees of short-lived objects without cycles. The interpreter's threshold of 700 new objects would look
    through all of them, and now and then through every imported module, to find nothing. To be called when everything
    is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_ROUNDS, GENERATION_2_ROUNDS)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have: each connection that is kept is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _Unfailing(io.FileIO):
    """A file that drops what it can't take."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def outlive_output() -> None:
    """Go on where standard output or error can't be written: a full disk, a reader that has gone, a closed file.

    What is said there is lost. Else whoever prints would raise, and the interpreter ends with a status of its own (120)
    when its last flush fails. To be called before anybody keeps one of the two.
    """
    sys.stdout = sys.__stdout__ = _outliving(sys.stdout, 1)  # type: ignore[misc, assignment]  # who redirects output puts it back
    sys.stderr = sys.__stderr__ = _outliving(sys.stderr, 2)  # type: ignore[misc, assignment]  # same


def _outliving(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # closed when the process began
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  # to the end of the process
    try:
        same = stream.fileno() == number
    except (OSError, ValueError):  # a caller's own, without a file behind it
        same = False
    if not same or not isinstance(stream, io.TextIOWrapper):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Unfailing(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
