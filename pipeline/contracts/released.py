"""`avro/released.json`: the hash of each schema version that was ever released. Such a version never changes again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pipeline.contracts.files import write_atomically
from pipeline.contracts.schemas import Schema
from pipeline.errors import ConfigurationError

FILE_NAME = "released.json"

Released = Mapping[str, Mapping[int, str]]


def read_released(directory: Path) -> Released:
    """Read the list: `Schema.document_sha256` by subject and version.

    Raises:
        ConfigurationError: there is none, or it is damaged.
    """
    path = directory / FILE_NAME
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(subject): {int(version): str(sha256) for version, sha256 in versions.items()}
            for subject, versions in tree.items()
        }
    except OSError as exc:
        raise ConfigurationError(f"{path}: {exc.strerror}; restore it from the repository") from exc
    except (ValueError, AttributeError) as exc:
        raise ConfigurationError(
            f"{path}: not a list of released schemas ({exc!r}); restore it from the repository"
        ) from exc


def release(directory: Path, schemas: Mapping[str, tuple[Schema, ...]]) -> list[str]:
    """Add every version that is not on the list yet; what is on it stays as it is.

    Returns:
        The versions added, as `subject vN`.

    Raises:
        ConfigurationError: as `read_released`.
    """
    path = directory / FILE_NAME
    released = read_released(directory) if path.exists() else {}
    added = [
        schema
        for versions in schemas.values()
        for schema in versions
        if schema.version not in released.get(schema.subject, {})
    ]
    tree = {subject: dict(versions) for subject, versions in released.items()}
    for schema in added:
        tree.setdefault(schema.subject, {})[schema.version] = schema.document_sha256
    ordered = {subject: {str(v): tree[subject][v] for v in sorted(tree[subject])} for subject in sorted(tree)}
    write_atomically(path, json.dumps(ordered, indent=2) + "\n")
    return [f"{schema.subject} v{schema.version}" for schema in added]
