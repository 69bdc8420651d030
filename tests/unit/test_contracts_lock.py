from __future__ import annotations

import json
import shutil

import pytest

from pipeline.contracts import load_codec
from pipeline.contracts.lock import BUILT_IN, Lock, LockedSubject, differences, read_lock, with_new_ids, write_lock
from pipeline.contracts.schemas import DIRECTORY, read_schemas
from pipeline.errors import ConfigurationError
from pipeline.topics import TABLE

TASKS = "crawl.tasks.v1-value"


@pytest.fixture
def lock_file(tmp_path):
    """A copy of the built-in lock."""
    return shutil.copy(BUILT_IN, tmp_path / "registry.lock.json")


@pytest.fixture
def avro(tmp_path):
    """A copy of the schemas."""
    return shutil.copytree(DIRECTORY.resolve(), tmp_path / "avro")


def edit(file, change):
    """Change the JSON of a file in place."""
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def test_the_built_in_lock_serves_every_topic():
    """No file and no registry is needed for the local stack."""
    codecs = load_codec()

    for topic in TABLE:
        codecs.encoder(topic.subject)
        codecs.decoder(topic.subject)


def test_a_lock_is_read_as_it_was_written(tmp_path):
    """The file is all that goes from the registry to the workers."""
    lock = read_lock()
    write_lock(tmp_path / "lock.json", lock)

    assert lock == read_lock(tmp_path / "lock.json")
    assert BUILT_IN.read_bytes() == (tmp_path / "lock.json").read_bytes()


def test_a_lock_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    """A worker that starts in that moment must find a whole lock."""
    file = tmp_path / "lock.json"
    write_lock(file, read_lock())
    before = file.read_bytes()

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_lock(file, Lock("other", {}))

    assert before == file.read_bytes()
    assert [file] == list(tmp_path.iterdir())


def test_a_changed_schema_is_refused_at_start(avro, lock_file):
    """The worker would write bytes that the id on them doesn't describe, and every reader would misread them."""
    edit(avro / TASKS / "v1.avsc", lambda schema: schema["fields"][2].update(type="long"))

    with pytest.raises(ConfigurationError, match=f"{TASKS} v1 is another schema") as caught:
        load_codec(lock_file, avro)
    assert "headrace schemas register" in str(caught.value)


def test_a_version_without_an_id_is_refused_at_start(avro, lock_file):
    """A worker newer than its lock has no id to write."""
    shutil.copy(avro / TASKS / "v1.avsc", avro / TASKS / "v2.avsc")

    with pytest.raises(ConfigurationError, match=f"{TASKS} v2 has no id"):
        load_codec(lock_file, avro)


def test_a_locked_version_without_a_schema_is_refused_at_start(avro, lock_file):
    """A worker older than its lock can't read what the others write: better it never starts."""
    edit(lock_file, lambda tree: tree["subjects"][TASKS]["versions"].update({"2": {"id": 99, "sha256": "0"}}))

    with pytest.raises(ConfigurationError, match=f"{TASKS} v2 is in the lock"):
        load_codec(lock_file, avro)


def test_a_change_of_docs_needs_no_other_id(avro, lock_file):
    """The bytes are the same."""
    edit(avro / TASKS / "v1.avsc", lambda schema: schema.update(doc="Other words."))

    load_codec(lock_file, avro)


def test_a_missing_lock_says_what_writes_it(tmp_path):
    """The operator has named a file that the deployment forgot."""
    with pytest.raises(ConfigurationError, match=r"No such file.*headrace schemas register"):
        load_codec(tmp_path / "none.json")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"registry": "x", "subjects": []}', '{"registry": "x", "subjects": {"a": 1}}', "\ufffe"],
)
def test_a_damaged_lock_is_refused(tmp_path, text):
    """Half a lock must not become a worker with half its schemas."""
    file = tmp_path / "lock.json"
    file.write_text(text, encoding="utf-16" if text == "\ufffe" else "utf-8")

    with pytest.raises(ConfigurationError, match="not a lock file"):
        read_lock(file)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda subject: subject.update(writes=7), "writes version 7"),
        (lambda subject: subject["versions"]["1"].update(id=-1), "is no id"),
        (lambda subject: subject["versions"]["1"].update(id=2**32), "is no id"),
        (lambda subject: subject["versions"].update({"2": subject["versions"]["1"]}), "stands for"),
    ],
)
def test_a_lock_that_contradicts_itself_is_refused(lock_file, change, said):
    """An id with two schemas would decode to whichever came last."""
    edit(lock_file, lambda tree: change(tree["subjects"][TASKS]))

    with pytest.raises(ConfigurationError, match=said):
        read_lock(lock_file)


def test_new_versions_get_the_next_ids_and_old_ones_keep_theirs(avro):
    """Records with the old ids lie in people's local topics."""
    before = read_lock()
    shutil.copy(avro / TASKS / "v1.avsc", avro / TASKS / "v2.avsc")
    schemas = read_schemas(avro)

    after = with_new_ids(before, schemas)

    highest = max(one.id for subject in before.subjects.values() for one in subject.versions.values())
    assert highest + 1 == after.subjects[TASKS].versions[2].id
    assert before.subjects[TASKS].versions[1] == after.subjects[TASKS].versions[1]
    assert 2 == after.subjects[TASKS].writes
    assert [] == differences(after, schemas)


def test_differences_name_each_version():
    """One line each, so that a diff can be read."""
    schemas = read_schemas()
    lock = Lock("x", {TASKS: LockedSubject(1, read_lock().subjects[TASKS].versions)})

    assert len(schemas) - 1 == len(differences(lock, schemas))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not an Avro schema"),
        ('"string"', "must be a record"),
        ('{"type": "record", "name": "A", "fields": [{"name": "b", "type": "nothing"}]}', "not an Avro schema"),
        ('{"type": "record", "name": "A"}', "must be a record with fields"),
    ],
)
def test_a_file_that_is_no_record_schema_is_named(tmp_path, text, said):
    """Whoever wrote it must find it."""
    (tmp_path / "a-value").mkdir()
    (tmp_path / "a-value" / "v1.avsc").write_text(text)

    with pytest.raises(ConfigurationError, match=rf"v1\.avsc: .*{said}"):
        read_schemas(tmp_path)


def test_versions_have_no_gap(avro):
    """A missing file is a mistake, not a version that never was."""
    (avro / TASKS / "v1.avsc").rename(avro / TASKS / "v2.avsc")

    with pytest.raises(ConfigurationError, match="without a gap"):
        read_schemas(avro)


def test_a_folder_without_schemas_is_refused(tmp_path):
    """An installation without its data must not start as one without contracts."""
    with pytest.raises(ConfigurationError, match="no schemas"):
        read_schemas(tmp_path)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_schemas(tmp_path / "none")


def test_the_ids_of_the_built_in_lock_are_those_that_an_empty_registry_gives():
    """The local registry is filled in the order of ids and counts from 1: a gap would make `headrace up` refuse it."""
    subjects = read_lock().subjects.values()
    ids = sorted(version.id for subject in subjects for version in subject.versions.values())
    assert list(range(1, len(ids) + 1)) == ids
