"""From rows to tasks: each row is right, wrong with every reason, or a task that stood there before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import ValidationError

from pipeline.tasks.model import Limits, WrittenTask
from pipeline.tasks.problems import Problem, problems_of
from pipeline.tasks.records import Defaults, Wish, wish_of
from pipeline.tasks.rows import Row

_NOT_COMPARED: Final = frozenset({"url", "redirects"})
"""Of two tasks with the same id: their URLs may be written in different ways."""


class Right(NamedTuple):
    """A row that is a task.

    Attributes:
        number: of the row, from 0.
        line: from 1.
        wish: the task.
    """

    number: int
    line: int
    wish: Wish


class Wrong(NamedTuple):
    """A row that is none.

    Attributes:
        number: of the row, from 0.
        problems: all of them, by line.
    """

    number: int
    problems: tuple[Problem, ...]


class Repeated(NamedTuple):
    """A row whose task stood there before, so that it is submitted once.

    Attributes:
        number: of the row, from 0.
        line: from 1.
        first: where it stood first: file and line.
        same: whether the two say the same; otherwise the first counts.
    """

    number: int
    line: int
    first: tuple[str, int]
    same: bool


Verdict = Right | Wrong | Repeated


class Checker:
    """Checks rows, of one file after another: what stands in two of them is one task, too.

    Args:
        limits: what the configuration allows.
        defaults: for tasks that do not say.
    """

    def __init__(self, limits: Limits, defaults: Defaults) -> None:
        self._limits = limits
        self._defaults = defaults
        self._first: dict[str, tuple[str, int, int]] = {}

    def check(self, rows: Iterable[Row], unusable: Mapping[int, str], name: str = "") -> Iterator[Verdict]:
        """Yield a verdict for each row, in order.

        Args:
            rows: of a reader.
            unusable: what is wrong by line, as `decode` tells; a row on such a line is wrong.
            name: of the file.
        """
        left = dict(unusable)
        number = -1
        for number, row in enumerate(rows):
            bad = [Problem(line, "", left.pop(line)) for line in _between(left, row)]
            yield Wrong(number, tuple(bad)) if bad else self._verdict(number, row, name)
        for line, text in sorted(left.items()):  # outside of all rows, as in a comment
            number += 1
            yield Wrong(number, (Problem(line, "", text),))

    def _verdict(self, number: int, row: Row, name: str) -> Verdict:
        problems = list(row.problems)
        task = None
        if row.values is not None:
            given = {field: value for field, value in row.values.items() if value is not None}
            try:
                task = WrittenTask.model_validate(given, strict=not row.texts, context=self._limits)
            except ValidationError as exc:
                problems += problems_of(exc, row.line, row.lines)
        if problems or task is None:
            return Wrong(number, tuple(sorted(problems)))
        wish = wish_of(task, self._defaults, self._limits)
        if not row.usable:
            return Wrong(number, ())
        fingerprint = hash(tuple(value for name, value in wish.record.items() if name not in _NOT_COMPARED))
        first = self._first.get(wish.id)
        if first is not None:
            return Repeated(number, row.line, first[:2], fingerprint == first[2])
        self._first[wish.id] = (name, row.line, fingerprint)
        return Right(number, row.line, wish)


def _between(unusable: Mapping[int, str], row: Row) -> list[int]:
    return sorted(line for line in unusable if row.line <= line <= row.end_line) if unusable else []
