"""One transactional producer per worker. The transaction is written down once, in its order, and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from faust.types import TP

from pipeline.delivery.api import Output
from pipeline.delivery.exits import ExitCode, exit_unless_done
from pipeline.delivery.identity import Identity
from pipeline.delivery.offsets import OffsetMap, encode
from pipeline.delivery.record_size import record_bytes
from pipeline.errors import BrokerError, BugError, ConfigurationError
from pipeline.topics import LARGEST_RECORD_BYTES

CALL_TIMEOUT_S = 15.0
RETRY_LIMIT_S = 60.0
HANG_MARGIN_S = 2.0
TOPIC_WAIT_S = 2.0
"""How long a topic that the broker does not know may still be on its way. All were there when the worker began; the
client's 30 s outlast the transaction, whose end would then be taken for a worker of the same name."""
SHOWN_KEY_BYTES = 80

GROUP_FENCED = frozenset({"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"})
PRODUCER_FENCED = frozenset({"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"})
INSTANCE_REPLACED = "FENCED_INSTANCE_ID"
PURGED = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
"""Of records that an abort has dropped: they are not what it was for."""


class Verdict(Enum):
    """How a transaction ended, short of errors that end the worker."""

    COMMITTED = "committed"
    FENCED = "fenced"
    """The group has given the partitions to somebody else: forget everything, wait for the next assignment."""
    ABORTED = "aborted"
    """Nothing is visible; the same work may be tried again."""


class Work(NamedTuple):
    """What one transaction makes visible together.

    Attributes:
        outputs: records to publish, dead letters included.
        changes: state changes by partition: changelog topic, key, value.
        positions: what to commit for each input partition, the partitions of timer work included.
        identity: who commits.
        alone: nobody else commits for the group, which has no members: the transactional id fences, not the identity.
    """

    outputs: Sequence[Output]
    changes: Mapping[int, Sequence[tuple[str, bytes, bytes | None]]]
    positions: Mapping[TP, OffsetMap]
    identity: Identity
    alone: bool = False


class ReplacedError(BrokerError):
    """Another worker of the same name has taken over."""


