"""Dead letters of one URL: its task that was refused or given up, and its lane records that fetch could not handle."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.contracts.codec import Codecs
from pipeline.errors import InputError
from pipeline.ops.dead_letter_reader import DeadLetterReader, Part
from pipeline.ops.dead_letters import Letter, State, rfc3339
from pipeline.topics import LANES, TASKS, TASKS_URGENT, Topic
from pipeline.web.url import canonicalize, url_key

HOMES: Final[Mapping[str, Topic]] = {topic.name: topic for topic in (TASKS, TASKS_URGENT, *LANES.values())}
"""Topics whose records are about one URL each, by name."""
MAX_LETTERS: Final = 20


def letters_of_url(
    options: Mapping[str, str], codecs: Codecs, partition: int, domain: str, key: bytes
) -> list[dict[str, Any]]:
    """Return the newest dead letters of a URL, at most `MAX_LETTERS`, the newest first.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        partition: of the URL's domain.
        domain: registrable domain, the key of its records.
        key: of the URL.

    Returns:
        Rows with `id`, `crawl`, `state` (`open`, `replayed`, `purged`), `reason`, `message`, `stage`, `attempts`,
        `time`, and for open ones `command`, which brings the letter back.

    Raises:
        BrokerError: they could not be read.
        ConfigurationError: their topics are missing.
    """
    decoders = {name: codecs.decoder(topic.subject) for name, topic in HOMES.items()}
    with DeadLetterReader(options, [topic.dlq for topic in HOMES.values()]) as reader:
        found = heapq.nlargest(
            MAX_LETTERS,
            (
                (letter.timestamp_ms, letter.offset, number, letter, record)
                for number, topic in enumerate(HOMES.values())
                for letter in _of_domain(reader, reader.part(topic.dlq, partition), domain)
                if (record := _record(letter, decoders[topic.name])) is not None and _is_of(record, key)
            ),
        )
    return [_row(letter, record) for _, _, _, letter, record in found]


def _of_domain(reader: DeadLetterReader, part: Part, domain: str) -> Iterator[Letter]:
    return (letter for letter in reader.letters(part) if letter.key == domain.encode())


def _record(letter: Letter, decode: Any) -> Mapping[str, Any] | None:
    try:
        record: Mapping[str, Any] = decode(letter.value)
    except InputError:
        return None
    return record


def _is_of(record: Mapping[str, Any], key: bytes) -> bool:
    try:
        return url_key(canonicalize(record["url"]).href) == key
    except InputError:
        return False


def _row(letter: Letter, record: Mapping[str, Any]) -> dict[str, Any]:
    row = {
        "id": letter.id,
        "crawl": record["crawl"],
        "topic": letter.home,
        "state": letter.state,
        "reason": letter.reason,
        "message": letter.message,
        "stage": letter.stage,
        "attempts": letter.attempts,
        "replays": letter.replays,
        "time": rfc3339(letter.timestamp_ms),
    }
    if letter.state is State.OPEN:
        row["command"] = f"headrace dlq replay --id {letter.id} --yes"
    return row
