"""The rules of the contracts, checked without a registry: `headrace schemas check`.

A broken rule would show up late and elsewhere: as a consumer that can't read yesterday's records, or one in another
language that refuses the schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.contracts.compatibility import unreadable
from pipeline.contracts.golden import read_golden, unlike
from pipeline.contracts.lock import Lock, differences
from pipeline.contracts.released import FILE_NAME, read_released
from pipeline.contracts.schema_rules import check_document
from pipeline.contracts.schemas import Schema, read_schemas


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule.

    Attributes:
        path: the file at fault.
        field: path of the field in it; empty where the whole file is.
        message: what is wrong and what to do.
    """

    path: Path
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.field}: {self.message}" if self.field else f"{self.path}: {self.message}"


def check_contracts(directory: Path, lock: Lock, subjects: Collection[str]) -> list[Finding]:
    """Check every rule on every schema.

    Args:
        directory: the `avro` folder.
        lock: the built-in lock, which must have an id for each version.
        subjects: those that topics name.

    Returns:
        What is broken; empty when all is well.

    Raises:
        ConfigurationError: a file can't be read as what it should be.
    """
    schemas = read_schemas(directory)
    findings = [
        *_check_subjects(directory, schemas, subjects),
        *_check_released(directory, schemas),
        *_check_lock(directory, schemas, lock),
    ]
    for versions in schemas.values():
        for schema in versions:
            findings += [Finding(schema.path, *broken) for broken in check_document(schema.document)]
        findings += _check_transitive(versions)
        findings += _check_golden(directory, versions)
    return findings


def _check_subjects(directory: Path, schemas: Collection[str], subjects: Collection[str]) -> Iterator[Finding]:
    for subject in sorted(set(subjects) - set(schemas)):
        yield Finding(directory / subject, "", "a topic names this subject: add its v1.avsc")
    for subject in sorted(set(schemas) - set(subjects)):
        yield Finding(directory / subject, "", "no topic names this subject: name it in the table of topics")


def _check_released(directory: Path, schemas: Mapping[str, tuple[Schema, ...]]) -> Iterator[Finding]:
    """A released version never changes: not a default, not a word of its docs."""
    for subject, versions in read_released(directory).items():
        known = {schema.version: schema for schema in schemas.get(subject, ())}
        for version, sha256 in versions.items():
            path = directory / subject / f"v{version}.avsc"
            if version not in known:
                yield Finding(path, "", f"was released and is gone: restore it ({FILE_NAME} has its hash)")
            elif known[version].document_sha256 != sha256:
                yield Finding(
                    path,
                    "",
                    f"was released and has changed: restore it, and put the change into v{len(known) + 1}.avsc",
                )


def _check_lock(directory: Path, schemas: Mapping[str, tuple[Schema, ...]], lock: Lock) -> Iterator[Finding]:
    for line in differences(lock, schemas):
        yield Finding(directory, "", f"{line}: `headrace schemas release` adds a new version; an old one is restored")


def _check_transitive(versions: tuple[Schema, ...]) -> Iterator[Finding]:
    """FULL_TRANSITIVE: each version reads each other one's data, so that any order of deployment works.

    It implies a default for every later field, and that no field without one is ever removed.
    """
    for newer in versions:
        for older in versions[: newer.version - 1]:
            for reader, writer in ((newer, older), (older, newer)):
                for problem in unreadable(reader.document, writer.document):
                    yield Finding(
                        newer.path,
                        "",
                        f"v{reader.version} can't read what v{writer.version} wrote: {problem}; "
                        "give a later field a default, keep every earlier field and its type",
                    )


def _check_golden(directory: Path, versions: tuple[Schema, ...]) -> Iterator[Finding]:
    """Old bytes keep their values, and there are old bytes of every version to show it."""
    golden = read_golden(directory / versions[0].subject)
    covered = {one.version for one in golden}
    for schema in versions:
        if schema.version not in covered:
            yield Finding(schema.path, "", f"has no golden record: add golden/v{schema.version}-<name>.json")
    for one in golden:
        for problem in unlike(one, versions):
            yield Finding(one.path, "", f"{problem}: old records would be misread; change the schema, not this file")
