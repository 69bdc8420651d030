"""Reader of CSV (RFC 4180): the first line names the columns, an empty cell is a field that is left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from pipeline.tasks.model import FIELDS
from pipeline.tasks.problems import Problem, unknown_field
from pipeline.tasks.rows import Row, unreadable


def read_csv(text: str) -> Iterator[Row]:
    """Yield a row for each record below the header; a field may hold line ends, its row's line is its first one.

    Below a header that is wrong in part the rows are checked by the columns that are right, and none is usable.
    """
    # strict: else a quote that is left open, or text behind a closing one, is taken as if it had been meant.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    columns: list[str] | None = None
    usable = True
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            yield unreadable(line, f"not CSV: {exc}", max(line, reader.line_num))
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if columns is None:
            columns = [cell.strip() for cell in cells]
            problems = _header_problems(columns, line)
            if problems:
                yield Row(line, reader.line_num, None, problems=tuple(problems), usable=False)
                usable = False
            if not set(columns) & set(FIELDS):
                return
        elif len(cells) != len(columns):
            yield unreadable(line, f"{len(cells)} cells; the header names {len(columns)}", reader.line_num)
        else:
            named = zip(columns, cells, strict=True)
            values = {name: cell.strip() for name, cell in named if name in FIELDS and cell.strip()}
            yield Row(line, reader.line_num, values, texts=True, usable=usable)


def _header_problems(columns: Sequence[str], line: int) -> list[Problem]:
    if not set(columns) & set(FIELDS):
        hint = "separated by commas, " if ";" in columns[0] or "\t" in columns[0] else ""
        return [Problem(line, "", f"the first line must name the columns, {hint}url first of all: {', '.join(FIELDS)}")]
    problems = [unknown_field(name, line) for name in columns if name not in FIELDS]
    twice = sorted({name for name in columns if name in FIELDS and columns.count(name) > 1})
    problems += [Problem(line, name, "two columns have this name") for name in twice]
    if "url" not in columns:
        problems.append(Problem(line, "url", "no column has this name"))
    return problems
