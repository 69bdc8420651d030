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
from pipeline.contracts.places import UNFIT, Places
from pipeline.contracts.schemas import DIRECTORY, Schema, read_schemas
from pipeline.errors import BugError, ConfigurationError, InputError

MAGIC = b"\x00"
FRAME_BYTES = 5

Encoder = Callable[[Mapping[str, Any]], bytes]
Decoder = Callable[[bytes | None], dict[str, Any]]

# Resolution can't fail between versions that passed `headrace schemas check`; fastavro's type for it stands alone.
_UNREADABLE = (*UNFIT, SchemaResolutionError)


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
            by_version = {schema.version: schema for schema in versions}
            self._encoders[subject] = _make_encoder(
                by_version[entry.writes], frame(entry.versions[entry.writes].id), versions[-1]
            )
            writers = {frame(entry.versions[schema.version].id): schema for schema in versions}
            self._decoders[subject] = _make_decoder(writers, versions[-1], names)

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


def _make_encoder(schema: Schema, prefix: bytes, newest: Schema) -> Encoder:
    parsed = schema.parsed()
    # A field that the schema doesn't have is a slip, unless an older version is written on purpose.
    whole = schema is newest

    def encode(record: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(prefix)
        try:
            schemaless_writer(out, parsed, record, strict_allow_default=whole)
        except UNFIT as exc:
            field = Places(schema.document).unwritable_field(record)
            place = f"field {field}: " if field else ""
            raise BugError(f"{place}not a {schema.subject} record: {_said(exc)}") from exc
        return out.getvalue()

    return encode


def _make_decoder(writers: Mapping[bytes, Schema], newest: Schema, names: Mapping[bytes, str]) -> Decoder:
    subject = newest.subject
    reader = newest.parsed()
    # Without a reader schema fastavro resolves nothing: the common case, and faster.
    pairs = {
        prefix: (reader, None) if schema is newest else (schema.parsed(), reader) for prefix, schema in writers.items()
    }

    def decode(value: bytes | None) -> dict[str, Any]:
        if value is None:
            raise InputError("undecodable", f"no value where a {subject} record is due")
        prefix = value[:FRAME_BYTES]
        pair = pairs.get(prefix)
        if pair is None:
            raise _unknown_frame(value, subject, names)
        body = io.BytesIO(value)
        body.seek(FRAME_BYTES)
        try:
            record: dict[str, Any] = schemaless_reader(body, *pair)  # type: ignore[assignment]  # a contract is a record
        except _UNREADABLE as exc:
            field = Places(writers[prefix].document).unreadable_field(value[FRAME_BYTES:])
            raise InputError(
                "undecodable", f"byte {body.tell()} of {len(value)}: no {subject} record: {_said(exc)}", field
            ) from exc
        if body.tell() != len(value):
            raise InputError(
                "undecodable", f"byte {body.tell()} of {len(value)}: bytes after the end of a {subject} record"
            )
        return record

    return decode


def _said(exc: Exception) -> str:
    return str(exc) or type(exc).__name__


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
