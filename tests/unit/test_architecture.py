"""Rules of the architecture that an import rule can't see."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE_ROOMS = ("web", "tasks", "frontier", "parse")
WALL_CLOCKS = frozenset({"now", "utcnow", "today"})
CLOCKS = frozenset(
    name + suffix
    for name in ("time", "monotonic", "perf_counter", "process_time", "clock_gettime")
    for suffix in ("", "_ns")
)
LOOP_CLOCK_ALLOWED = frozenset({"pipeline/parse/pool.py"})
"""The pool ends processes that take too long: its limits are about processes, and no record depends on them."""


def clock_readings(source: str) -> Iterator[str]:
    """Yield the ways in which a module could read a clock."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names) if any(name.name == "time" for name in names):
                yield f"line {node.lineno}: import time"
            case ast.ImportFrom(module="time"):
                yield f"line {node.lineno}: from time import"
            case ast.Call(func=ast.Attribute(attr=name)) if name in WALL_CLOCKS | CLOCKS:
                yield f"line {node.lineno}: .{name}()"


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "from datetime import datetime; datetime.now(UTC)",
        "import datetime; datetime.datetime.utcnow()",
        "from datetime import date; date.today()",
        "asyncio.get_running_loop().time()",
        "loop.time()",
    ],
)
def test_each_way_of_reading_a_clock_is_seen(source):
    """A search that finds nothing proves nothing until it has found something."""
    assert list(clock_readings(source))


def test_time_that_is_handed_in_is_no_clock():
    """The rule must leave the ordinary use of times alone."""
    source = "from datetime import datetime, UTC; datetime.fromtimestamp(now, UTC); delay = time - now"
    assert [] == list(clock_readings(source))


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_pure_rooms_read_no_clock(room):
    """Time is an argument there: the same records give the same outputs, so that a test is a call."""
    found = {
        str(path.relative_to(ROOT)): readings
        for path in sorted((ROOT / "pipeline" / room).rglob("*.py"))
        if (readings := list(clock_readings(path.read_text(encoding="utf-8"))))
    }
    assert {} == {path: readings for path, readings in found.items() if path not in LOOP_CLOCK_ALLOWED}


def test_the_exception_reads_the_clock_of_the_event_loop_and_no_other():
    """An exception is as narrow as its reason, and goes when its reason does."""
    for path in LOOP_CLOCK_ALLOWED:
        readings = [text.partition(": ")[2] for text in clock_readings((ROOT / path).read_text(encoding="utf-8"))]
        assert {".time()"} == set(readings)
