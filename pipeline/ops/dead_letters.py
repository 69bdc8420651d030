"""Dead letters as they stand in the `-dlq` topics: which there are, and which of them are done.

A `-dlq` topic holds letters and markers. A marker is a record without a value that follows its letter in the same
partition; its headers say what was done: `dlq-marker` (`replayed` or `purged`), `dlq-id` and `dlq-origin-timestamp` of
the letter, `dlq-by` and `dlq-at`. A letter that has one after it is done. An offset could not say so: what is replayed
is chosen by reason, stage or domain, and leaves gaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from pipeline.delivery.api import SourceRecord, replays_of
from pipeline.delivery.dead_letters import HEADER_PREFIX, dead_letter_id
from pipeline.topics import DLQ_SUFFIX

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, of which a time can be written."""
MAX_DIGITS: Final = 20


RecordName = tuple[str, int | None]
"""What tells records apart: the id of a letter, which is made of a place, and the record's timestamp, milliseconds
since the epoch: a topic that was made anew has the same places again. None stands for any time."""


class State(StrEnum):
    """What has become of a letter; the names of the last two stand in markers."""

    OPEN = "open"
    REPLAYED = "replayed"
    PURGED = "purged"


class Origin(NamedTuple):
    """Where the record that could not be handled was read.

    Attributes:
        topic: its name.
        partition: number.
        offset: of the record.
        timestamp_ms: of the record, milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter.

    Attributes:
        topic: the `-dlq` topic.
        partition: number.
        offset: in the `-dlq` topic.
        timestamp_ms: when it was written, milliseconds since the epoch.
        key: of the record that could not be handled.
        value: the same.
        headers: all of them.
        id: of the letter; made from its place where it has none.
        reason: machine-readable, one of `pipeline.delivery.dead_letters.REASONS`; empty where somebody else wrote it.
        error: class of the error.
        message: what happened, for people.
        stage: that gave up.
        version: release that gave up.
        origin: where the record was read; None where the letter does not say so.
        attempts: how often it was tried.
        replays: how often it came back before.
        cut_bytes: how much of key and value is missing.
        state: what has become of it.
        done_by: who replayed or purged it; empty while it is open.
        done_at: when, RFC 3339; empty while it is open.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    id: str
    reason: str
    error: str
    message: str
    stage: str
    version: str
    origin: Origin | None
    attempts: int
    replays: int
    cut_bytes: int
    state: State = State.OPEN
    done_by: str = ""
    done_at: str = ""

    @property
    def home(self) -> str:
        """The topic whose dead letters these are: what the value is a record of."""
        return self.topic.removesuffix(DLQ_SUFFIX)

    @property
    def record(self) -> RecordName:
        """Which record it is of."""
        return self.id, 0 if self.origin is None else self.origin.timestamp_ms

    @property
    def own_headers(self) -> tuple[tuple[str, bytes], ...]:
        """Headers that the record had before it became a letter."""
        return tuple(header for header in self.headers if not header[0].startswith(HEADER_PREFIX))


@dataclass(frozen=True, slots=True)
class Filters:
    """Which letters are meant; an empty field means all.

    Attributes:
        ids: of letters.
        reasons: machine-readable.
        stages: that gave up.
        keys: record keys; those of most topics are registrable domains.
        since_ms: written then or later, milliseconds since the epoch.
        until_ms: written before.
        origin_topic: topic in which the record was read.
        origin_partition: number there.
        origin_offset: there.
    """

    ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()
    keys: frozenset[bytes] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    origin_topic: str | None = None
    origin_partition: int | None = None
    origin_offset: int | None = None

    def match(self, letter: Letter) -> bool:
        """Whether a letter is meant."""
        if (self.ids and letter.id not in self.ids) or (self.keys and letter.key not in self.keys):
            return False
        if (self.reasons and letter.reason not in self.reasons) or (self.stages and letter.stage not in self.stages):
            return False
        if self.since_ms is not None and letter.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and letter.timestamp_ms >= self.until_ms:
            return False
        return self._match_origin(letter.origin)

    def _match_origin(self, origin: Origin | None) -> bool:
        pairs = zip((self.origin_topic, self.origin_partition, self.origin_offset), origin or (None,) * 3, strict=False)
        return all(wanted is None or wanted == found for wanted, found in pairs)


def rfc3339(timestamp_ms: int) -> str:
    """Return milliseconds since the epoch as a time in UTC; for a number that is no time, the nearest one."""
    bounded_ms = min(max(timestamp_ms, FIRST_MS), LAST_MS)
    return (EPOCH + timedelta(milliseconds=bounded_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Marker(NamedTuple):
    """What was done with a letter.

    Attributes:
        letter_id: of the letter.
        state: replayed or purged.
        by: who did it.
        at: when, RFC 3339.
        origin_ms: timestamp of the letter's record, milliseconds since the epoch; None where it is not said.
    """

    letter_id: str
    state: State
    by: str
    at: str
    origin_ms: int | None = None

    @property
    def record(self) -> RecordName:
        """Which record it is of."""
        return self.letter_id, self.origin_ms

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As they are written."""
        said = {"marker": self.state, "id": self.letter_id, "by": self.by, "at": self.at}
        if self.origin_ms is not None:
            said["origin-timestamp"] = str(self.origin_ms)
        return tuple((HEADER_PREFIX + name, text.encode(errors="replace")) for name, text in said.items())


def read_marker(headers: Sequence[tuple[str, bytes | None]]) -> Marker | None:
    """Return the marker that a record is, None where it is a letter."""
    said = _texts(headers)
    if "marker" not in said:
        return None
    # A state of a later release is done, too.
    state = State.PURGED if said["marker"] == State.PURGED else State.REPLAYED
    origin_ms = _number(said, "origin-timestamp") if "origin-timestamp" in said else None
    return Marker(said.get("id", ""), state, said.get("by", ""), said.get("at", ""), origin_ms)


def read_letter(record: SourceRecord) -> Letter:
    """Return the letter that a record of a `-dlq` topic is; whatever else stands there is one without a reason."""
    said = _texts(record.headers)
    home = record.topic.removesuffix(DLQ_SUFFIX)
    origin = None
    if "origin-topic" in said:
        numbers = (_number(said, name) for name in ("origin-partition", "origin-offset", "origin-timestamp"))
        origin = Origin(said["origin-topic"], *numbers)
    return Letter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple((name, value or b"") for name, value in record.headers),
        id=said.get("id") or dead_letter_id("", home + DLQ_SUFFIX, record.partition, record.offset),
        reason=said.get("reason", ""),
        error=said.get("error", ""),
        message=said.get("message", ""),
        stage=said.get("stage", ""),
        version=said.get("version", ""),
        origin=origin,
        attempts=_number(said, "attempts"),
        replays=replays_of(record.headers),
        cut_bytes=_number(said, "cut"),
    )


def _texts(headers: Sequence[tuple[str, bytes | None]]) -> Mapping[str, str]:
    """Return what the headers of a letter say, by their names without the prefix."""
    return {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    }


def _number(said: Mapping[str, str], name: str) -> int:
    """Return a number from a header, 0 where there is none."""
    text = said.get(name, "")
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) <= MAX_DIGITS else 0
