"""What a stage and a runner know of each other. No Kafka client is imported here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

REPLAYS_HEADER: Final = "dlq-replays"
"""Header of a record that came back from the dead letters: how often it did, decimal."""
ANSWERED_HEADER: Final = "answered-before"
"""Header of a page that comes back from the dead letters and whose answer was written beside its letter, and of the
answer that it has now: the same page must not be counted twice."""
MAX_REPLAYS_DIGITS: Final = 9


class SourceRecord(Protocol):
    """A record as it was read; aiokafka's ConsumerRecord has this shape."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


def replays_of(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return how often a record came back from the dead letters; 0 where no header says so, or none that is usable."""
    for name, value in headers:
        if name == REPLAYS_HEADER and value and value.isdigit() and len(value) <= MAX_REPLAYS_DIGITS:
            return int(value)
    return 0


def is_answered(headers: Iterable[tuple[str, bytes]]) -> bool:
    """Return whether the record is of a page that had an answer before."""
    return any(name == ANSWERED_HEADER for name, _ in headers)


class Output(NamedTuple):
    """A record to be written in the transaction of its source record.

    `partition` -1: by murmur2 of the key. Otherwise that partition number.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


class Change(NamedTuple):
    """A change of a partition's state: `value` None deletes. `table` is one letter."""

    table: str
    key: bytes
    value: bytes | None


class StateView(Protocol):
    """State of one partition as its stage sees it: what is stored and what is staged, as one."""

    def get(self, table: str, key: bytes) -> bytes | None: ...
    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """One look-up for many keys; the result has the order of `keys`."""
        ...

    def put(self, table: str, key: bytes, value: bytes) -> None: ...
    def delete(self, table: str, key: bytes) -> None: ...
    def items(self, table: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with `prefix`, from `start` on, in key order; not to be advanced across a write."""
        ...


@dataclass(slots=True)
class Result:
    """What handling one record gave.

    Attributes:
        outputs: records to publish with it.
        changes: state changes of the record's partition (parallel stages; ordered stages write to their view).
        urgent: commit at once (an urgent task, a site's 429).
    """

    outputs: list[Output] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    urgent: bool = False


class ParallelStage(Protocol):
    """A stage whose records finish out of order: fetch, parse."""

    async def start(self) -> None:
        """Open what the worker needs; called once, before the first record."""
        ...

    async def stop(self) -> None: ...

    def opened(self, partition: int, view: StateView | None) -> None:
        """The partition is this worker's now; `view` is its committed state (None for a stage without state)."""
        ...

    def closed(self, partition: int) -> None: ...

    async def handle(self, record: SourceRecord, *, backlog: bool) -> Result:
        """Handle one record; may take long, is cancelled when the partition is taken away.

        Args:
            record: as read.
            backlog: True when the record was in the topic before the partition was assigned to this worker.

        Raises:
            InputError: the record becomes a dead letter with the error's reason.
            Any other exception: the record becomes a dead letter `handler_error`.
        """
        ...

    async def dead_letter_outputs(self, record: SourceRecord, reason: str) -> list[Output]:
        """Records to write beside a dead letter (an outcome, so that nothing stays 'out'). Never raises."""
        ...


class OrderedPartition(Protocol):
    """One partition of an ordered stage: frontier, store. Runs in one thread, in order.

    What it keeps in memory is derived from its view and from the records of the round. When the runner has to undo
    something it drops the object and what is staged, opens the partition again and repeats the round. A `handle` that
    raises InputError without having written to the view must not have changed memory either.
    """

    def handle(self, record: SourceRecord, now: float) -> list[Output]:
        """Handle one record at `now` (s since the epoch); raises as `ParallelStage.handle`, its writes are undone."""
        ...

    def due(self) -> float | None:
        """When `tick` has work to do, seconds since the epoch; None for never."""
        ...

    def tick(self, now: float) -> list[Output]:
        """Do what the time made due. The same transaction as the records of the round."""
        ...

    def before_commit(self, positions: dict[str, tuple[int, int]], now: float) -> list[Output]:
        """Last word before the transaction: finish files, write the manifest to the view.

        `positions`: topic -> (first offset, end position) of the records of this round.
        """
        ...

    def committed(self) -> None:
        """The transaction is committed and the state applied: make files visible."""
        ...

    def aborted(self) -> None:
        """The transaction was undone; this object is dropped next: remove what is not in the view."""
        ...

    def close(self) -> None: ...


class OrderedStage(Protocol):
    """Opens partitions."""

    def open(self, partition: int, view: StateView, now: float) -> OrderedPartition:
        """Build the partition's memory from its view, which may hold staged changes. May write to the view."""
        ...