class TransactionalProducer:
    """Blocking; used from one thread.

    Args:
        options: librdkafka options of the cluster.
        transactional_id: stable over restarts: a restarted worker ends its predecessor's open transaction at once.
        timeout_s: after which the broker aborts an open transaction; about the session timeout.
        compression: codec of the batches.
    """

    def __init__(self, options: Mapping[str, str], transactional_id: str, timeout_s: float, compression: str) -> None:
        self.trouble = ""
        """Why the last transaction was aborted; empty after one that was committed."""
        self._transactional_id = transactional_id
        self._timeout_s = timeout_s
        self._refusal = ""
        self._producer = Producer(
            {
                **options,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(timeout_s * 1000),
                "linger.ms": 5,
                "topic.metadata.propagation.max.ms": int(TOPIC_WAIT_S * 1000),
                # The default of 100 ms makes a transaction that follows at once wait for its predecessor's markers.
                "retry.backoff.ms": 10,
                "partitioner": "murmur2_random",
                "message.max.bytes": LARGEST_RECORD_BYTES,
                "compression.type": compression,
                "compression.level": 1 if compression == "zstd" else -1,
            }
        )

    def open(self) -> None:
        """Take over the transactional id: fences a predecessor and ends its open transaction.

        Raises:
            BrokerError: the cluster did not answer in time or refuses the id.
            ConfigurationError: its transactions may not be that long.
        """
        try:
            self._until_done(self._producer.init_transactions)
        except KafkaException as exc:
            if exc.args[0].name() == "INVALID_TRANSACTION_TIMEOUT":
                allowed = "the broker's transaction.max.timeout.ms"
                raise ConfigurationError(
                    f"delivery.transaction_timeout_s: {self._timeout_s:g} passes {allowed}"
                ) from exc
            raise BrokerError(f"producer {self._transactional_id}: {exc.args[0]}") from exc

    def run(self, work: Work) -> tuple[Verdict, dict[int, int]]:
        """Publish outputs, changelog, dead letters and offsets together, or nothing.

        Returns:
            The verdict, and for a committed one the changelog position after the last change of each partition.

        Raises:
            ReplacedError: a worker of the same name has fenced this one.
            BrokerError: fatal for the producer: the outcome is unknown, the worker must end.
            BugError: there is no identity that the broker would check.
        """
        if not (work.identity.fenceable or work.alone):
            raise BugError("a transaction without a fenceable identity would be accepted from anybody")
        high: dict[int, int] = {}
        producer = self._producer
        try:
            producer.begin_transaction()
            for output in work.outputs:
                self._produce(output, None)
            for partition, changes in work.changes.items():
                last = len(changes) - 1
                for index, (topic, key, value) in enumerate(changes):
                    # Order is kept within a partition, so the report of the last change is enough.
                    report = _note_position(high) if index == last else None
                    self._produce(Output(topic, value, key, partition), report)
            positions = [
                TopicPartition(tp.topic, tp.partition, m.base, metadata=encode(m, tp.topic, tp.partition))
                for tp, m in work.positions.items()
            ]
            self._send_offsets(positions, work.identity)
            self._until_done(producer.commit_transaction)
            producer.poll(0)
        except KafkaException as exc:
            return self._abort(exc), {}
        missing = work.changes.keys() - high.keys()
        if any(work.changes[partition] for partition in missing):
            raise BugError(f"committed, but no delivery report for the changelog of partitions {sorted(missing)}")
        self.trouble = ""
        return Verdict.COMMITTED, high

    def _send_offsets(self, positions: list[TopicPartition], identity: Identity) -> None:
        """Send offsets, for as long as the broker lets the transaction live.

        Up to librdkafka 2.16 the call ignores its time-out: after a restart of the coordinator it may never return
        (librdkafka#5456), while heartbeats go on and the whole group waits for this member.
        """
        with exit_unless_done(
            self._timeout_s + HANG_MARGIN_S,
            f"producer {self._transactional_id}: sending offsets does not end; starting again is the cure",
            ExitCode.BROKER,
        ):
            self._producer.send_offsets_to_transaction(positions, bytes(identity), self._timeout_s)

    def _abort(self, exc: KafkaException) -> Verdict:
        error = exc.args[0]
        if error.name() in PRODUCER_FENCED:
            raise ReplacedError(f"producer {self._transactional_id} was fenced by a worker of the same name") from exc
        if error.fatal():
            raise BrokerError(f"producer {self._transactional_id}: {error}") from exc
        try:
            self._until_done(self._producer.abort_transaction)
        except KafkaException as second:
            raise BrokerError(f"producer {self._transactional_id}: {error}; then: {second.args[0]}") from second
        self._producer.poll(0)  # reports on what was refused
        self.trouble = self._refusal or str(error)
        self._refusal = ""
        if error.name() == INSTANCE_REPLACED:
            raise ReplacedError(f"member {self._transactional_id} was replaced by a worker of the same name") from exc
        return Verdict.FENCED if error.name() in GROUP_FENCED else Verdict.ABORTED

    def _produce(self, output: Output, report: Callable[[object, Message], None] | None) -> None:
        topic, value, key, partition, headers = output
        if report is None and self.trouble:  # a call for each record is dear: only where something was refused before
            report = self._report_refusal(output)
        while True:
            try:
                if headers:
                    self._producer.produce(topic, value, key, partition, report, headers=list(headers))
                elif report is None:
                    self._producer.produce(topic, value, key, partition)
                else:
                    self._producer.produce(topic, value, key, partition, report)
            except BufferError:  # the local queue is full: let it drain
                self._producer.poll(0.1)
            except KafkaException as exc:
                self._note_refusal(output, exc.args[0], output.partition)
                raise
            else:
                return

    def _report_refusal(self, output: Output) -> Callable[[Any, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.name() not in PURGED:
                self._note_refusal(output, error, message.partition())

        return report

    def _note_refusal(self, output: Output, error: KafkaError, partition: int | None) -> None:
        """Keep the first one: the others follow from it."""
        self._refusal = self._refusal or f"{output.topic}/{partition} refuses {_described(output)}: {error}"

    def _until_done(self, call: Callable[[float], None]) -> None:
        """Retriable means "call me again": begin or abort in its place would leave the outcome unknown."""
        deadline = time.monotonic() + RETRY_LIMIT_S
        while True:
            try:
                call(CALL_TIMEOUT_S)
            except KafkaException as exc:
                error = exc.args[0]
                if error.name() in PRODUCER_FENCED:
                    raise ReplacedError(
                        f"producer {self._transactional_id} was fenced by a worker of the same name"
                    ) from exc
                if not error.retriable():
                    raise
                if time.monotonic() > deadline:
                    raise BrokerError(f"producer {self._transactional_id}: {error}") from exc
            else:
                return


def _note_position(high: dict[int, int]) -> Callable[[object, Message], None]:
    def report(error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            high[partition] = offset + 1

    return report


def _described(output: Output) -> str:
    """Say which record it is: a dead letter by the record that it was made of."""
    headers = dict(output.headers)
    names = ("dlq-origin-topic", "dlq-origin-partition", "dlq-origin-offset")
    origin = "/".join(headers[name].decode(errors="replace") for name in names if name in headers)
    what = f"the dead letter of {origin}" if origin else "a record"
    return f"{what}, {record_bytes(output)} bytes with key {(output.key or b'')[:SHOWN_KEY_BYTES]!r}"
