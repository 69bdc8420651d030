"""Records of the topics as their judge needs them: decoded, with their place, dead letters told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.errors import InputError
from pipeline.local.topic_reader import ReadRecord
from pipeline.web.url import canonical_form

GIVEN_UP = frozenset({"retries_exhausted", "deadline"})
"""Reasons of dead letters that hold a task made by the frontier, not the record they name as their cause."""

Delivery = tuple[str, bytes, int]
"""Crawl, key of the URL and number of the delivery: what names one fetch from the lane to the parsed record."""
Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Row(NamedTuple):
    """One record.

    Attributes:
        place: where it stands.
        fields: decoded.
    """

    place: Place
    fields: dict[str, Any]

    @property
    def delivery(self) -> Delivery:
        """The fetch it belongs to."""
        return self.fields["crawl"], self.fields["url_key"], self.fields["delivery"]

    @property
    def page(self) -> tuple[str, str]:
        """Crawl and canonical URL."""
        return self.fields["crawl"], canonical_form(self.fields["url"])


class Letter(NamedTuple):
    """One dead letter.

    Attributes:
        origin: of the record that died, or of the outcome that ended a task.
        reason: as its header says.
        identity: its id.
        value: of the record that died.
        is_whole: False where the end of it is missing.
    """

    origin: Place
    reason: str
    identity: bytes
    value: bytes | None
    is_whole: bool


class Rows:
    """Decoded records of all topics.

    Args:
        held: topic -> its committed records.
        codecs: of the contracts.

    Attributes:
        held: the same.
        undecodable: records of input topics that can't be read.
        letters: `-dlq` topic -> its dead letters.
        dead: records that became dead letters.
    """

    def __init__(self, held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs) -> None:
        self.held = held
        self.undecodable: list[Place] = []
        self._by_topic: dict[str, list[Row]] = {}
        for topic in topics.TABLE:
            decode = codecs.decoder(topic.subject)
            found = self._by_topic[topic.name] = []
            for record in held.get(topic.name, ()):
                if record.value is None and topic.cleanup == "compact":
                    continue
                try:
                    found.append(Row(place_of(record), decode(record.value)))
                except InputError:
                    if topic.dead_letters:
                        self.undecodable.append(place_of(record))
        self.letters = {
            topic.dlq: [letter_of(record) for record in held[topic.dlq] if not record.is_marker]
            for topic in topics.TABLE
            if held.get(topic.dlq)
        }
        self.dead = {
            letter.origin for found in self.letters.values() for letter in found if letter.reason not in GIVEN_UP
        }

    def of(self, *names: str, dead: bool = True) -> list[Row]:
        """Return the rows of topics; without those that became dead letters on request."""
        return [row for name in names for row in self._by_topic[name] if dead or row.place not in self.dead]


def place_of(record: ReadRecord) -> Place:
    """Return where a record stands."""
    return record.topic, record.partition, record.offset


def letter_of(record: ReadRecord) -> Letter:
    """Read a dead letter's headers; what is missing stays empty, or -1."""
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers if value is not None}
    origin = (
        headers.get("dlq-origin-topic", ""),
        int(headers.get("dlq-origin-partition", "-1")),
        int(headers.get("dlq-origin-offset", "-1")),
    )
    return Letter(
        origin,
        headers.get("dlq-reason", ""),
        headers.get("dlq-id", "").encode(),
        record.value,
        "dlq-cut" not in headers,
    )
