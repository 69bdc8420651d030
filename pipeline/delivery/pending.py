"""What a worker has at hand of each partition: what `headrace pending` asks for."""

from __future__ import annotations

from typing import NamedTuple

SHOWN_RECORDS = 20
RESTORING = "the state is being restored"
STOPPED = "breaker: too much of it went to the dead letters"


class PendingRecord(NamedTuple):
    """One record that is being handled.

    Attributes:
        offset: its own.
        since_s: seconds since its handling began.
        attempts: which time this is: crashes in which it was in flight and releases count.
    """

    offset: int
    since_s: float
    attempts: int


class PendingPartition(NamedTuple):
    """One input partition that a worker owns.

    Attributes:
        topic: of the partition.
        partition: number.
        fetched: position up to which records have arrived.
        queued: records that have arrived and wait.
        paused: why nothing more of it is begun; empty where it goes on.
        records: those in hand, the oldest `SHOWN_RECORDS` first.
    """

    topic: str
    partition: int
    fetched: int
    queued: int
    paused: str
    records: tuple[PendingRecord, ...]
