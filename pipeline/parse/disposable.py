"""A process that may die: pages on standard input, what they gave on standard output, nothing else held.

It owns no file, no socket, no state. It ends when its input does, so it can't outlive its parent; a page that would
keep it from reading is cut short by an alarm of the kernel.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pipeline.delivery.api import Output
from pipeline.errors import InputError
from pipeline.parse import frames

Handler = Callable[[bytes, int, int], list[Output]]
"""Value of a page record, its partition, time in ms since the epoch -> records; raises `InputError`."""

_READ_BUFFER_BYTES: Final = 1 << 20
_ORPHAN_FACTOR: Final = 2.0
_FIRST_FOREIGN_DESCRIPTOR: Final = 3
_STATM: Final = Path("/proc/self/statm")


def serve(handle: Handler, *, memory_limit_bytes: int, time_limit_s: float) -> None:
    """Answer requests until the input ends.

    Args:
        handle: what is done with a page.
        memory_limit_bytes: address space that may be taken beyond what is taken now.
        time_limit_s: for one page. The parent keeps it; this process ends itself at twice the time, for the case that
            the parent is gone.
    """
    answers = _isolate()
    _limit_memory(memory_limit_bytes)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: so is the work
        _write(answers, frames.ready())
        for payload in _requests():
            signal.setitimer(signal.ITIMER_REAL, _ORPHAN_FACTOR * time_limit_s)
            answer = _answer(handle, payload)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _write(answers, answer)


def _requests() -> Iterator[bytes]:
    """Payloads of the frames on standard input, until it ends."""
    file = os.fdopen(0, "rb", buffering=_READ_BUFFER_BYTES, closefd=False)
    while len(header := file.read(frames.LENGTH.size)) == frames.LENGTH.size:
        (length,) = frames.LENGTH.unpack(header)
        payload = file.read(length)
        if len(payload) < length:
            return  # the parent died in the middle of a frame
        yield payload


def _answer(handle: Handler, payload: bytes) -> bytes:
    try:
        return frames.outputs(handle(*frames.read_request(payload)))
    except InputError as exc:
        return frames.refused(exc)
    except MemoryError:
        os._exit(frames.MEMORY_EXIT_STATUS)  # what is left can't be relied on, an orderly end included
    except Exception as exc:  # noqa: BLE001 - it ends as a dead letter of this page, with its class
        return frames.failed(exc)


def _isolate() -> int:
    """Cut the process off from its parent; return the descriptor of the answers."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the stage ends its workers itself, once it is drained
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # A descriptor that leaked from the parent could be a broker's socket: held here it would look alive after a crash.
    os.closerange(_FIRST_FOREIGN_DESCRIPTOR, os.sysconf("SC_OPEN_MAX"))
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not stand between answers
    return answers


def _limit_memory(limit_bytes: int) -> None:
    taken_bytes = int(_STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = taken_bytes + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(descriptor: int, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
