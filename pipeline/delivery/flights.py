"""Records in flight of a parallel stage: where they come from, how long they take, which of them must run alone."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from faust.types import TP

from pipeline.delivery.api import SourceRecord
from pipeline.delivery.assignment import Start
from pipeline.delivery.dead_letters import Breaker
from pipeline.delivery.journal import ALONE_AFTER, MAX_CRASHES
from pipeline.delivery.offsets import OffsetTracker


class Lane:
    """Slots of one topic, dealt to its partitions in equal shares, so that a stuck partition delays no other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.partitions: list[Partition] = []

    @property
    def share(self) -> int:
        """Records that one partition may have in flight."""
        return max(1, self.slots // max(1, len(self.partitions)))


class Partition:
    """One partition in one assignment."""

    def __init__(self, tp: TP, start: Start, lane: Lane, breaker: Breaker) -> None:
        self.tp = tp
        self.lane = lane
        self.breaker = breaker
        self.tracker = OffsetTracker(start.offset_map)
        self.expected = start.offset_map.base
        self.end_at_assignment = start.end
        self.queue: deque[SourceRecord | int] = deque()
        """Records to start; an integer is the position after the batch before it."""
        self.queued = 0


@dataclass(eq=False, slots=True)
class Flight:
    """One record that is being handled.

    Attributes:
        partition: of the record.
        record: as read.
        slot: in the journal.
        crashes: in how many crashes in a row it was in flight.
        began_s: monotonic.
        releases: how often it was begun anew by hand.
        launches: how many tasks have been given it; only the newest one's result counts.
        task: what handles it now; an earlier one that did not end when told to counts for nothing.
    """

    partition: Partition
    record: SourceRecord
    slot: int
    crashes: int
    began_s: float
    releases: int = 0
    launches: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def attempts(self) -> int:
        """Which time this is."""
        return 1 + self.crashes + self.releases


class Quarantine:
    """Lets a record that was in flight in several crashes run alone: nothing else is in flight, nothing is begun."""

    def __init__(self) -> None:
        self._alone: Flight | None = None
        self._waiting: set[Partition] = set()

    @property
    def active(self) -> bool:
        """Whether a record runs alone or waits for that."""
        return self._alone is not None or bool(self._waiting)

    def admits(self, partition: Partition, crashes: int, in_flight: int) -> bool:
        """Whether the next record of a partition may begin.

        Args:
            partition: its partition, which has its turn when the worker is quiet.
            crashes: in how many crashes in a row the record was in flight.
            in_flight: how many records are in flight now.
        """
        if self._alone is not None:
            return False
        if not ALONE_AFTER <= crashes < MAX_CRASHES:
            return not self._waiting
        if in_flight:
            self._waiting.add(partition)
            return False
        self._waiting.discard(partition)
        return True

    def began(self, flight: Flight) -> None:
        """Note a record that has begun."""
        if ALONE_AFTER <= flight.crashes < MAX_CRASHES:
            self._alone = flight

    def ended(self, flight: Flight) -> None:
        """Note a record that has ended."""
        if self._alone is flight:
            self._alone = None

    def clear(self) -> None:
        """Forget the partitions that wait: they are gone."""
        self._waiting.clear()
