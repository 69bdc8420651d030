from __future__ import annotations

import json
import shutil

import pytest

from pipeline import cli
from pipeline.cli import schemas
from pipeline.contracts.lock import BUILT_IN, read_lock
from pipeline.contracts.released import read_released
from pipeline.contracts.schemas import DIRECTORY

LINKS = "crawl.links.v1-value"
CLOSED = "http://127.0.0.1:1"  # a port that nobody may listen on


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of the contracts, linked as in the repository, in the place of the real ones."""
    copy = shutil.copytree(DIRECTORY.resolve(), tmp_path / "avro")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "avro").symlink_to(copy)
    lock = shutil.copy(BUILT_IN, tmp_path / "package" / BUILT_IN.name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(schemas, "DIRECTORY", tmp_path / "package" / "avro")
    monkeypatch.setattr(schemas, "BUILT_IN", lock)
    monkeypatch.setattr(schemas, "read_lock", lambda path=None: read_lock(path or lock))
    return tmp_path


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call `headrace schemas …` in a directory without configuration; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["headrace", "schemas", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return ended.value.code or 0, shown.out, shown.err

    return call


def edit(file, change):
    """Change the JSON of a file in place."""
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def add_second_version(checkout):
    """Add a sound v2 of the link records with golden values."""
    folder = checkout / "avro" / LINKS
    shutil.copy(folder / "v1.avsc", folder / "v2.avsc")
    later = {"name": "nofollow", "type": "boolean", "default": False, "doc": "Whether the page says nofollow."}
    edit(folder / "v2.avsc", lambda schema: schema["fields"].append(later))
    shutil.copy(folder / "golden" / "v1-empty.json", folder / "golden" / "v2-empty.json")
    edit(folder / "golden" / "v2-empty.json", lambda record: record.update(nofollow=True))


def test_check_passes_without_a_registry(run):
    """It runs in every build."""
    status, out, err = run("check")

    assert (0, "") == (status, err)
    assert "15 schemas of 15 subjects: all rules hold\n" == out


def test_check_names_file_field_and_remedy(checkout, run):
    """Each broken rule is a line that says where and what to do."""
    edit(checkout / "avro" / LINKS / "v1.avsc", lambda schema: schema["fields"][2].pop("doc"))
    status, out, err = run("check")

    assert (2, "") == (status, out)
    assert f"avro/{LINKS}/v1.avsc: depth: the field has no doc: say what it is" in err
    assert f"avro/{LINKS}/v1.avsc: was released and has changed: restore it" in err


def test_check_takes_another_folder(checkout, run):
    """A branch's contracts can be judged from outside."""
    status, _, err = run("check", "--avro", checkout / "avro" / LINKS)

    assert 2 == status
    assert "without a gap" in err


def test_register_asks_for_what_it_misses(run, tmp_path):
    """Neither is guessed: the lock decides what every worker writes."""
    status, _, err = run("register", "--url", CLOSED)
    assert (2, True) == (status, "registry.lock is not set" in err)

    status, _, err = run("register", "--lock", tmp_path / "lock.json")
    assert (2, True) == (status, "registry.url is not set" in err)


def test_register_without_its_registry_writes_nothing(run, tmp_path):
    """A lock exists only of ids that a registry gave."""
    status, _, err = run("register", "--url", CLOSED, "--lock", tmp_path / "lock.json")

    assert (3, True) == (status, CLOSED in err)
    assert not (tmp_path / "lock.json").exists()


def test_register_refuses_contracts_that_break_a_rule(checkout, run):
    """What stands in a registry can't be taken back: it is judged before the first call."""
    edit(checkout / "avro" / LINKS / "v1.avsc", lambda schema: schema["fields"].pop())
    status, _, err = run("register", "--url", CLOSED, "--lock", checkout / "lock.json")

    assert (2, True) == (status, "was released and has changed" in err)


def test_settings_come_from_the_configuration(run, tmp_path):
    """A deployment names registry and lock once."""
    (tmp_path / "headrace.toml").write_text(f'[registry]\nurl = "{CLOSED}"\nlock = "{tmp_path}/lock.json"\n')
    shutil.copy(BUILT_IN, tmp_path / "lock.json")

    assert 3 == run("diff")[0]
    assert 3 == run("register")[0]


def test_diff_without_a_registry_compares_the_lock(run, tmp_path):
    """The check of a deployment's files, at any desk."""
    assert (0, "schemas and lock agree\n", "") == run("diff")

    lock = shutil.copy(BUILT_IN, tmp_path / "lock.json")
    edit(lock, lambda tree: tree["subjects"].pop(LINKS))

    assert (1, f"{LINKS} v1 has no id in the lock\n", "") == run("diff", "--lock", lock)


def test_release_freezes_a_new_version(checkout, run):
    """Golden bytes, an id of the local stack, a hash on the list: from then on `check` refuses every change."""
    before = read_lock(checkout / "package" / BUILT_IN.name)
    add_second_version(checkout)
    status, out, err = run("release")
    assert (0, "") == (status, err)
    assert [f"encoded avro/{LINKS}/golden/v2-empty.bin", f"released {LINKS} v2"] == out.splitlines()

    lock = read_lock(checkout / "package" / BUILT_IN.name)
    last = max(version.id for subject in before.subjects.values() for version in subject.versions.values())
    assert (2, last + 1) == (lock.subjects[LINKS].writes, lock.subjects[LINKS].versions[2].id)
    assert {1, 2} == set(read_released(checkout / "avro")[LINKS])
    assert 0 == run("check")[0]
    assert (0, "", "") == run("release")

    edit(checkout / "avro" / LINKS / "v2.avsc", lambda schema: schema["fields"][-1].update(default=True))
    assert 2 == run("check")[0]


def test_release_refuses_a_version_that_breaks_a_rule(checkout, run):
    """Once on the list it could never be mended."""
    add_second_version(checkout)
    edit(checkout / "avro" / LINKS / "v2.avsc", lambda schema: schema["fields"][-1].pop("default"))
    before = (checkout / "avro" / "released.json").read_bytes()
    status, _, err = run("release")

    assert (2, True) == (status, "field nofollow: is not in the data and has no default" in err)
    assert before == (checkout / "avro" / "released.json").read_bytes()
    assert 1 == read_lock(checkout / "package" / BUILT_IN.name).subjects[LINKS].writes
    assert not (checkout / "avro" / LINKS / "golden" / "v2-empty.bin").exists()


def test_release_needs_a_checkout(checkout, run, monkeypatch):
    """An installed package would change alone and tell nobody."""
    monkeypatch.setattr(schemas, "DIRECTORY", checkout / "avro")
    status, _, err = run("release")

    assert (2, True) == (status, "in a checkout" in err)
