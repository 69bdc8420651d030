"""A worker process whose pages say what goes wrong: tests give it to the pool as its command.

Value of a page -> what happens: `segfault`, `hang`, `memory`, `exit`, `print`, `refuse`, `boom`, `die-once:FILE` (only
while there is no such file), `slow:SECONDS`. Everything else comes back in capitals, with the process's id as key.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import threading
from pathlib import Path

from pipeline.delivery.api import Output
from pipeline.errors import InputError
from pipeline.parse.disposable import serve


def handle(value: bytes, partition: int, now_ms: int) -> list[Output]:
    """Do as the page says."""
    word, _, argument = value.decode().partition(":")
    match word:
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            signal.pause()
        case "memory":
            bytearray(1 << 40)
        case "exit":
            os._exit(3)
        case "print":
            os.write(1, b"a library that talks")
        case "refuse":
            raise InputError("undecodable", "no page", field="body")
        case "boom":
            raise ZeroDivisionError("nobody foresaw it")
        case "die-once" if not Path(argument).exists():
            Path(argument).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "slow":
            threading.Event().wait(float(argument))
        case _:
            pass
    return [Output("t", value.upper() + b"@%d" % now_ms, b"%d" % os.getpid(), partition), Output("u", None)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory-limit-bytes", type=int, default=1 << 30)
    parser.add_argument("--time-limit-s", type=float, default=60.0)
    given = parser.parse_args()
    serve(handle, memory_limit_bytes=given.memory_limit_bytes, time_limit_s=given.time_limit_s)
