"""What is wrong with a task, said to the one who wrote it: line, field, what is wrong, the nearest right name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from pipeline.tasks.model import nearest_field, wanted

SHOWN_CHARACTERS: Final = 60
_NEVER_SHOWN: Final = frozenset({"headers"})
_OF_ANOTHER_TYPE: Final = "string_type"


class Problem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        line: where, from 1.
        field: of the task; empty where the whole row is meant.
        text: what is wrong.
        nearest: the nearest right name of a field that there is not; else empty.
    """

    line: int
    field: str
    text: str
    nearest: str = ""

    def __str__(self) -> str:
        """Return it without its line: `field: text`."""
        text = f"{self.field}: {self.text}" if self.field else self.text
        return f"{text}; the nearest is {self.nearest!r}" if self.nearest else text


def shown(value: object) -> str:
    """Return a value for a message: bounded, without control characters and surrogates, as JSON has it."""
    if isinstance(value, str):
        text = ascii(value)
    elif isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    else:
        text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def bare(name: str) -> str:
    """Return a name for a message, as `shown` but without quotes."""
    return shown(name)[1:-1]


def unknown_field(name: str, line: int) -> Problem:
    """Return the problem of a field that there is not."""
    return Problem(line, bare(name), "there is no such field", nearest_field(name))


def problems_of(error: ValidationError, line: int, lines: Mapping[str, int]) -> list[Problem]:
    """Return every problem of one task, in the order of the lines.

    Args:
        error: of the model.
        line: where the task begins.
        lines: field → its line, where it is known.
    """
    found = []
    for row in error.errors(include_url=False):
        field = str(row["loc"][0]) if row["loc"] else ""
        place = lines.get(field, line)
        found.append(unknown_field(field, place) if row["type"] == "extra_forbidden" else _known(field, place, row))
    return sorted(found)


def _known(field: str, line: int, row: Mapping[str, Any]) -> Problem:
    if row["type"] == "missing":
        return Problem(line, field, "is missing")
    value, message = row["input"], row["msg"]
    right = f"wanted is {wanted(field)}"
    if field in _NEVER_SHOWN:
        return Problem(line, field, f"{message if row['type'] == field else 'not a name'}; {right}")
    if row["type"] == "url":
        return Problem(line, field, message)
    if row["type"] == "string_too_long":
        return Problem(line, field, f"longer than {row['ctx']['max_length']} characters")
    if row["type"] == field:  # by a check of our own, which knows more
        return Problem(line, field, f"{shown(value)}: {message}; {right}")
    quotes = ", in quotes where it looks like a number" if row["type"] == _OF_ANOTHER_TYPE else ""
    return Problem(line, field, f"{shown(value)} is not right; {right}{quotes}")
