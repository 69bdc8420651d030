"""Reader of YAML (1.2): a list of tasks, or one task a document.

Only the parser's events are read, never objects built from them: they carry positions, and neither aliases (which can
make gigabytes of a few lines) nor tags (which can name code) have any meaning here. Scalars have the types of the core
schema (YAML 1.2.2, 10.3.2), not those of YAML 1.1, by which `no` is false and `12:30:00` a number; but what a field of
text takes is text, so that a crawl may be named 2024 without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from pipeline.tasks.model import TEXT_FIELDS
from pipeline.tasks.problems import Problem, bare, shown
from pipeline.tasks.rows import Lines, Row, unreadable

_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class _Nested:
    """Stands for a list or mapping where a field's value should be."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __str__(self) -> str:
        return self._what


class _NotATaskError(Exception):
    """A thing that has no meaning in a task."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def read_yaml(text: str) -> Iterator[Row]:
    """Yield a row for each task; behind what is not YAML nothing can be read."""
    lines = Lines(text)
    # The C parser, libyaml; it bounds its own nesting.
    events: Iterator[Any] = yaml.parse(text, Loader=yaml.CSafeLoader)
    try:
        yield from _documents(events, lines)
    except _NotATaskError as exc:
        yield unreadable(lines.at(exc.position), f"{exc}; what follows was not read", lines.at(len(text)))
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        problem = getattr(exc, "problem", None) or str(exc).partition("\n")[0]
        line = lines.at(mark.index) if mark else 1
        yield unreadable(line, f"not YAML: {problem}; what follows was not read", lines.at(len(text)))


def _documents(events: Iterator[Any], lines: Lines) -> Iterator[Row]:
    in_list = False
    for event in events:
        if isinstance(event, yaml.SequenceStartEvent) and not in_list:
            _plain(event)
            in_list = True
        elif isinstance(event, yaml.SequenceEndEvent):
            in_list = False
        elif isinstance(event, yaml.MappingStartEvent):
            yield _task(event, events, lines)
        elif isinstance(event, yaml.NodeEvent):
            value = _value(event, events)
            if in_list or value is not None:  # a document without content is none
                yield unreadable(_line(event, lines), f"{shown(value)} is not a task: a mapping is")


def _task(start: Any, events: Iterator[Any], lines: Lines) -> Row:
    _plain(start)
    values: dict[str, object] = {}
    places: dict[str, int] = {}
    problems: list[Problem] = []
    event: Any
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        line = _line(event, lines)
        _plain(event)
        name = event.value if isinstance(event, yaml.ScalarEvent) else str(_value(event, events))
        value = _value(next(events), events, of_text=name in TEXT_FIELDS)
        if name in values:
            problems.append(Problem(line, bare(name), "stands here twice"))
        values[name], places[name] = value, line
    mark: Any = event.start_mark
    closing: Any = event.end_mark
    # A block ends where the next thing begins, so at the end of the line before that; a flow mapping at its brace.
    end = mark.index if mark.index < closing.index else mark.index - mark.column - 1
    first = _line(start, lines)
    return Row(first, max(first, *places.values(), lines.at(end)), values, places, tuple(problems))


def _value(event: Any, events: Iterator[Any], *, of_text: bool = False) -> object:
    """Return the value that begins with an event; what is nested is read over."""
    _plain(event)
    if isinstance(event, yaml.ScalarEvent):
        text: str = event.value
        if not event.implicit[0]:  # in quotes, or a block
            return text
        return (None if _WORDS.get(text, text) is None else text) if of_text else _scalar(text)
    depth = 1
    while depth:
        inner = next(events)
        if isinstance(inner, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(inner, yaml.CollectionEndEvent):
            depth -= 1
        else:
            _plain(inner)
    return _Nested("a list" if isinstance(event, yaml.SequenceStartEvent) else "a mapping")


def _plain(event: Any) -> None:
    """Refuse aliases, anchors and tags."""
    if isinstance(event, yaml.AliasEvent) or event.anchor:
        raise _NotATaskError("anchors and aliases are not read: write the value out", event.start_mark.index)
    if event.tag:
        raise _NotATaskError(f"the tag {shown(event.tag)} is not read: leave it out", event.start_mark.index)


def _scalar(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _line(event: Any, lines: Lines) -> int:
    return lines.at(event.start_mark.index)
