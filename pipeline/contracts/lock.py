"""The lock file: which registry id each schema has, so that no worker ever asks a registry."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.contracts.files import write_atomically
from pipeline.contracts.schemas import Schema
from pipeline.errors import ConfigurationError

BUILT_IN = Path(__file__).with_name("local.lock.json")
_ID_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class LockedVersion:
    """One schema version in a registry.

    Attributes:
        id: the 4-byte id on the wire.
        sha256: `Schema.canonical_sha256` of the schema that has it.
    """

    id: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LockedSubject:
    """The versions of one subject.

    Attributes:
        writes: the version that producers write. Behind the newest one while a deployment teaches all readers first.
        versions: by version number.
    """

    writes: int
    versions: Mapping[int, LockedVersion]


@dataclass(frozen=True, slots=True)
class Lock:
    """Contents of a lock file.

    Attributes:
        registry: address or name of the registry the ids are from.
        subjects: by subject.
    """

    registry: str
    subjects: Mapping[str, LockedSubject]


def read_lock(path: Path | None = None) -> Lock:
    """Read a lock file.

    Args:
        path: the file; None takes the built-in one, whose ids are those of the local stack.

    Raises:
        ConfigurationError: no such file, or it isn't a lock file.
    """
    file = path or BUILT_IN
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        subjects = {
            str(subject): LockedSubject(
                int(entry["writes"]),
                {int(v): LockedVersion(int(one["id"]), str(one["sha256"])) for v, one in entry["versions"].items()},
            )
            for subject, entry in tree["subjects"].items()
        }
        lock = Lock(str(tree["registry"]), subjects)
    except OSError as exc:
        raise ConfigurationError(
            f"registry.lock {file}: {exc.strerror}; `headrace schemas register` writes it"
        ) from exc
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigurationError(
            f"registry.lock {file}: not a lock file ({exc!r}); `headrace schemas register` writes it anew"
        ) from exc
    _check_ids(lock, file)
    return lock


def _check_ids(lock: Lock, file: Path) -> None:
    owners: dict[int, str] = {}
    for subject, entry in lock.subjects.items():
        if entry.writes not in entry.versions:
            raise ConfigurationError(f"registry.lock {file}: {subject} writes version {entry.writes}, which has no id")
        for version, locked in entry.versions.items():
            if not 0 <= locked.id <= _ID_MAX:
                raise ConfigurationError(f"registry.lock {file}: {subject} version {version}: id {locked.id} is no id")
            if locked.id in owners:
                raise ConfigurationError(
                    f"registry.lock {file}: id {locked.id} stands for {owners[locked.id]} and {subject} v{version}"
                )
            owners[locked.id] = f"{subject} v{version}"


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file in one step: a reader sees the old one or the new one, whole."""
    tree = {
        "registry": lock.registry,
        "subjects": {
            subject: {
                "writes": entry.writes,
                "versions": {
                    str(version): {"id": entry.versions[version].id, "sha256": entry.versions[version].sha256}
                    for version in sorted(entry.versions)
                },
            }
            for subject, entry in sorted(lock.subjects.items())
        },
    }
    write_atomically(path, json.dumps(tree, indent=2) + "\n")


def differences(lock: Lock, schemas: Mapping[str, tuple[Schema, ...]]) -> list[str]:
    """What a lock and the schemas disagree on, one sentence each; empty where they agree."""
    found: list[str] = []
    for subject in sorted(lock.subjects.keys() | schemas.keys()):
        locked = lock.subjects[subject].versions if subject in lock.subjects else {}
        known = {schema.version: schema for schema in schemas.get(subject, ())}
        for version in sorted(locked.keys() | known.keys()):
            if version not in locked:
                found.append(f"{subject} v{version} has no id in the lock")
            elif version not in known:
                found.append(f"{subject} v{version} is in the lock, but not among the schemas")
            elif locked[version].sha256 != known[version].canonical_sha256:
                found.append(f"{subject} v{version} is another schema than the one that was locked")
    return found


def with_new_ids(lock: Lock, schemas: Mapping[str, tuple[Schema, ...]]) -> Lock:
    """The lock with an id for each version that has none, and the newest of each subject written.

    For the built-in lock alone: there the ids are ours to give, in the order in which versions came to be.
    """
    used = [version.id for entry in lock.subjects.values() for version in entry.versions.values()]
    following = itertools.count(max(used, default=0) + 1)
    subjects: dict[str, LockedSubject] = {}
    for subject, versions in schemas.items():
        known = dict(lock.subjects[subject].versions) if subject in lock.subjects else {}
        for schema in versions:
            if schema.version not in known:
                known[schema.version] = LockedVersion(next(following), schema.canonical_sha256)
        subjects[subject] = LockedSubject(versions[-1].version, known)
    return Lock(lock.registry, subjects)
