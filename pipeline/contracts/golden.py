"""Golden records: values and the bytes they once became, which every later reader must still decode to these values.

Beside the schemas, `avro/<subject>/golden/v<version>-<name>.json` (the values) and `.bin` (the Avro body, without a
frame: ids differ between registries). Bytes are written as {"$hex": "00ff"} in the JSON.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastavro import schemaless_reader, schemaless_writer

from pipeline.contracts.schemas import Schema
from pipeline.errors import ConfigurationError

FOLDER = "golden"
_FILE_NAME = re.compile(r"v([1-9][0-9]*)-[a-z0-9-]+\.json")
_HEX = "$hex"


@dataclass(frozen=True, slots=True)
class GoldenRecord:
    """One record.

    Attributes:
        version: of the schema that wrote it.
        record: its values.
        path: the JSON file; the bytes are in the file with the suffix `.bin`.
    """

    version: int
    record: dict[str, Any]
    path: Path

    @property
    def body_path(self) -> Path:
        """The file of the bytes."""
        return self.path.with_suffix(".bin")


def read_golden(folder: Path) -> tuple[GoldenRecord, ...]:
    """Read the golden records of a subject.

    Args:
        folder: of the subject.

    Raises:
        ConfigurationError: a file that is not named or made as above.
    """
    return tuple(_read_one(path) for path in sorted((folder / FOLDER).glob("*.json")))


def _read_one(path: Path) -> GoldenRecord:
    match = _FILE_NAME.fullmatch(path.name)
    if match is None:
        raise ConfigurationError(f"{path}: the name of a golden record is v<version>-<name>.json")
    try:
        return GoldenRecord(int(match[1]), _from_json(json.loads(path.read_text(encoding="utf-8"))), path)
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"{path}: not a golden record: {exc}") from exc


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_HEX}:
            return bytes.fromhex(value[_HEX])
        return {key: _from_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_from_json(one) for one in value]
    return value


def write_missing_bodies(golden: tuple[GoldenRecord, ...], versions: tuple[Schema, ...]) -> list[Path]:
    """Encode the golden records that have no bytes yet. Bytes that are there are never written again.

    Returns:
        The files written.

    Raises:
        ConfigurationError: a record that its schema can't encode.
    """
    by_version = {schema.version: schema for schema in versions}
    written: list[Path] = []
    for one in golden:
        if one.body_path.exists():
            continue
        body = io.BytesIO()
        try:
            schemaless_writer(body, by_version[one.version].parsed(), one.record, strict=True)
        except (LookupError, ValueError, TypeError, ArithmeticError) as exc:
            raise ConfigurationError(f"{one.path}: doesn't fit v{one.version}.avsc: {exc!r}") from exc
        one.body_path.write_bytes(body.getvalue())
        written.append(one.body_path)
    return written


def unlike(golden: GoldenRecord, versions: tuple[Schema, ...]) -> Iterator[str]:
    """Decode a golden record with its own schema and each later one; say where values differ from what was written.

    Yields:
        One sentence for each reader that fails or differs.
    """
    by_version = {schema.version: schema for schema in versions}
    writer = by_version.get(golden.version)
    if writer is None:
        yield f"is of version {golden.version}, which does not exist"
        return
    if not golden.body_path.is_file():
        yield f"has no {golden.body_path.name}; `headrace schemas release` writes it"
        return
    body = golden.body_path.read_bytes()
    for reader in versions[golden.version - 1 :]:
        source = io.BytesIO(body)
        try:
            decoded = schemaless_reader(source, writer.parsed(), reader.parsed())
        except Exception as exc:  # noqa: BLE001 - whatever a reader fails with is the finding
            yield f"v{reader.version} can't decode it: {exc!r}"
            continue
        if source.tell() != len(body):
            yield f"v{reader.version} leaves {len(body) - source.tell()} bytes unread"
        for difference in _differences(golden.record, decoded, reader.document):
            yield f"decoded by v{reader.version}, {difference}"


def _differences(expected: Any, decoded: Any, schema: Any, where: str = "") -> Iterator[str]:
    """A reader's record may lack a field or have another one; the fields in common must hold what was written."""
    branches = schema if isinstance(schema, list) else [schema]
    fitting = [branch for branch in branches if isinstance(branch, dict) and branch["type"] in {"record", "array"}]
    if fitting and fitting[0]["type"] == "record" and isinstance(expected, dict):
        for field in fitting[0]["fields"]:
            if field["name"] in expected:
                name = field["name"]
                yield from _differences(expected[name], decoded[name], field["type"], f"{where}.{name}".lstrip("."))
    elif fitting and isinstance(expected, list) and len(expected) == len(decoded):
        for old, new in zip(expected, decoded, strict=True):
            yield from _differences(old, new, fitting[0]["items"], where + "[]")
    elif expected != decoded:
        yield f"field {where} is {decoded!r} instead of {expected!r}"
