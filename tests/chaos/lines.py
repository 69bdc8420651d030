"""A file of JSON lines that many processes append to, some of which are killed or find the disk full."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Lines:
    """Appends lines. Each is one write, so that the lines of two processes do not mix."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def append(self, row: Mapping[str, object]) -> None:
        """Append one line; a full disk takes it or its end, and nobody is told."""
        with contextlib.suppress(OSError):
            os.write(self._file, json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> list[dict[str, Any]]:
    """Return all lines that are whole; none where there is no file."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # the last one may be in work, others may be cut by a full disk
            rows.append(json.loads(line))
    return rows
