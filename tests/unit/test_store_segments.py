from __future__ import annotations

import errno
import hashlib
import json
import os

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.errors import ConfigurationError, InputError
from pipeline.store.segments import MANIFEST, TABLES, TEMPORARY, Place, StoreStage, line_of
from pipeline.topics import DOCUMENTS, SEGMENTS
from tests.fakes import FakeRecord, MemoryView

MARK = "c1a57e00"
NOW_S = 1_700_000_000.5
CODECS = load_codec()
DOCUMENT = {
    "id": b"\x01\x02",
    "crawl": "c",
    "url": "http://site.test/",
    "domain": "site.test",
    "source": "",
    "depth": 0,
    "title": "Grüße",
    "text": "…",
    "language": None,
    "authors": [],
    "published": None,
    "published_evidence": None,
    "modified": None,
    "canonical": None,
    "encoding": "utf-8",
    "content_hash": b"\xff",
    "links": 0,
    "redirects": [],
    "submitted_at_ms": 1_700_000_000_001,
    "fetched_at_ms": 1_700_000_000_002,
    "parsed_at_ms": 1_700_000_000_003,
}


def record(offset, title):
    """Make a record of the documents topic."""
    value = CODECS.encode(DOCUMENTS.subject, {**DOCUMENT, "title": title})
    return FakeRecord(DOCUMENTS.name, value, partition=3, offset=offset)


class Store:
    """One partition's store over its restarts: the view and the directory outlive the object."""

    def __init__(self, directory, documents=1_000, mark=MARK):
        self.directory = directory
        self.view = MemoryView(TABLES)
        self.stage = StoreStage(
            Place(directory, documents, mark),
            decode=CODECS.decoder(DOCUMENTS.subject),
            encode_segment=CODECS.encoder(SEGMENTS.subject),
            decode_segment=CODECS.decoder(SEGMENTS.subject),
        )

    def open(self):
        return self.stage.open(3, self.view, NOW_S)

    def prepare(self, partition, offsets, end):
        """Do a round up to its transaction."""
        for offset in offsets:
            partition.handle(record(offset, f"title {offset}"), NOW_S)
        partition.before_commit({DOCUMENTS.name: (offsets[0], end)}, NOW_S)

    @property
    def visible(self):
        return sorted(path.name for path in self.directory.glob("*.jsonl"))

    @property
    def temporary(self):
        return sorted(path.name for path in (self.directory / TEMPORARY).iterdir())

    def titles(self):
        lines = [line for name in self.visible for line in (self.directory / name).read_bytes().splitlines()]
        return [json.loads(line)["title"] for line in lines]


@pytest.fixture
def store(tmp_path):
    """A store with the usual file size."""
    return Store(tmp_path / "out")


def name_of(first, end):
    """Name the file that covers offsets."""
    return f"documents-{MARK}-0003-{first:020d}-{end:020d}.jsonl"


def test_a_line_is_json_with_bytes_as_hex_and_times_for_people_and_programs():
    """The files are read by people and by programs that know no Avro."""
    row = json.loads(line_of(DOCUMENT))
    assert ("0102", "ff", "Grüße") == (row["id"], row["content_hash"], row["title"])
    assert 1_700_000_000_001 == row["submitted_at_ms"]
    assert "2023-11-14T22:13:20.001+00:00" == row["submitted_at"]
    assert b"\n" == line_of(DOCUMENT)[-1:]
    assert 1 == line_of(DOCUMENT | {"text": "a\nb\u2028c"}).count(b"\n")


def test_a_file_shows_only_after_the_commit(store):
    """A reader must never see a document whose transaction may still be undone."""
    partition = store.open()
    store.prepare(partition, [10, 11, 14], 16)
    assert [] == store.visible
    store.view.commit()
    partition.committed()
    assert [name_of(10, 16)] == store.visible
    assert ["title 10", "title 11", "title 14"] == store.titles()
    assert [] == store.temporary


def test_the_manifest_tells_what_is_in_a_file(store):
    """A copy of the files can be proven whole with nothing but the manifest topic."""
    partition = store.open()
    store.prepare(partition, [10, 11], 12)
    store.view.commit()
    partition.committed()
    row = CODECS.decode(SEGMENTS.subject, store.view.rows(MANIFEST)[name_of(10, 12).encode()])
    content = (store.directory / name_of(10, 12)).read_bytes()
    assert hashlib.sha256(content).digest() == row["sha256"]
    assert (3, 10, 12, 2) == (row["partition"], row["first_offset"], row["end_offset"], row["documents"])
    assert (len(content), int(NOW_S * 1000)) == (row["bytes"], row["written_at_ms"])


def test_a_round_that_is_undone_leaves_nothing_and_can_be_repeated(store):
    """An abort is followed by the same records: a leftover would be a second copy of them."""
    partition = store.open()
    store.prepare(partition, [1, 2], 3)
    partition.aborted()
    store.view.abort()
    assert ([], []) == (store.visible, store.temporary)
    partition = store.open()
    store.prepare(partition, [1, 2], 3)
    store.view.commit()
    partition.committed()
    assert ["title 1", "title 2"] == store.titles()


def test_a_restart_finishes_what_was_committed(store):
    """A kill between the commit and the renaming must not hide a document for ever: its offset is behind us."""
    store.prepare(store.open(), [1, 2], 3)
    store.view.commit()
    store.open()
    assert (["title 1", "title 2"], []) == (store.titles(), store.temporary)


def test_a_restart_removes_what_was_not_committed(store):
    """A kill before the commit: the records come again, under the same name or another."""
    store.prepare(store.open(), [1, 2], 3)
    store.view.abort()
    store.open()
    assert ([], []) == (store.visible, store.temporary)


