"""Dead letters: the untouched record and why it could not be handled, on `<topic>-dlq`, in the same transaction."""

from __future__ import annotations

import importlib.metadata
import uuid
from collections import deque

from pipeline.delivery.api import ANSWERED_HEADER, Output, SourceRecord, replays_of
from pipeline.delivery.record_size import header_bytes
from pipeline.errors import InputError
from pipeline.topics import DLQ_SUFFIX, TASKS

REASONS = frozenset(
    {
        "undecodable", "schema_rejected", "invalid_task", "too_large", "parse_crash", "crash_loop",
        "retries_exhausted", "deadline", "policy", "handler_error",
    }
)  # fmt: skip
HEADER_PREFIX = "dlq-"
MAX_HEADER_BYTES = 8 << 10
MAX_MESSAGE_BYTES = 2 << 10
COUNT_HEADER_BYTES = 40
"""Room for a header that says how much is missing."""
VERSION = importlib.metadata.version("headrace")
# Names the ids of dead letters (RFC 9562 5.5); any fixed UUID serves.
_NAMESPACE = uuid.UUID("6f0d7a5e-4a8b-5d5c-9c58-3d3f8f6b8d2e")


def reason_of(error: BaseException) -> str:
    """Return the machine-readable reason for an error that a handler raised."""
    if isinstance(error, InputError):
        return error.reason if error.reason in REASONS else "policy"
    return "handler_error"


def dead_letter_id(group: str, topic: str, partition: int, offset: int) -> str:
    """Return the id of the dead letter of one record in one group: UUIDv5, so that a repeat has the same."""
    return str(uuid.uuid5(_NAMESPACE, f"{group}\0{topic}\0{partition}\0{offset}"))


def dead_letter(record: SourceRecord, error: BaseException, *, group: str, stage: str, attempts: int = 1) -> Output:
    """Return the dead letter of a record.

    Args:
        record: as read; key and value go on untouched.
        error: why.
        group: consumer group that gave up.
        stage: name of the stage.
        attempts: how often it was tried.
    """
    replays = replays_of(record.headers)
    headers = _described(record, reason_of(error), type(error).__name__, str(error), group, stage, attempts, replays)
    room = MAX_HEADER_BYTES - COUNT_HEADER_BYTES - sum(header_bytes(*header) for header in headers)
    left_out = 0
    # Ours first: without it a page that comes back would be counted twice. The sort keeps the order of the others.
    for name, value in sorted(record.headers, key=lambda header: header[0] != ANSWERED_HEADER):
        if name.startswith(HEADER_PREFIX):
            continue
        size = header_bytes(name, value)
        if size <= room:
            headers.append((name, value or b""))
            room -= size
        else:
            left_out += 1
    if left_out:
        headers.append((HEADER_PREFIX + "headers-left-out", str(left_out).encode()))
    return Output(record.topic + DLQ_SUFFIX, record.value, record.key, record.partition, tuple(headers))


def task_dead_letter(
    value: bytes,
    *,
    key: bytes,
    reason: str,
    message: str,
    attempts: int,
    replays: int,
    cause: SourceRecord,
    group: str,
    stage: str,
) -> Output:
    """Return the dead letter of a task that was given up; it replays as a task.

    Args:
        value: a `Task` record.
        key: registrable domain.
        reason: `retries_exhausted` or `deadline`.
        message: what happened, for people.
        attempts: attempts that failed.
        replays: how often the task came back from the dead letters.
        cause: the outcome that ended the task: where the letter says it comes from.
        group: consumer group that gave up.
        stage: name of the stage.
    """
    headers = _described(cause, reason, "TaskGivenUp", message, group, stage, attempts, replays)
    return Output(TASKS.dlq, value, key, cause.partition, tuple(headers))


def _described(  # noqa: PLR0917  # in the order of the headers
    record: SourceRecord, reason: str, error: str, message: str, group: str, stage: str, attempts: int, replays: int
) -> list[tuple[str, bytes]]:
    described = {
        "reason": reason,
        "error": error,
        "message": message.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore"),
        "stage": stage,
        "version": VERSION,
        "id": dead_letter_id(group, record.topic, record.partition, record.offset),
        "origin-topic": record.topic,
        "origin-partition": str(record.partition),
        "origin-offset": str(record.offset),
        "origin-timestamp": str(record.timestamp),
        "attempts": str(attempts),
        "replays": str(replays),
    }
    return [(HEADER_PREFIX + name, value.encode()) for name, value in described.items()]


def cut(letter: Output, excess_bytes: int) -> Output:
    """Return a dead letter that is too large for its topic without the end of its value, and of its key if need be.

    A source record may be larger than any topic takes once it is unpacked. The header `dlq-cut` says how many bytes
    are missing.
    """
    left = max(0, len(letter.key or b"") + len(letter.value or b"") - excess_bytes - COUNT_HEADER_BYTES)
    key = None if letter.key is None else letter.key[:left]
    value = None if letter.value is None else letter.value[: left - len(key or b"")]
    missing = sum(len(part or b"") for part in letter[1:3]) - len(key or b"") - len(value or b"")
    headers = (*letter.headers, (HEADER_PREFIX + "cut", str(missing).encode()))
    return letter._replace(key=key, value=value, headers=headers)


class Breaker:
    """Stops a partition whose records go to the dead letters in a row: a bad deploy must not drain the topic.

    Args:
        share: share of dead letters that trips it, once `records` were seen.
        records: size of the sample; as many in a row trip it too.
    """

    def __init__(self, share: float, records: int) -> None:
        self._share = share
        self._recent: deque[bool] = deque(maxlen=records)
        self._dead = 0
        self.open = False
        """True once it has tripped; the partition then stands still until it is reset or the worker started anew."""

    def reset(self) -> None:
        """Begin again as if nothing had been seen."""
        self._recent.clear()
        self._dead, self.open = 0, False

    def copy(self) -> Breaker:
        """Return one that has seen the same, for work that may be undone."""
        made = Breaker(self._share, self._recent.maxlen or 0)
        made._recent.extend(self._recent)
        made._dead, made.open = self._dead, self.open
        return made

    def note(self, dead: bool) -> bool:
        """Count one finished record; True when it is the one that trips it."""
        if len(self._recent) == self._recent.maxlen:
            self._dead -= self._recent[0]
        self._recent.append(dead)
        self._dead += dead
        seen = len(self._recent)
        trips = seen == self._recent.maxlen and (self._dead > self._share * seen or self._dead == seen)
        first = trips and not self.open
        self.open = self.open or trips
        return first
