"""Records to bytes and back: Confluent framing (byte 0, 4-byte big-endian schema id), then the Avro body.

Ids come from a lock file and schemas from the package: no registry is asked at run time.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError

from pipeline.contracts.lock import BUILT_IN, Lock, differences, read_lock
from pipeline.contracts.schemas import DIRECTORY, Schema, read_schemas
from pipeline.errors import BugError, ConfigurationError, InputError

MAGIC = b"\x00"
FRAME_BYTES = 5

Encoder = Callable[[Mapping[str, Any]], bytes]
Decoder = Callable[[bytes | None], dict[str, Any]]

# What fastavro raises for bytes or values that don't fit; a shortage of memory is not among it.
_UNFIT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, SchemaResolutionError)


def frame(schema_id: int) -> bytes:
    """The five bytes before a body."""
    return MAGIC + schema_id.to_bytes(4, "big")


class Codecs:
    """Encoders and decoders of all subjects, made once; safe to share between threads.

    Args:
        lock: ids of the registry in use.
        schemas: versions of each subject, in order; they agree with the lock.
    """

    def __init__(self, lock: Lock, schemas: Mapping[str, tuple[Schema, ...]]) -> None:
        names = {
            frame(locked.id): f"{subject} v{version}"
            for subject, entry in lock.subjects.items()
            for version, locked in entry.versions.items()
        }
        self._encoders: dict[str, Encoder] = {}
        self._decoders: dict[str, Decoder] = {}
        for subject, versions in schemas.items():
            entry = lock.subjects[subject]
            parsed = {schema.version: schema.parsed() for schema in versions}
            newest = versions[-1].version
            self._encoders[subject] = _make_encoder(
                subject, frame(entry.versions[entry.writes].id), parsed[entry.writes], whole=entry.writes == newest
            )
            writers = {frame(entry.versions[version].id): document for version, document in parsed.items()}
            self._decoders[subject] = _make_decoder(subject, writers, parsed[newest], names)

    def encoder(self, subject: str) -> Encoder:
        """The function that encodes records of a subject; hold it where many are encoded.

        It raises `BugError` for a record that doesn't fit the contract, naming the field where it is known: what is
        encoded was made by our own code. A record of the outside is judged before (`InputError`), by the stage.

        Raises:
            BugError: no such subject.
        """
        try:
            return self._encoders[subject]
        except KeyError:
            raise BugError(f"no contract {subject!r}") from None

    def decoder(self, subject: str) -> Decoder:
        """The function that decodes values of a subject, whatever version wrote them, to the newest version.

        It raises `InputError` and nothing else, for any bytes: `schema_rejected` for a schema id that the lock
        doesn't have or has for another subject, `undecodable` for everything that is no framed record.

        Raises:
            BugError: no such subject.
        """
        try:
            return self._decoders[subject]
        except KeyError:
            raise BugError(f"no contract {subject!r}") from None

    def encode(self, subject: str, record: Mapping[str, Any]) -> bytes:
        """Encode one record; see `encoder`."""
        return self.encoder(subject)(record)

    def decode(self, subject: str, value: bytes | None) -> dict[str, Any]:
        """Decode one value; see `decoder`."""
        return self.decoder(subject)(value)


def load_codec(lock: Path | None = None, schemas: Path = DIRECTORY) -> Codecs:
    """Build the codecs from files alone.

    Args:
        lock: lock file (`registry.lock` of the configuration); None takes the built-in one of the local stack.
        schemas: the `avro` folder.

    Raises:
        ConfigurationError: a file is missing or damaged, or lock and schemas disagree: ids of other schemas would
            make records unreadable for everybody else, so nothing is started.
    """
    contents = read_lock(lock)
    known = read_schemas(schemas)
    found = differences(contents, known)
    if found:
        lines = "\n".join(f"  {line}" for line in found)
        raise ConfigurationError(
            f"registry.lock {lock or BUILT_IN} and the schemas disagree:\n{lines}\n"
            "deploy the lock that belongs to this version, or write it with `headrace schemas register`"
        )
    return Codecs(contents, known)


def _make_encoder(subject: str, prefix: bytes, schema: dict[str, Any], *, whole: bool) -> Encoder:
    """Build an encoder; `whole`: refuse fields that the schema doesn't have (a newer record loses some on purpose)."""

    def encode(record: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(prefix)
        try:
            schemaless_writer(out, schema, record, strict_allow_default=whole)
        except _UNFIT as exc:
            raise BugError(f"a record doesn't fit {subject}: {exc}") from exc
        return out.getvalue()

    return encode


def _make_decoder(
    subject: str, writers: Mapping[bytes, dict[str, Any]], newest: dict[str, Any], names: Mapping[bytes, str]
) -> Decoder:
    # fastavro resolves nothing when no reader schema is given: that is the common case, and faster.
    pairs = {prefix: (schema, None if schema is newest else newest) for prefix, schema in writers.items()}

    def decode(value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise InputError("undecodable", f"no value where a {subject} record is due")
        pair = pairs.get(value[:FRAME_BYTES])
        if pair is None:
            raise _unknown_frame(value, subject, names)
        body = io.BytesIO(value)
        body.seek(FRAME_BYTES)
        try:
            record: dict[str, Any] = schemaless_reader(body, *pair)  # type: ignore[assignment]  # a contract is a record
        except _UNFIT as exc:
            raise InputError(
                "undecodable",
                f"byte {body.tell()} of {len(value)}: no {subject} record: {str(exc) or type(exc).__name__}",
            ) from exc
        if body.tell() != len(value):
            raise InputError(
                "undecodable", f"byte {body.tell()} of {len(value)}: bytes after the end of a {subject} record"
            )
        return record

    return decode


def _unknown_frame(value: bytes, subject: str, names: Mapping[bytes, str]) -> InputError:
    prefix = value[:FRAME_BYTES]
    if prefix[:1] != MAGIC:
        return InputError("undecodable", f"byte 0 of {len(value)}: not the magic byte 0 of a framed record")
    if len(prefix) < FRAME_BYTES:
        return InputError("undecodable", f"byte {len(value)} of {len(value)}: ends inside the 5 bytes of the frame")
    schema_id = int.from_bytes(prefix[1:], "big")
    if prefix in names:
        return InputError("schema_rejected", f"schema id {schema_id} is {names[prefix]}, not {subject}")
    return InputError("schema_rejected", f"schema id {schema_id} is not in the lock")
