"""Java archives of the local stack: named and pinned by SHA-256 in `archives.json`, fetched once, offline afterwards.

`python -m pipeline.local.archives` writes the list anew after a version in `ROOTS` was changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigurationError

log = logging.getLogger(__name__)

LIST = Path(__file__).with_name("archives.json")
ROOTS: dict[str, tuple[str, ...]] = {
    # Without a binding for slf4j the broker is silent, also about why it does not start.
    "kafka": ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"),
    # Its commands, which a test compares ours with; they run on the class path of both.
    "tools": ("org.apache.kafka:kafka-tools:4.3.1",),
    "registry": ("io.apicurio:apicurio-registry-app:3.3.3:all:tar.gz",),
}
ATTEMPTS = 3
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Archive:
    """One file of a Maven repository.

    Attributes:
        coordinate: group:artifact:version, or group:artifact:version:classifier:packaging.
        size_bytes: its length.
        sha256: hex digest of its bytes.
    """

    coordinate: str
    size_bytes: int
    sha256: str


def listed(server: str) -> list[Archive]:
    """Return the pinned archives of a server (`kafka` or `registry`), in class path order."""
    return [Archive(**row) for row in json.loads(LIST.read_text(encoding="utf-8"))[server]]


def class_path(server: str) -> str:
    """Return the Java class path of a server; archives that are not here yet are fetched.

    Raises:
        ConfigurationError: an archive cannot be fetched, is not the pinned one, or the disk refuses it.
    """
    return os.pathsep.join(str(path) for path in fetch(listed(server)))


def unpacked(server: str) -> Path:
    """Return the directory with the content of a server's only archive, a gzipped tar; unpacked at the first call.

    Raises:
        ConfigurationError: as `class_path`.
    """
    (archive,) = listed(server)
    directory = Path(_settings().cache_dir) / "headrace" / archive.sha256
    if directory.is_dir():
        return directory
    (packed,) = fetch([archive])
    with _plain_disk_errors(directory.parent), _only_one(directory.parent):
        if not directory.is_dir():
            unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=directory.parent))
            try:
                with tarfile.open(packed) as tar:
                    # Python before 3.11.4 has no filters; what is in the archive is pinned by its hash.
                    tar.extraction_filter = getattr(tarfile, "data_filter", None)
                    tar.extractall(unfinished)  # noqa: S202 - as above
                unfinished.rename(directory)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
    return directory


def fetch(archives: list[Archive]) -> list[Path]:
    """Return the local paths of archives; what is missing or has a wrong length is downloaded and checked.

    Raises:
        ConfigurationError: as `class_path`.
    """
    maven = _maven()
    found = [_artifact(maven, archive.coordinate) for archive in archives]
    paths = [Path(artifact.cached_path) for artifact in found]
    if not all(map(_is_whole, paths, archives)):
        with _plain_disk_errors(maven.repo_cache), _only_one(Path(maven.repo_cache)):
            missing = [row for row in zip(paths, archives, found, strict=True) if not _is_whole(*row[:2])]
            size_mb = sum(archive.size_bytes for _, archive, _ in missing) / 1e6
            log.info("fetching %s, once: %d files, %.0f MB", archives[0].coordinate, len(missing), size_mb)
            for path, archive, artifact in missing:
                _download(path, archive, artifact)
    return paths


def _is_whole(path: Path, archive: Archive) -> bool:
    """Length only: the digest was checked when the file came, and 45 digests would cost each start 0.2 s."""
    try:
        return path.stat().st_size == archive.size_bytes
    except FileNotFoundError:
        return False


def _download(path: Path, archive: Archive, artifact: Any) -> None:
    import requests  # noqa: PLC0415 - comes with jgo, and only a first start needs it

    for attempt in range(1, ATTEMPTS + 1):
        path.unlink(missing_ok=True)  # a broken download lies under the final name
        try:
            artifact.resolve()
        except (requests.RequestException, RuntimeError) as exc:
            if attempt == ATTEMPTS:
                raise ConfigurationError(
                    f"cannot download {archive.coordinate}: {exc}; the local stack needs the network at its "
                    "first start, or name a cluster (broker.bootstrap); a mirror is set in [repositories] of jgo.conf"
                ) from exc
            time.sleep(attempt)
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest == archive.sha256:
            return
        path.unlink()
    raise ConfigurationError(f"{archive.coordinate}: SHA-256 {digest} was downloaded, {archive.sha256} is pinned")


def _settings() -> Any:
    """Read jgo's own settings: cache directories and mirrors, from its file and `JGO_CACHE_DIR`, `M2_REPO`."""
    try:
        from jgo.config import GlobalSettings  # noqa: PLC0415 - an extra: not needed with a named cluster
    except ImportError as exc:
        raise ConfigurationError(
            "the local stack needs the extra 'local' (pip install 'headrace[local]'), or name a cluster: "
            "broker.bootstrap"
        ) from exc
    return GlobalSettings.load()


def _maven() -> Any:
    settings = _settings()
    from jgo.constants import MAVEN_CENTRAL_URL  # noqa: PLC0415 - as above
    from jgo.maven import MavenContext  # noqa: PLC0415 - as above

    return MavenContext(
        repo_cache=settings.repo_cache,
        remote_repos={**settings.repositories, "central": MAVEN_CENTRAL_URL},
        timeout=TIMEOUT_S,
    )


def _artifact(maven: Any, coordinate: str) -> Any:
    group, name, version, classifier, packaging = (*coordinate.split(":"), "", "jar")[:5]
    return maven.project(group, name).at_version(version).artifact(classifier, packaging)


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Let one process at a time write to a cache directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".headrace.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _plain_disk_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, tarfile.TarError) as exc:
        raise ConfigurationError(f"{directory}: {exc}") from exc


def write_list() -> None:
    """Resolve `ROOTS` with all they depend on and write `archives.json`."""
    maven = _maven()
    servers: dict[str, list[dict[str, str | int]]] = {}
    for server, roots in ROOTS.items():
        artifacts = [_artifact(maven, root) for root in roots]
        if server == "kafka":
            inputs = [maven.create_dependency(root) for root in roots]
            _, dependencies = maven.resolver.resolve(inputs)
            artifacts += [dependency.artifact for dependency in dependencies]
        servers[server] = []
        for artifact in artifacts:
            content = Path(artifact.resolve()).read_bytes()
            parts = [artifact.groupId, artifact.artifactId, artifact.version]
            if artifact.classifier or artifact.packaging != "jar":
                parts += [artifact.classifier, artifact.packaging]
            row = Archive(":".join(parts), len(content), hashlib.sha256(content).hexdigest())
            servers[server].append({"coordinate": row.coordinate, "size_bytes": row.size_bytes, "sha256": row.sha256})
    LIST.write_text(json.dumps(servers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_list()
