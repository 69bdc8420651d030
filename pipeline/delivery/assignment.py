"""One assignment of partitions to this worker, from the moment the group gave them until they are called back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from faust.types import TP

from pipeline.delivery.api import SourceRecord
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap


class Start(NamedTuple):
    """Where a partition begins.

    Attributes:
        offset_map: stable committed offset with what was finished beyond it.
        end: high watermark when it was read; what lies before it was there before the assignment.
    """

    offset_map: OffsetMap
    end: int


@dataclass(eq=False, slots=True)
class Assignment:
    """Compared by identity: work carries the object it was fetched under, and an object is never reused.

    A static member that restarts keeps the generation number, so numbers would not tell two assignments apart.

    Attributes:
        identity: captured when the group assigned the partitions, never read again.
        partitions: everything assigned.
        starts: filled once the stable offsets are known; empty before.
    """

    identity: Identity
    partitions: frozenset[TP]
    starts: Mapping[TP, Start] = field(default_factory=dict)


class Batch(NamedTuple):
    """What one fetch gave for one partition: the value of one Faust event.

    Attributes:
        records: in offset order; empty where only control records were passed.
        start: fetch position before.
        end: fetch position after; it lies behind control, aborted and compacted records.
        assignment: the one in force when the records were drained.
    """

    records: Sequence[SourceRecord]
    start: int
    end: int
    assignment: Assignment | None


def equal_partition_sets(partitions: frozenset[TP]) -> bool:
    """Whether every topic has the same partition numbers: co-partitioned topics must arrive together."""
    numbers: dict[str, set[int]] = {}
    for tp in partitions:
        numbers.setdefault(tp.topic, set()).add(tp.partition)
    return len({frozenset(s) for s in numbers.values()}) <= 1
