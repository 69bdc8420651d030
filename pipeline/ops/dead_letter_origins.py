"""What a dead letter becomes when it goes back: the record it was, or the task it stands for; and why one can't."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pipeline.contracts.codec import Codecs
from pipeline.delivery.api import ANSWERED_HEADER, REPLAYS_HEADER, Output, is_answered
from pipeline.delivery.record_size import record_bytes
from pipeline.errors import InputError
from pipeline.ops.dead_letters import Letter
from pipeline.topics import FETCHES, LANES, PAGES, TABLE, TASKS

ID_HEADER: Final = "dlq-id"
MAX_REPLAYS: Final = 2
UNREAD: Final = frozenset({"undecodable", "schema_rejected"})
"""Reasons of letters whose stage could not read the record, and so answered nobody."""
UNANSWERED: Final = UNREAD | {"invalid_task"}
"""The same for pages: one with a URL that is none has nobody to be answered."""
TASK_FIELDS: Final = (
    "crawl", "url", "priority", "depth", "source", "submitted_at_ms", "timeout_ms", "redirects",
    "parser", "concurrency", "max_depth", "render", "headers_ref",
)  # fmt: skip
"""What a lane record has of the task that it was made of, but its interval: a URL that is still polled is polled
now, one that was withdrawn meanwhile is fetched once."""


class Refusal(NamedTuple):
    """Why a letter is left as it is.

    Attributes:
        kind: `replayed`, `purged`, `replayed_twice`, `cut`, `same_record`, `foreign`, or the reason of an `InputError`.
        message: for people.
    """

    kind: str
    message: str


def unfit(letter: Letter) -> Refusal | None:
    """Return why a letter can't go back."""
    if letter.replays >= MAX_REPLAYS:
        return Refusal("replayed_twice", f"it came back {letter.replays} times; mend the cause, then send it anew")
    if letter.cut_bytes:
        return Refusal("cut", f"{letter.cut_bytes} bytes of it are missing")
    if not letter.reason:
        return Refusal("foreign", "it has no headers of a dead letter")
    return None


def as_it_was(letter: Letter) -> Output:
    """Return the record that the letter was: key and value untouched, on the same partition of its topic.

    Its own headers are kept; `dlq-replays` says how often it came back, this time included, and `dlq-id` which letter
    it was.
    """
    said = ((REPLAYS_HEADER, str(letter.replays + 1).encode()), (ID_HEADER, letter.id.encode()))
    return Output(letter.home, letter.value, letter.key, letter.partition, (*letter.own_headers, *said))


class Origins:
    """Brings letters of the topics in the table back.

    | letter of | goes back as |
    |---|---|
    | a lane | a task; the outcome beside the letter has ended the URL. As it was where fetch could not read it: then it is still out |
    | a task that was given up | a task |
    | a page | as it was, marked where its letter was answered, so that it is not counted twice |
    | any other topic | as it was |

    Args:
        codecs: today's contracts.
    """  # noqa: E501  # a table

    def __init__(self, codecs: Codecs) -> None:
        self._topics = {topic.name: topic for topic in TABLE if topic.dead_letters}
        self._decode = {name: codecs.decoder(topic.subject) for name, topic in self._topics.items()}
        self._encode_task = codecs.encoder(TASKS.subject)
        self._lanes = {topic.name for topic in LANES.values()}

    def decode(self, letter: Letter) -> Mapping[str, Any]:
        """Return what the letter's value says by today's contracts.

        Raises:
            InputError: `undecodable` or `schema_rejected`.
        """
        return self._decode[letter.home](letter.value)

    def restore(self, letter: Letter) -> Output:
        """Return what the letter becomes.

        Raises:
            InputError: today's contracts can't decode the value, or the record does not fit its topic.
        """
        record = self.decode(letter)
        output = self._restored(letter, record)
        size_bytes, limit_bytes = record_bytes(output), self._topics[output.topic].max_message_bytes
        if size_bytes > limit_bytes:
            raise InputError("too_large", f"{size_bytes} bytes; {output.topic} takes {limit_bytes}")
        return output

    def _restored(self, letter: Letter, record: Mapping[str, Any]) -> Output:
        output = as_it_was(letter)
        if letter.home in self._lanes and letter.reason not in UNREAD:
            task = {name: record[name] for name in TASK_FIELDS}
            return output._replace(topic=TASKS.name, value=self._ended_task(task))
        if letter.home == TASKS.name and letter.origin is not None and letter.origin.topic == FETCHES.name:
            return output._replace(value=self._ended_task(record))
        if letter.home == PAGES.name and letter.reason not in UNANSWERED and not is_answered(letter.headers):
            return output._replace(headers=(*output.headers, (ANSWERED_HEADER, b"1")))
        return output

    def _ended_task(self, task: Mapping[str, Any]) -> bytes:
        """A task whose URL has ended in the frontier: it is asked for anew, at once."""
        return self._encode_task({**task, "not_before_ms": 0, "replay": True})
