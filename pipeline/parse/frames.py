"""What crosses the pipe between the parse stage and its worker processes: frames of plain bytes, no pickle.

A frame is a 4-byte length and so many bytes. Numbers are big-endian. Answers come in the order of the requests, so
neither carries a number.

| frame | bytes |
|---|---|
| request | partition (4), time of parsing in ms since the epoch (8), value of the page record |
| answer `READY` | status (1): the first frame of a worker, before any request |
| answer `OUTPUTS` | status (1), then for each output: lengths of topic (2), key (4, -1 for none) and value (4), partition (4), and the three themselves |
| answer `REFUSED` | status (1), lengths of reason (2) and field (2), reason, field, message: an `InputError` |
| answer `FAILED` | status (1), length of the class name (2), class name, message: an error nobody foresaw |
"""  # noqa: E501 - a table

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pipeline.delivery.api import Output
from pipeline.errors import BugError, InputError

LENGTH: Final = struct.Struct(">I")
READY: Final = b"\x00"
OUTPUTS: Final = b"\x01"
REFUSED: Final = b"\x02"
FAILED: Final = b"\x03"
MEMORY_EXIT_STATUS: Final = 75
"""A worker that ran out of memory says nothing and ends with this status."""

_REQUEST: Final = struct.Struct(">iq")
_OUTPUT: Final = struct.Struct(">Hiii")
_WORDS: Final = struct.Struct(">HH")
_MESSAGE_CHARACTERS: Final = 2_000


class ParseFailure(Exception):  # noqa: N818 - a failure of the parser on one page
    """The parser raised what nobody foresaw: our fault, with one page; the worker process goes on.

    Attributes:
        error: name of the exception's class.
    """

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


class UnknownFrame(BugError):  # noqa: N818 - the name says what it is
    """A worker of another version, or a foreign one, answered."""


def request(value: bytes, partition: int, now_ms: int) -> bytes:
    """Frame a page record for the worker."""
    return LENGTH.pack(_REQUEST.size + len(value)) + _REQUEST.pack(partition, now_ms) + value


def read_request(payload: bytes) -> tuple[bytes, int, int]:
    """Read the payload of a request: value of the page record, partition, time in ms since the epoch."""
    partition, now_ms = _REQUEST.unpack_from(payload)
    return payload[_REQUEST.size :], partition, now_ms


def ready() -> bytes:
    """Frame the word that a worker is ready."""
    return _frame([READY])


def outputs(records: Iterable[Output]) -> bytes:
    """Frame what a page gave. Headers and missing values do not cross: the parse stage writes neither."""
    parts = [OUTPUTS]
    for record in records:
        topic, key, value = record.topic.encode(), record.key, record.value or b""
        parts.append(_OUTPUT.pack(len(topic), -1 if key is None else len(key), len(value), record.partition))
        parts += topic, key or b"", value
    return _frame(parts)


def refused(error: InputError) -> bytes:
    """Frame an `InputError`; its message is cut at 2,000 characters."""
    reason, field = error.reason.encode(), error.field.encode()
    message = str(error).removeprefix(f"{error.field}: " if error.field else "")
    return _frame([REFUSED, _WORDS.pack(len(reason), len(field)), reason, field, _bounded(message)])


def failed(error: Exception) -> bytes:
    """Frame an error nobody foresaw."""
    name = type(error).__name__.encode()
    return _frame([FAILED, _WORDS.pack(len(name), 0), name, _bounded(str(error))])


def read_answer(payload: bytes) -> list[Output]:
    """Read the payload of an answer to a request.

    Raises:
        InputError: what the worker raised for the page.
        ParseFailure: the worker met an error nobody foresaw.
        UnknownFrame: no answer of this version.
    """
    status, rest = payload[:1], payload[1:]
    try:
        if status == OUTPUTS:
            return _read_outputs(rest)
        first, second = _WORDS.unpack_from(rest)
        words = rest[_WORDS.size :]
        name, field = words[:first].decode(), words[first : first + second].decode()
        message = words[first + second :].decode()
    except (struct.error, UnicodeDecodeError) as exc:
        raise UnknownFrame(f"damaged answer of status {status!r}") from exc
    if status == REFUSED:
        raise InputError(name, message, field)
    if status == FAILED:
        raise ParseFailure(name, message)
    raise UnknownFrame(f"answer of unknown status {status!r}")


def _read_outputs(rest: bytes) -> list[Output]:
    found = []
    position = 0
    while position < len(rest):
        topic_length, key_length, value_length, partition = _OUTPUT.unpack_from(rest, position)
        key_start = position + _OUTPUT.size + topic_length
        value_start = key_start + max(key_length, 0)
        topic = rest[position + _OUTPUT.size : key_start].decode()
        key = None if key_length < 0 else rest[key_start:value_start]
        position = value_start + value_length
        found.append(Output(topic, rest[value_start:position], key, partition))
    return found


def _frame(parts: list[bytes]) -> bytes:
    payload = b"".join(parts)
    return LENGTH.pack(len(payload)) + payload


def _bounded(message: str) -> bytes:
    return message[:_MESSAGE_CHARACTERS].encode("utf-8", "replace")
