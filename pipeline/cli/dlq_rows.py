"""How dead letters are written for people and for programs."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.ops.dead_letters import Letter, State, rfc3339

MESSAGE_CHARACTERS: Final = 80
SHORT_BYTES: Final = 64
PREVIEW_BYTES: Final = 256


def row(letter: Letter) -> dict[str, Any]:
    """Return what `--json` says of a letter; fields may be added."""
    origin = letter.origin
    return {
        "id": letter.id,
        "state": letter.state,
        "reason": letter.reason,
        "error": letter.error,
        "message": letter.message,
        "stage": letter.stage,
        "version": letter.version,
        "topic": letter.home,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": rfc3339(letter.timestamp_ms),
        "origin": origin and {**origin._asdict(), "time": rfc3339(origin.timestamp_ms)},
        "domain": None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        "value_bytes": None if letter.value is None else len(letter.value),
        "attempts": letter.attempts,
        "replays": letter.replays,
        "cut_bytes": letter.cut_bytes,
        "done_by": letter.done_by,
        "done_at": letter.done_at,
    }


def export_row(letter: Letter) -> dict[str, Any]:
    """Return a letter whole: bytes are base64, so that it can be written to a topic anywhere."""
    return {
        "id": letter.id,
        "state": letter.state,
        "reason": letter.reason,
        "dlq_topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp_ms": letter.timestamp_ms,
        "key_base64": in_base64(letter.key),
        "value_base64": in_base64(letter.value),
        "headers": [[name, in_base64(value)] for name, value in letter.headers],
    }


def in_base64(value: bytes | None) -> str | None:
    """Return bytes as base64, None as None."""
    return None if value is None else base64.b64encode(value).decode()


def line(letter: Letter) -> str:
    """Return a letter in one line."""
    message = printable(letter.message)
    if len(message) > MESSAGE_CHARACTERS:
        message = message[: MESSAGE_CHARACTERS - 1] + "…"
    words = (
        letter.id,
        letter.state,
        printable(letter.reason) or "-",
        printable(letter.stage) or "-",
        place(letter),
        printable_key(letter.key),
        rfc3339(letter.timestamp_ms),
        f"attempts {letter.attempts}",
        f"replays {letter.replays}",
        message,
    )
    return "  ".join(words)


def place(letter: Letter) -> str:
    """Return where the record came from, or where the letter is if it does not say so."""
    if letter.origin is None:
        return f"{letter.topic}/{letter.partition}/{letter.offset}"
    return printable(str(letter.origin))


def summary(counts: Counter[tuple[str, str, State]]) -> Iterator[str]:
    """Yield a line for each reason and stage.

    Args:
        counts: letters by reason, stage and state.
    """
    pairs = sorted({(reason, stage) for reason, stage, _ in counts})
    for reason, stage in pairs:
        states = [f"{counts[reason, stage, state]} {state}" for state in State if counts[reason, stage, state]]
        yield f"  {printable(reason) or '-':<18} {printable(stage) or '-':<9} {', '.join(states)}"


def readable(value: Any) -> Any:
    """Return a decoded record as JSON takes it: short bytes in hexadecimal, of long ones the beginning."""
    if isinstance(value, bytes):
        return value.hex() if len(value) <= SHORT_BYTES else f"{len(value)} bytes: {value[:SHORT_BYTES].hex()}…"
    if isinstance(value, Mapping):
        return {name: readable(field) for name, field in value.items()}
    if isinstance(value, list):
        return [readable(item) for item in value]
    return value


def preview(value: bytes | None) -> str:
    """Return the beginning of bytes that no contract can decode."""
    if value is None:
        return "no value"
    more = "…" if len(value) > PREVIEW_BYTES else ""
    return f"{len(value)} bytes: {printable(value[:PREVIEW_BYTES].decode('latin-1'))}{more}"


def printable_key(key: bytes | None) -> str:
    """Return a record key as text."""
    return "-" if key is None else printable(key.decode(errors="backslashreplace"))


def printable(text: str) -> str:
    """Return text that can't steer a terminal: what senders wrote stands in it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
