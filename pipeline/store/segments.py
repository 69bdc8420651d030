"""Store stage: documents into JSONL files, each document in exactly one finished file.

One round of the runner is one file per partition: the file is written under a temporary name and made durable, its
manifest row is committed with the offsets in one transaction, then it is renamed. A restart renames what the manifest
lists and removes the rest. Readers see only renamed files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from pipeline.delivery.api import Output, SourceRecord, StateView
from pipeline.errors import ConfigurationError
from pipeline.topics import DOCUMENTS

MANIFEST = "m"
TABLES = (MANIFEST,)
TEMPORARY = ".unfinished"

Decode = Callable[[bytes | None], dict[str, Any]]
Encode = Callable[[Mapping[str, Any]], bytes]


def line_of(document: Mapping[str, Any]) -> bytes:
    """Return the JSONL line of a document: bytes as hex, `_ms` times also as RFC 3339 in UTC without the suffix."""
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, bytes):
            row[name] = value.hex()
        elif name.endswith("_ms"):
            row[name] = value
            row[name.removesuffix("_ms")] = datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
        else:
            row[name] = value
    return orjson.dumps(row) + b"\n"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SegmentPartition:
    """Files of one partition of `crawl.documents.v1`. What it holds in memory is one round's lines.

    Args:
        partition: number.
        view: table m: file name → Segment record.
        directory: where finished files are.
        decode: document value → record.
        encode: Segment record → value.
    """

    def __init__(self, partition: int, view: StateView, directory: Path, decode: Decode, encode: Encode) -> None:
        self._partition = partition
        self._view = view
        self._directory = directory
        self._temporary = directory / TEMPORARY
        self._decode = decode
        self._encode = encode
        self._lines: list[bytes] = []
        self._written: list[str] = []
        self._roll_forward()

    def _roll_forward(self) -> None:
        """Finish what was committed, remove what was not."""
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            for path in self._temporary.glob(f"{self._prefix}*"):
                if self._view.get(MANIFEST, path.name.encode()) is not None:
                    self._publish(path.name)
                else:
                    path.unlink()
        except OSError as exc:
            raise ConfigurationError(f"output directory {self._directory}: {exc.strerror}") from exc

    @property
    def _prefix(self) -> str:
        return f"documents-{self._partition:04d}-"

    def _publish(self, name: str) -> None:
        (self._temporary / name).replace(self._directory / name)
        _sync_directory(self._directory)

    def handle(self, record: SourceRecord, now: float) -> list[Output]:
        """Take one document; an undecodable one raises InputError."""
        del now
        self._lines.append(line_of(self._decode(record.value)))
        return []

    def due(self) -> float | None:
        """Return None: files are closed by rounds, not by a timer."""
        return None

    def tick(self, now: float) -> list[Output]:
        """Nothing is due."""
        del now
        return []

    def before_commit(self, positions: dict[str, tuple[int, int]], now: float) -> list[Output]:
        """Write the round's documents to a durable temporary file and its row to the manifest.

        The name carries the offsets: a worker that lost the partition and still writes either writes the same bytes
        or another name.

        Raises:
            ConfigurationError: the disk refuses; the worker then ends and nothing is committed.
        """
        if not self._lines:
            return []
        first, end = positions[DOCUMENTS.name]
        name = f"{self._prefix}{first:020d}-{end:020d}.jsonl"
        content = b"".join(self._lines)
        try:
            with (self._temporary / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as exc:
            raise ConfigurationError(f"output directory {self._directory}: {exc.strerror}") from exc
        segment = {
            "name": name,
            "partition": self._partition,
            "first_offset": first,
            "end_offset": end,
            "documents": len(self._lines),
            "bytes": len(content),
            "sha256": hashlib.sha256(content).digest(),
            "written_at_ms": int(now * 1000),
        }
        self._view.put(MANIFEST, name.encode(), self._encode(segment))
        self._written.append(name)
        self._lines = []
        return []

    def committed(self) -> None:
        """Make the round's file visible."""
        for name in self._written:
            self._publish(name)
        self._written.clear()

    def aborted(self) -> None:
        """Remove the file of a round that was undone."""
        for name in self._written:
            with contextlib.suppress(FileNotFoundError):
                (self._temporary / name).unlink()
        self._written.clear()
        self._lines = []

    def close(self) -> None:
        """Nothing is held open."""


class StoreStage:
    """Opens the partitions of the store.

    Args:
        directory: where finished files are; made when missing.
        decode: document value → record; raises InputError.
        encode: Segment record → value.
    """

    def __init__(self, directory: Path, decode: Decode, encode: Encode) -> None:
        self._directory = directory
        self._decode = decode
        self._encode = encode

    def open(self, partition: int, view: StateView, now: float) -> SegmentPartition:
        """Return the partition's files, rolled forward."""
        del now
        return SegmentPartition(partition, view, self._directory, self._decode, self._encode)
