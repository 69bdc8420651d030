"""Replays and purges dead letters: what goes back and the marker that says so are one transaction."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from faust.types import TP

from pipeline.delivery.api import Output
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.delivery.record_size import record_bytes
from pipeline.delivery.transactions import ReplacedError, TransactionalProducer, Verdict, Work
from pipeline.errors import BrokerError, InputError
from pipeline.ops.dead_letter_origins import Refusal, unfit
from pipeline.ops.dead_letter_reader import STALL_S, DeadLetterReader, Part
from pipeline.ops.dead_letters import Filters, Letter, Marker, RecordName, State, rfc3339

log = logging.getLogger(__name__)

GROUP: Final = "headrace-dlq"
"""Group of the committed offsets, and the transactional id: one replay or purge at a time in a cluster."""
CHUNK_RECORDS: Final = 500
CHUNK_BYTES: Final = 4 << 20
MAX_ABORTS: Final = 3

Restore = Callable[[Letter], Output]
"""Makes of a letter the record that goes back; raises `InputError` where today's contracts can't decode it."""


class OvertakenError(BrokerError):
    """Another replay or purge has begun; what this one committed before stays done."""


@dataclass
class Outcome:
    """What came of a run, or would come.

    Attributes:
        done: letters replayed or purged.
        refused: letters left as they are, by kind of refusal.
        left: letters that match beyond the limit.
        done_before: letters that match and had been replayed or purged already.
    """

    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    left: int = 0
    done_before: int = 0


Tell = Callable[[Letter, Refusal | None], None]
"""Told each letter that is chosen: None for one that is done, once it is, or would be."""


_Choose = Callable[[Letter], list[Output] | Refusal]


class _Chunk:
    """What the next transaction holds."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.ends: dict[TP, int] = {}
        self.letters: list[Letter] = []
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.letters) >= CHUNK_RECORDS or self.bytes >= CHUNK_BYTES

    def add(self, letter: Letter, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self.outputs.append(output)
            self.bytes += record_bytes(output)
        self.letters.append(letter)
        self.ends[TP(letter.topic, letter.partition)] = letter.offset + 1


class DeadLetterOffice:
    """Replays and purges; a context manager.

    Without `dry` it takes over the transactional id first, which fences another run and ends its open transaction, and
    then reads up to the high watermark: so it sees all that was ever done, and two at once can't replay a letter twice.

    Args:
        options: librdkafka options of the cluster.
        topics: names of `-dlq` topics.
        by: who acts, for the markers.
        dry: only say what would be done; nothing is written and nobody is fenced.
        transaction_timeout_s: after which the broker ends a transaction that is open: readers of the topics wait so
            long for a run that was killed.
        own_transactions: looks for what an earlier run has left open where this one may write; None: nobody looks.
        stall_s: how long a partition may bring nothing before the reading fails, seconds.
        now: clock, seconds since the epoch.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        topics: Iterable[str],
        *,
        by: str,
        dry: bool,
        transaction_timeout_s: float,
        own_transactions: OwnTransactions | None = None,
        stall_s: float = STALL_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._by = by
        self._now = now
        self._reader = DeadLetterReader(options, topics, stall_s=stall_s)
        self._producer = None if dry else TransactionalProducer(options, GROUP, transaction_timeout_s, "zstd")
        self._own_transactions = own_transactions
        self._stall_s = stall_s
        self._open_from: dict[TP, int] = {}
        """Offset of the first letter that is left open, of the partitions that have one."""
        self._read: dict[TP, Part] = {}
        self._committed = 0

    def __enter__(self) -> Self:
        if self._producer is not None:
            self._producer.open()
            if self._own_transactions is not None:
                asyncio.run(self._own_transactions.wait_for_end(self._stall_s))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def replay(self, filters: Filters, limit: int, restore: Restore, tell: Tell) -> Outcome:
        """Write the records of the letters that match back to where they belong, and mark the letters as replayed.

        Args:
            filters: which letters.
            limit: most letters; the oldest of each partition come first.
            restore: what a letter becomes.
            tell: told each letter.

        Raises:
            BrokerError: the cluster did not do as it should; the transactions committed before stay.
            OvertakenError: the same, because another run has begun.
        """

        def restored(letter: Letter) -> list[Output] | Refusal:
            try:
                return unfit(letter) or [restore(letter)]
            except InputError as exc:
                return Refusal(exc.reason, str(exc))

        return self._run(filters, limit, State.REPLAYED, restored, tell)

    def purge(self, filters: Filters, limit: int, tell: Tell) -> Outcome:
        """Mark the letters that match as purged; see `replay`."""
        return self._run(filters, limit, State.PURGED, lambda _: [], tell)

    def settle(self) -> dict[TP, int]:
        """Commit for each partition where its first open letter is, or its end, so that lag is what is open.

        Returns:
            The same for the partitions that begin with something that is done.

        Raises:
            BrokerError: as `replay`.
        """
        if not self._read:
            return {}
        positions = {tp: self._open_from.get(tp, part.end) for tp, part in self._read.items()}
        # A commit returns before its control records are written, and the next one waits for them: after this one the
        # partitions end behind ours.
        self._commit([], positions)
        for tp, part in self._read.items():
            if tp not in self._open_from:  # behind what was read stand our markers, and perhaps new letters
                now = self._reader.part(part.topic, part.number, whole=True)
                positions[tp] = self._reader.first_letter(now._replace(start=max(part.end, now.start)))
        self._commit([], positions)
        return {tp: position for tp, position in positions.items() if position > self._read[tp].start}

    def _run(self, filters: Filters, limit: int, state: State, choose: _Choose, tell: Tell) -> Outcome:
        outcome, chunk, taken = Outcome(), _Chunk(), set[RecordName]()
        at = rfc3339(int(self._now() * 1000))
        for letter in self._matching(filters):
            if letter.state is not State.OPEN and not filters.ids:
                outcome.done_before += 1
                continue
            if letter.state is State.OPEN and outcome.done >= limit:
                outcome.left += 1
                self._keep(letter)
                continue
            chosen = _refusal(letter, taken) or choose(letter)
            if isinstance(chosen, Refusal):
                outcome.refused[chosen.kind] += 1
                self._say(tell, letter, chosen)
                if letter.record not in taken:
                    self._keep(letter)
                continue
            outcome.done += 1
            taken.add(letter.record)
            marker = Marker(letter.id, state, self._by, at, letter.record[1])
            done = replace(letter, state=state, done_by=self._by, done_at=at) if self._producer else letter
            chunk.add(done, [*chosen, Output(letter.topic, None, None, letter.partition, marker.headers)])
            if chunk.is_full:
                self._send(chunk, tell)
                chunk = _Chunk()
        self._send(chunk, tell)
        return outcome

    def _matching(self, filters: Filters) -> Iterator[Letter]:
        for part in self._reader.parts(whole=self._producer is not None):
            self._read[TP(part.topic, part.number)] = part
            for letter in self._reader.letters(part):
                if filters.match(letter):
                    yield letter
                else:
                    self._keep(letter)

    def _keep(self, letter: Letter) -> None:
        """Note that a letter stays as it is."""
        if letter.state is State.OPEN:
            self._open_from.setdefault(TP(letter.topic, letter.partition), letter.offset)

    def _send(self, chunk: _Chunk, tell: Tell) -> None:
        if chunk.letters:
            self._commit(chunk.outputs, {tp: self._open_from.get(tp, end) for tp, end in chunk.ends.items()})
        for letter in chunk.letters:
            self._committed += 1
            self._say(tell, letter, None)

    def _say(self, tell: Tell, letter: Letter, refusal: Refusal | None) -> None:
        """Tell; who acts goes on where it can't be told: what is committed stays, and the rest is still to be done."""
        try:
            tell(letter, refusal)
        except Exception as exc:
            if self._producer is None:
                raise
            log.warning("dead letter %s is %s, and could not be told: %r", letter.id, _what(refusal), exc)

    def _commit(self, outputs: Sequence[Output], positions: Mapping[TP, int]) -> None:
        """Make outputs and positions visible together; nothing without a producer."""
        if self._producer is None:
            return
        offsets = {tp: OffsetMap(position, position) for tp, position in positions.items()}
        work = Work(outputs, {}, offsets, Identity(GROUP, -1, ""), alone=True)
        try:
            for _ in range(MAX_ABORTS):
                if self._producer.run(work)[0] is Verdict.COMMITTED:
                    return
        except ReplacedError as exc:
            raise OvertakenError(
                f"another replay or purge has begun and this one ends; the {self._committed} letters that it had "
                "committed stay done"
            ) from exc
        raise BrokerError(
            f"{MAX_ABORTS} transactions were aborted in a row; the {self._committed} letters committed before stay done"
        )


def _what(refusal: Refusal | None) -> str:
    return "done" if refusal is None else f"refused ({refusal.kind})"


def _refusal(letter: Letter, taken: Collection[RecordName]) -> Refusal | None:
    """Return why a letter must not be touched, whatever is to be done with it."""
    if letter.state is not State.OPEN:
        return Refusal(letter.state, f"{letter.state} {letter.done_at} by {letter.done_by}")
    if letter.record in taken:
        return Refusal("same_record", "a second letter of the same record; what is done with the first holds for it")
    return None


def delete_before(options: Mapping[str, str], positions: Mapping[TP, int], timeout_s: float) -> None:
    """Delete the records before a position of each partition, for good.

    Args:
        options: librdkafka options of the cluster.
        positions: what `DeadLetterOffice.settle` returned.
        timeout_s: for each answer.

    Raises:
        BrokerError: it could not be done, or not in time.
    """
    if not positions:
        return
    wanted = [TopicPartition(tp.topic, tp.partition, position) for tp, position in positions.items()]
    client = AdminClient({**options})
    try:
        answers = client.delete_records(wanted, request_timeout=timeout_s, operation_timeout=timeout_s)
        for answer in answers.values():
            answer.result(timeout_s)
    except (KafkaException, TimeoutError) as exc:
        raise BrokerError(f"deleting what is done: {exc.args[0] if exc.args else 'no answer in time'}") from exc
