"""The `avro/` folder: one folder a subject, `v1.avsc`, `v2.avsc`, … in it; what a schema's hash is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fastavro.schema import SchemaParseException, UnknownType, parse_schema, to_parsing_canonical_form

from pipeline.errors import ConfigurationError

# A link to the folder at the root of the repository; in an installed package the files themselves.
DIRECTORY = Path(__file__).with_name("avro")
_FILE_NAME = re.compile(r"v([1-9][0-9]*)\.avsc")


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a subject's schema.

    Attributes:
        subject: name of the folder, `<topic>-value`.
        version: from 1, without a gap.
        document: the schema as JSON, as it stands in the file.
        path: the file.
    """

    subject: str
    version: int
    document: dict[str, Any] = field(hash=False)
    path: Path

    @property
    def text(self) -> str:
        """The document on one line in the order of the file: what a registry is given."""
        return json.dumps(self.document, ensure_ascii=False, separators=(",", ":"))

    @property
    def canonical_sha256(self) -> str:
        """SHA-256 (hex) of the parsing canonical form (Avro specification): equal where the bytes on the wire are."""
        return canonical_sha256(self.document)

    @property
    def document_sha256(self) -> str:
        """SHA-256 (hex) of `text`: changes with docs and defaults too, not with white space."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def parsed(self) -> dict[str, Any]:
        """The schema as fastavro wants it."""
        return cast("dict[str, Any]", parse_schema(self.document))


def canonical_sha256(document: Any) -> str:
    """SHA-256 (hex) of the parsing canonical form of a schema given as JSON."""
    return hashlib.sha256(to_parsing_canonical_form(document).encode()).hexdigest()


def read_schemas(directory: Path = DIRECTORY) -> Mapping[str, tuple[Schema, ...]]:
    """Read all schemas, versions of a subject in order.

    Args:
        directory: the `avro` folder.

    Raises:
        ConfigurationError: a file that is no Avro record schema, a subject without versions or with a gap in them.
    """
    try:
        folders = sorted(folder for folder in directory.iterdir() if folder.is_dir())
    except OSError as exc:
        raise ConfigurationError(f"{directory}: {exc.strerror}") from exc
    subjects = {folder.name: _read_versions(folder) for folder in folders}
    if not subjects:
        raise ConfigurationError(f"{directory}: no schemas")
    return subjects


def _read_versions(folder: Path) -> tuple[Schema, ...]:
    numbered = {int(match[1]): file for file in folder.iterdir() if (match := _FILE_NAME.fullmatch(file.name))}
    if sorted(numbered) != list(range(1, len(numbered) + 1)) or not numbered:
        raise ConfigurationError(f"{folder}: versions must be v1.avsc, v2.avsc, … without a gap")
    return tuple(_read_schema(folder.name, version, numbered[version]) for version in sorted(numbered))


def _read_schema(subject: str, version: int, path: Path) -> Schema:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parse_schema(document)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as exc:
        raise ConfigurationError(f"{path}: not an Avro schema: {exc!r}") from exc
    # fastavro takes a record without fields for one with none.
    if not isinstance(document, dict) or document["type"] != "record" or "fields" not in document:
        raise ConfigurationError(f"{path}: the value of a topic must be a record with fields")
    return Schema(subject, version, document, path)
