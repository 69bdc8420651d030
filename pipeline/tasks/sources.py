"""Where tasks are read from: files, standard input, and words of a command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.errors import InputError
from pipeline.tasks.formats import READERS, format_of
from pipeline.tasks.problems import shown
from pipeline.tasks.rows import Row, decode, unreadable

STANDARD_INPUT: Final = "-"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Source(NamedTuple):
    """Rows and what they come from.

    Attributes:
        name: of the file; for messages.
        rows: not yet read.
        unusable: what is wrong by line, as of `decode`.
    """

    name: str
    rows: Iterator[Row]
    unusable: Mapping[int, str]


def open_file(name: str, format_name: str | None, max_bytes: int) -> Source:
    """Read a file into memory; its rows are looked at as they are asked for.

    Args:
        name: its path; `-` for standard input.
        format_name: of `READERS`; None for what the ending of the name says.
        max_bytes: largest file.

    Raises:
        InputError: `invalid_task`: it can't be read, or is larger.
    """
    try:
        if name == STANDARD_INPUT:
            data = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(max_bytes + 1)
    except OSError as exc:
        raise InputError("invalid_task", f"{name}: {exc.strerror}") from exc
    if len(data) > max_bytes:
        raise InputError("invalid_task", f"{name}: more than {max_bytes} bytes; tasks.max_file_bytes, or several files")
    text, unusable = decode(data)
    return Source(name, READERS[format_name or format_of(name)](text), unusable)


def is_file(word: str) -> bool:
    """Return whether a word of a command line names a file: it is there, and has no scheme as a URL has."""
    return word == STANDARD_INPUT or (not _SCHEME.match(word) and Path(word).exists())


def words(name: str, urls: Sequence[str]) -> Source:
    """Return URLs of a command line as rows; the line of each is its place, from 1."""
    return Source(name, (_word(place, url) for place, url in enumerate(urls, 1)), {})


def _word(place: int, word: str) -> Row:
    if _SCHEME.match(word):
        return Row(place, place, {"url": word})
    return unreadable(place, f"{shown(word)} is neither an absolute URL nor a file that is there")
