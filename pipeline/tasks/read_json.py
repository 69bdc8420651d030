"""Reader of JSON (RFC 8259): an array of tasks, or one task after another, such as JSON lines.

Python's own decoder reads the values; what it does not tell is where they stand, so the braces of a task are read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from typing import Final, NoReturn

from pipeline.tasks.problems import Problem, bare, shown
from pipeline.tasks.rows import Lines, Row, unreadable

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NEXT_OBJECT: Final = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
_NOT_READ: Final = "; what follows was not read"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


class _NotJsonError(Exception):
    """The text is not JSON at a position."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def read_json(text: str) -> Iterator[Row]:
    """Yield a row for each value.

    Behind what is not JSON an array ends: nobody can say where its next task begins. One task after another go on at
    the next line that begins with a brace.
    """
    lines = Lines(text)
    position = _skip(text, 0)
    if text.startswith("[", position):
        yield from _array(text, position, lines)
        return
    while position < len(text):
        start = position
        try:
            row, position = _row(text, position, lines)
        except _NotJsonError as exc:
            found = _NEXT_OBJECT.search(text, text.find("\n", start) + 1 or len(text))
            position = found.end() if found else len(text)
            yield unreadable(lines.at(exc.position), f"not JSON: {exc}", lines.at(max(start, position - 1)))
        else:
            yield row
        position = _skip(text, position)


def _array(text: str, position: int, lines: Lines) -> Iterator[Row]:
    position = _skip(text, position + 1)
    try:
        while not text.startswith("]", position):
            row, position = _row(text, position, lines)
            yield row
            position = _next(text, position, "]")
        _end(text, _skip(text, position + 1))
    except _NotJsonError as exc:
        yield unreadable(lines.at(exc.position), f"not JSON: {exc}{_NOT_READ}", lines.at(len(text)))


def _row(text: str, position: int, lines: Lines) -> tuple[Row, int]:
    """Return the row that begins at a position, and where it ends."""
    start = position
    line = lines.at(start)
    if not text.startswith("{", position):
        value, position = _value(text, position)
        return unreadable(line, f"{shown(value)} is not a task: an object is", lines.at(position - 1)), position
    values: dict[str, object] = {}
    places: dict[str, int] = {}
    problems: list[Problem] = []
    position = _skip(text, position + 1)
    while not text.startswith("}", position):
        if not text.startswith('"', position):
            raise _NotJsonError("a field's name must stand in double quotes", position)
        place = lines.at(position)
        name, position = _value(text, position)
        position = _skip(text, position)
        if not text.startswith(":", position):
            raise _NotJsonError(f"no : after {shown(name)}", position)
        value, position = _value(text, _skip(text, position + 1))
        if name in values:
            problems.append(Problem(place, bare(str(name)), "stands here twice"))
        values[str(name)], places[str(name)] = value, place
        position = _next(text, position, "}")
    return Row(line, lines.at(position), values, places, tuple(problems)), position + 1


def _value(text: str, position: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, position)
    except JSONDecodeError as exc:
        raise _NotJsonError(exc.msg, exc.pos) from None
    except ValueError as exc:  # a constant that JSON lacks, or a number of thousands of digits
        raise _NotJsonError(str(exc).partition(":")[0], position) from None
    except RecursionError:
        raise _NotJsonError("nested too deeply", position) from None


def _next(text: str, end: int, closing: str) -> int:
    """Return where the next element begins behind the one that ends at `end`, or where the closing bracket is."""
    position = _skip(text, end)
    if text.startswith(",", position):
        position = _skip(text, position + 1)
        if text.startswith(closing, position):
            raise _NotJsonError(f"a comma before {closing}", position)
    elif not text.startswith(closing, position):
        raise _NotJsonError(f"neither , nor {closing}", end)
    return position


def _end(text: str, position: int) -> None:
    if position < len(text):
        raise _NotJsonError("something follows the array", position)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
