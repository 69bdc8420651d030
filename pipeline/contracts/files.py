"""Files that are replaced in one step."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 file so that a reader, and a restart after a crash, sees the old text or the new one, whole.

    Raises:
        OSError: the disk refused; the old file is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would hide the file from a worker under another user
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
