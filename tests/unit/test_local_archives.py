"""Java archives: pinned, fetched once, checked, offline afterwards."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from pipeline.errors import ConfigurationError
from pipeline.local import archives
from pipeline.local.archives import Archive

CONTENT = b"java classes"
PINNED = Archive("org.example:thing:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Repository:
    """Stands for a Maven repository: each download takes the next answer, bytes or an error."""

    def __init__(self, directory: Path, *answers: bytes | Exception) -> None:
        self.file = directory / "thing-1.0.jar"
        self.answers = list(answers)

    @property
    def cached_path(self) -> Path:
        return self.file

    def resolve(self) -> Path:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.file.write_bytes(answer)
        return self.file


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """Build a repository that serves the given answers."""

    def build(*answers: bytes | Exception) -> Repository:
        served = Repository(tmp_path, *answers)
        monkeypatch.setattr(archives, "_maven", lambda: SimpleNamespace(repo_cache=tmp_path))
        monkeypatch.setattr(archives, "_artifact", lambda maven, coordinate: served)
        monkeypatch.setattr(archives.time, "sleep", lambda seconds: None)
        return served

    return build


def test_an_archive_that_is_here_needs_no_network(repository):
    """After the first start the local stack works in a train."""
    served = repository()
    served.file.write_bytes(CONTENT)
    assert [served.file] == archives.fetch([PINNED])


def test_a_download_that_broke_off_is_repeated(repository):
    """A killed first start leaves half a file under the final name."""
    served = repository(CONTENT)
    served.file.write_bytes(CONTENT[:5])
    assert CONTENT == archives.fetch([PINNED])[0].read_bytes()


def test_a_download_is_tried_three_times(repository):
    """One lost connection among 46 downloads must not end a first start."""
    served = repository(requests.ConnectionError("reset"), RuntimeError("not found"), CONTENT)
    assert [served.file] == archives.fetch([PINNED])


def test_without_network_the_message_says_what_to_do(repository):
    """The first thing a stranger may see: it must not be a trace of requests."""
    repository(*[requests.ConnectionError("no route to host")] * 3)
    with pytest.raises(ConfigurationError, match=r"org\.example:thing:1\.0: no route to host; .*broker\.bootstrap"):
        archives.fetch([PINNED])


def test_another_archive_than_the_pinned_one_is_refused_and_removed(repository):
    """What a repository serves is run on the user's machine: only the pinned bytes are."""
    served = repository(*[b"java_classes"] * 3)
    with pytest.raises(ConfigurationError, match=f"{PINNED.sha256} is pinned"):
        archives.fetch([PINNED])
    assert not served.file.exists()


def test_a_full_disk_is_a_plain_message(repository, tmp_path):
    """45 MB may be too much; the operator learns where."""
    repository(OSError(28, "No space left on device"))
    with pytest.raises(ConfigurationError, match=f"{tmp_path}: .*No space left on device"):
        archives.fetch([PINNED])


def test_an_archive_is_unpacked_once(repository, monkeypatch, tmp_path):
    """The registry is 170 MB unpacked; a start must not do it again, nor see half of it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        entry = tarfile.TarInfo("lib/main.jar")
        entry.size = len(CONTENT)
        tar.addfile(entry, io.BytesIO(CONTENT))
    content = gzip.compress(packed.getvalue(), mtime=0)
    pinned = Archive("org.example:app:1.0:all:tar.gz", len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(archives, "listed", lambda server: [pinned])
    monkeypatch.setattr(archives, "_settings", lambda: SimpleNamespace(cache_dir=tmp_path / "cache"))
    repository(content)
    directory = archives.unpacked("registry")
    assert CONTENT == (directory / "lib" / "main.jar").read_bytes()
    repository()
    assert directory == archives.unpacked("registry")
    assert [directory] == [path for path in directory.parent.iterdir() if path.is_dir()]


@pytest.mark.parametrize("server", sorted(archives.ROOTS))
def test_the_list_pins_every_root_by_a_whole_digest(server):
    """A root that is not in the list was bumped without writing the list anew."""
    listed = archives.listed(server)
    assert set(archives.ROOTS[server]) <= {archive.coordinate for archive in listed}
    assert all(re.fullmatch("[0-9a-f]{64}", archive.sha256) for archive in listed)
    assert len(listed) == len({archive.coordinate for archive in listed})