def test_the_files_of_another_cluster_are_left_alone(store):
    """Each crawl on a broker of its own begins at offset 0; two of them may write to the same place."""
    other = Store(store.directory, mark="0a0b0c0d")
    for each in (store, other):
        partition = each.open()
        each.prepare(partition, [1, 2], 3)
        each.view.commit()
        partition.committed()
        store.open()
    assert 4 == len(store.titles())


def test_a_file_with_other_documents_is_never_replaced(store):
    """A topic that was made anew repeats its offsets; what is there already must not vanish."""
    partition = store.open()
    store.directory.mkdir(exist_ok=True)
    (store.directory / name_of(1, 3)).write_text("other\n")
    store.prepare(partition, [1, 2], 3)
    store.view.commit()
    with pytest.raises(ConfigurationError, match="other documents"):
        partition.committed()
    assert "other\n" == (store.directory / name_of(1, 3)).read_text()


def test_the_files_of_other_partitions_are_left_alone(store):
    """Workers share a directory; an open must not remove what a neighbour is writing."""
    store.open()
    foreign = store.directory / TEMPORARY / f"documents-{MARK}-0004-x.jsonl.abcd"
    foreign.touch()
    store.open()
    assert [foreign.name] == store.temporary


def test_a_worker_that_lost_the_partition_cannot_take_its_successors_file_away(store):
    """Continued after its successor has committed the same range, it undoes its own round only."""
    lost = store.open()
    store.prepare(lost, [1, 2], 3)
    store.view.abort()
    successor = store.open()
    store.prepare(successor, [1, 2], 3)
    store.view.commit()
    lost.aborted()
    successor.committed()
    assert ["title 1", "title 2"] == store.titles()


def test_half_a_file_of_a_worker_that_lost_the_partition_is_never_made_visible(store):
    """It has the name of a committed file and not its content; the hash in the manifest tells them apart."""
    store.prepare(store.open(), [1, 2], 3)
    store.view.commit()
    half = store.directory / TEMPORARY / f"{name_of(1, 3)}.00zombie"
    half.write_bytes(b'{"title": "title 1"}\n')
    store.open()
    assert (["title 1", "title 2"], []) == (store.titles(), store.temporary)


def test_a_file_that_the_next_owner_has_made_visible_is_no_error(store):
    """Stopped between commit and renaming; the next owner rolled forward meanwhile."""
    slow = store.open()
    store.prepare(slow, [1, 2], 3)
    store.view.commit()
    store.open()
    slow.committed()
    assert ["title 1", "title 2"] == store.titles()


def test_a_large_round_makes_several_files(tmp_path):
    """Files stay of a size that people can open; together they cover the round's offsets without a gap."""
    store = Store(tmp_path, documents=2)
    partition = store.open()
    store.prepare(partition, [10, 11, 20, 21, 30], 33)
    store.view.commit()
    partition.committed()
    assert [name_of(10, 20), name_of(20, 30), name_of(30, 33)] == store.visible
    assert [f"title {offset}" for offset in (10, 11, 20, 21, 30)] == store.titles()


def test_a_round_of_dead_letters_makes_no_file(store):
    """Empty files would say nothing and be many."""
    partition = store.open()
    partition.before_commit({DOCUMENTS.name: (1, 5)}, NOW_S)
    partition.committed()
    assert ([], []) == (store.visible, store.temporary)


def test_an_undecodable_document_is_the_senders_and_leaves_no_trace(store):
    """The round goes on with its other records."""
    partition = store.open()
    with pytest.raises(InputError) as refused:
        partition.handle(FakeRecord(DOCUMENTS.name, b"junk", offset=1), NOW_S)
    assert "undecodable" == refused.value.reason
    store.prepare(partition, [2], 3)
    store.view.commit()
    partition.committed()
    assert ["title 2"] == store.titles()


@pytest.mark.parametrize("moment_ms", [253_402_300_800_000, -(2**63), 2**63 - 1])
def test_a_document_with_a_time_that_is_none_is_the_senders(store, moment_ms):
    """It can't be written for people; its place and the field are named, as of any record that makes no sense."""
    value = CODECS.encode(DOCUMENTS.subject, {**DOCUMENT, "fetched_at_ms": moment_ms})
    with pytest.raises(InputError) as caught:
        store.open().handle(FakeRecord(DOCUMENTS.name, value, partition=3), NOW_S)
    assert ("schema_rejected", "fetched_at_ms") == (caught.value.reason, caught.value.field)


def test_nothing_is_ever_due(store):
    """Rounds close files; a timer would commit empty ones."""
    partition = store.open()
    assert None is partition.due()
    assert [] == partition.tick(NOW_S)


def test_a_full_disk_is_named_with_the_directory_and_nothing_is_committed(store, monkeypatch):
    """The operator must know where to make room; the records stay uncommitted."""
    partition = store.open()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ConfigurationError, match=r"store\.directory .*out: No space left on device"):
            store.prepare(partition, [1], 2)
    assert {} == store.view.rows(MANIFEST)
    store.open()
    assert ([], []) == (store.visible, store.temporary)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    """A slip in the configuration, found at the start and not at the first document."""
    (tmp_path / "out").touch()
    with pytest.raises(ConfigurationError, match=rf"store\.directory {tmp_path}/out"):
        Store(tmp_path / "out").open()


def test_a_file_that_cannot_be_made_visible_is_named_and_kept(store):
    """It is committed: whoever opens the partition after the repair makes it visible."""
    partition = store.open()
    store.prepare(partition, [1], 2)
    store.view.commit()
    blocker = store.directory / name_of(1, 2)
    blocker.mkdir()
    with pytest.raises(ConfigurationError, match=r"store\.directory"):
        partition.committed()
    blocker.rmdir()
    store.open()
    assert ["title 1"] == store.titles()
