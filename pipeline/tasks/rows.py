"""What every reader of task files yields: rows with their lines, and the text they are read from."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from pipeline.tasks.problems import Problem

_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNUSABLE: Final = re.compile("[\x00\udc80-\udcff]")
"""A NUL byte, and what the error handler `surrogateescape` makes of bytes that are not UTF-8 (PEP 383)."""
REPLACEMENT: Final = "\ufffd"


class Row(NamedTuple):
    """One task as it stands in a file, not yet checked.

    Attributes:
        line: of its first character, from 1.
        end_line: of its last one.
        values: field → value; None where it can't be read as fields at all.
        lines: field → line; a field that is absent stands on `line`.
        problems: what the reader has found already; a row that has any is never submitted.
        texts: whether all values are text that is to be converted, as in CSV.
        usable: False where the row is only checked, as below a wrong header.
    """

    line: int
    end_line: int
    values: Mapping[str, object] | None
    lines: Mapping[str, int] = {}
    problems: tuple[Problem, ...] = ()
    texts: bool = False
    usable: bool = True


Reader = Callable[[str], Iterator[Row]]
"""Reads a text whose line ends are all line feeds. It raises nothing: what can't be read is a row with problems."""


def unreadable(line: int, text: str, end_line: int = 0) -> Row:
    """Return the row of something that is no task."""
    return Row(line, end_line or line, None, problems=(Problem(line, "", text),))


class Lines:
    """Tells the line, from 1, of a position in a text.

    Args:
        text: with line feeds as line ends.
    """

    def __init__(self, text: str) -> None:
        self._ends = [match.start() for match in re.finditer("\n", text)]

    def at(self, position: int) -> int:
        """Return the line of the character at `position`."""
        return bisect_right(self._ends, position - 1) + 1


def decode(data: bytes) -> tuple[str, dict[int, str]]:
    """Read bytes as UTF-8, with or without a byte order mark; all line ends become line feeds.

    Returns:
        The text, and what is wrong by line, from 1. What is wrong stands in the text as U+FFFD, so that the other lines
        can be read.
    """
    if data.startswith(_UTF16):
        return "", {1: "UTF-16, not UTF-8: save the file as UTF-8"}
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not _UNUSABLE.search(text):
        return text, {}
    wrong: dict[int, str] = {}
    lines = Lines(text)
    for match in _UNUSABLE.finditer(text):
        what = "a NUL byte" if match[0] == "\0" else f"not UTF-8: byte 0x{ord(match[0]) - 0xDC00:02x}"
        wrong.setdefault(lines.at(match.start()), what)
    return _UNUSABLE.sub(REPLACEMENT, text), wrong
