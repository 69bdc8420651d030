"""Store stage: documents into JSONL files, each document in exactly one finished file.

One round of the runner makes a file per partition, or several where it holds many documents: each is written under a
temporary name and made durable, its manifest row is committed with the offsets in one transaction, then it is renamed.
Who opens the partition next renames what the manifest lists and removes the rest. Readers see only renamed files.

A worker that has lost a partition may not know it yet and write the same range as its successor. So temporary names are
each writer's own, and what is renamed is proven by the hash in the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipeline.delivery.api import Output, SourceRecord, StateView
from pipeline.errors import ConfigurationError, InputError
from pipeline.topics import DOCUMENTS, SEGMENTS

MANIFEST = "m"
TABLES = (MANIFEST,)
TEMPORARY = ".unfinished"

Decode = Callable[[bytes | None], dict[str, Any]]
Encode = Callable[[Mapping[str, Any]], bytes]


def line_of(document: Mapping[str, Any]) -> bytes:
    """Return the JSONL line of a document: bytes as hex, `_ms` times also as RFC 3339 in UTC without the suffix.

    Raises:
        InputError: a time beyond the years that RFC 3339 has.
    """
    row: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, bytes):
            row[name] = value.hex()
        elif name.endswith("_ms"):
            row[name] = value
            row[name.removesuffix("_ms")] = _time(name, value)
        else:
            row[name] = value
    return orjson.dumps(row) + b"\n"


def _time(field: str, moment_ms: int) -> str:
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError) as exc:
        raise InputError("schema_rejected", f"{moment_ms} is no time", field=field) from exc


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Place(NamedTuple):
    """Where and how large files are.

    Attributes:
        directory: of finished files; made when missing.
        documents: most documents in a file.
        mark: stands for the cluster, in every name: two clusters have the same offsets, and may share a place.
    """

    directory: Path
    documents: int
    mark: str


class SegmentPartition:
    """Files of one partition of `crawl.documents.v1`. What it holds in memory is one round's lines.

    Args:
        partition: number.
        view: table m: file name → Segment record.
        place: where files go.
        decode: document value → record.
        encode_segment: Segment record → value.
        decode_segment: value → Segment record.

    Raises:
        ConfigurationError: the directory can't be used.
    """

    def __init__(
        self,
        partition: int,
        view: StateView,
        place: Place,
        *,
        decode: Decode,
        encode_segment: Encode,
        decode_segment: Decode,
    ) -> None:
        self._partition = partition
        self._view = view
        self._directory, self._most_documents, self._mark = place
        self._temporary = self._directory / TEMPORARY
        self._decode = decode
        self._encode_segment = encode_segment
        self._decode_segment = decode_segment
        self._writer = secrets.token_hex(4)
        self._lines: list[tuple[int, bytes]] = []
        self._written: list[str] = []
        with self._plain_disk_errors():
            self._roll_forward()

    @property
    def _prefix(self) -> str:
        return f"documents-{self._mark}-{self._partition:04d}-"

    @contextlib.contextmanager
    def _plain_disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise ConfigurationError(f"store.directory {self._directory}: {exc.strerror}") from exc

    def _roll_forward(self) -> None:
        """Finish what was committed, remove what was not."""
        self._temporary.mkdir(parents=True, exist_ok=True)
        for path in self._temporary.glob(f"{self._prefix}*"):
            row = self._view.get(MANIFEST, path.stem.encode())
            if row is not None and _sha256(path.read_bytes()) == self._manifest(row, path.stem)["sha256"]:
                self._publish(path, path.stem)
            else:
                path.unlink()

    def _manifest(self, row: bytes, name: str) -> dict[str, Any]:
        try:
            return self._decode_segment(row)
        except InputError as exc:
            raise ConfigurationError(f"{SEGMENTS.name}, row of {name}: {exc}") from exc

    def _publish(self, path: Path, name: str) -> None:
        target = self._directory / name
        if path.exists() and target.exists() and target.read_bytes() != path.read_bytes():
            raise ConfigurationError(f"{target} is there already with other documents; name another store.directory")
        try:
            path.replace(target)
        except FileNotFoundError:
            if not target.exists():  # else the partition's next owner was quicker
                raise
        _sync_directory(self._directory)

    def _temporary_path(self, name: str) -> Path:
        return self._temporary / f"{name}.{self._writer}"

    def handle(self, record: SourceRecord, now: float) -> list[Output]:
        """Take one document; an undecodable one raises InputError."""
        del now
        self._lines.append((record.offset, line_of(self._decode(record.value))))
        return []

    def due(self) -> float | None:
        """Return None: files are closed by rounds, not by a timer."""
        return None

    def tick(self, now: float) -> list[Output]:
        """Nothing is due."""
        del now
        return []

    def before_commit(self, positions: dict[str, tuple[int, int]], now: float) -> list[Output]:
        """Write the round's documents to durable temporary files, and a row for each to the manifest.

        A name carries the offsets that its file covers, dead letters and control records included.

        Raises:
            ConfigurationError: the disk refuses; the worker then ends and nothing is committed.
        """
        if not self._lines:
            return []
        start, end = positions[DOCUMENTS.name]
        with self._plain_disk_errors():
            for at in range(0, len(self._lines), self._most_documents):
                lines = self._lines[at : at + self._most_documents]
                following = self._lines[at + self._most_documents :][:1]
                stop = following[0][0] if following else end
                self._write(start, stop, [line for _, line in lines], now)
                start = stop
            _sync_directory(self._temporary)
        self._lines = []
        return []

    def _write(self, start: int, end: int, lines: list[bytes], now: float) -> None:
        name = f"{self._prefix}{start:020d}-{end:020d}.jsonl"
        content = b"".join(lines)
        self._written.append(name)
        with self._temporary_path(name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        segment = {
            "name": name,
            "partition": self._partition,
            "first_offset": start,
            "end_offset": end,
            "documents": len(lines),
            "bytes": len(content),
            "sha256": _sha256(content),
            "written_at_ms": int(now * 1000),
        }
        self._view.put(MANIFEST, name.encode(), self._encode_segment(segment))

    def committed(self) -> None:
        """Make the round's files visible.

        Raises:
            ConfigurationError: the disk refuses, or a file of that name has other documents (of a topic that was made
                anew); who opens the partition next makes them visible.
        """
        with self._plain_disk_errors():
            for name in self._written:
                self._publish(self._temporary_path(name), name)
        self._written.clear()

    def aborted(self) -> None:
        """Remove the files of a round that was undone."""
        with self._plain_disk_errors():
            for name in self._written:
                self._temporary_path(name).unlink(missing_ok=True)
        self._written.clear()
        self._lines = []

    def close(self) -> None:
        """Nothing is held open."""


class StoreStage:
    """Opens the partitions of the store.

    Args:
        place: where files go.
        decode: document value → record; raises InputError.
        encode_segment: Segment record → value.
        decode_segment: value → Segment record.
    """

    def __init__(self, place: Place, *, decode: Decode, encode_segment: Encode, decode_segment: Decode) -> None:
        self._place = place
        self._decode = decode
        self._encode_segment = encode_segment
        self._decode_segment = decode_segment

    def open(self, partition: int, view: StateView, now: float) -> SegmentPartition:
        """Return the partition's files, rolled forward."""
        del now
        return SegmentPartition(
            partition,
            view,
            self._place,
            decode=self._decode,
            encode_segment=self._encode_segment,
            decode_segment=self._decode_segment,
        )
