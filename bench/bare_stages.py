"""Stages that do next to nothing: what a record costs in them is what delivery costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pipeline.delivery.api import Output, ParallelStage, Result, SourceRecord, StateView

Work = Literal["none", "pass", "dedup"]
"""No output; one output a record; one output and one row of state for each key that is new (ordered only)."""
TABLE = "s"


class BareParallel(ParallelStage):
    """A coroutine a record.

    Args:
        out: topic of the outputs; None for a stage without.
    """

    def __init__(self, out: str | None) -> None:
        self._out = out

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def opened(self, partition: int, view: StateView | None) -> None: ...

    def closed(self, partition: int) -> None: ...

    async def handle(self, record: SourceRecord, *, backlog: bool) -> Result:
        del backlog
        return Result([Output(self._out, record.value, record.key, record.partition)] if self._out else [])

    async def dead_letter_outputs(self, record: SourceRecord, reason: str) -> list[Output]:
        raise AssertionError(f"nothing is dead here: {record.topic}/{record.partition}/{record.offset}, {reason}")


class BarePartition:
    """One partition of `BareOrdered`; fulfils `OrderedPartition`."""

    def __init__(self, handle: Callable[[SourceRecord], list[Output]]) -> None:
        self._handle = handle

    def handle(self, record: SourceRecord, now: float) -> list[Output]:
        del now
        return self._handle(record)

    def due(self) -> float | None:
        return None

    def tick(self, now: float) -> list[Output]:
        del now
        return []

    def before_commit(self, positions: dict[str, tuple[int, int]], now: float) -> list[Output]:
        del positions, now
        return []

    def committed(self) -> None: ...

    def aborted(self) -> None: ...

    def close(self) -> None: ...


class BareOrdered:
    """Opens partitions; fulfils `OrderedStage`.

    Args:
        work: what is done with a record.
        out: topic of the outputs.
    """

    def __init__(self, work: Work, out: str) -> None:
        self._work = work
        self._out = out

    def open(self, partition: int, view: StateView, now: float) -> BarePartition:
        """Return the partition's logic."""
        del partition, now

        def none(record: SourceRecord) -> list[Output]:
            del record
            return []

        def pass_on(record: SourceRecord) -> list[Output]:
            return [Output(self._out, record.value, record.key, record.partition)]

        def dedup(record: SourceRecord) -> list[Output]:
            key = record.key or b""
            if view.get(TABLE, key) is not None:
                return []
            view.put(TABLE, key, b"1")
            return pass_on(record)

        return BarePartition({"none": none, "pass": pass_on, "dedup": dedup}[self._work])
