"""A wall clock that somebody outside can shift: a worker reads it from a file of eight bytes."""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

_OFFSET = struct.Struct("<d")


def shift(path: Path, seconds: float) -> None:
    """Let the clock of who reads the file be so many seconds ahead from now on, or behind where it is negative."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(_OFFSET.pack(seconds))  # in place: it is mapped


def install(path: Path) -> None:
    """Let `time.time` of this process, and the runners' clock, be as the file says."""
    from pipeline.delivery.ordered import OrderedRunner  # noqa: PLC0415  # who shifts a clock needs none of the product

    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)
    real = time.time

    def shifted() -> float:
        return real() + _OFFSET.unpack_from(mapped)[0]

    time.time = shifted
    OrderedRunner.__init__.__kwdefaults__["clock"] = shifted  # it was bound when the class was made
