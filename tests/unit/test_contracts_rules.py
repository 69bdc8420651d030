from __future__ import annotations

import json
import shutil

import pytest

from pipeline.contracts.compatibility import unreadable
from pipeline.contracts.golden import read_golden, write_missing_bodies
from pipeline.contracts.lock import Lock, read_lock, with_new_ids
from pipeline.contracts.released import read_released, release
from pipeline.contracts.rules import check_contracts
from pipeline.contracts.schema_rules import check_document
from pipeline.contracts.schemas import DIRECTORY, read_schemas
from pipeline.errors import ConfigurationError
from pipeline.topics import TABLE

SUBJECTS = {topic.subject for topic in TABLE}
LINKS = "crawl.links.v1-value"


@pytest.fixture
def avro(tmp_path):
    """A copy of the contracts."""
    return shutil.copytree(DIRECTORY.resolve(), tmp_path / "avro")


def edit(file, change):
    """Change the JSON of a file in place."""
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def field_of(schema, name):
    """The field of a name."""
    return next(field for field in schema["fields"] if field["name"] == name)


def add_version(avro, change):
    """Add a second version of the link records, made from the first, with a golden record."""
    folder = avro / LINKS
    shutil.copy(folder / "v1.avsc", folder / "v2.avsc")
    edit(folder / "v2.avsc", change)
    shutil.copy(folder / "golden" / "v1-empty.json", folder / "golden" / "v2-empty.json")


def findings(avro):
    """What is broken, as text, with an id for each version."""
    lock = with_new_ids(read_lock(), read_schemas(avro))
    return [str(finding) for finding in check_contracts(avro, lock, SUBJECTS)]


def test_the_contracts_keep_their_rules():
    """The shipped folder, with the shipped lock."""
    assert [] == check_contracts(DIRECTORY, read_lock(), SUBJECTS)


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["fields"].pop(),
        lambda schema: schema["fields"].append({"name": "later", "type": "int", "default": 0, "doc": "Later."}),
        lambda schema: schema["fields"][2].update(default=7),
        lambda schema: schema.update(doc="Other words."),
    ],
    ids=["field removed", "field added", "default", "doc"],
)
def test_a_released_schema_never_changes(avro, change):
    """Not even compatibly: the file must say what the bytes in the topics were written with."""
    edit(avro / LINKS / "v1.avsc", change)

    assert [text for text in findings(avro) if f"{LINKS}/v1.avsc: was released and has changed" in text]


def test_white_space_is_no_change(avro):
    """A formatter may run over the folder."""
    file = avro / LINKS / "v1.avsc"
    file.write_text(json.dumps(json.loads(file.read_text())))

    assert [] == findings(avro)


def test_a_released_schema_never_disappears(avro):
    """Its records are still in the topics."""
    edit(avro / "released.json", lambda released: released[LINKS].update({"2": "0" * 64}))

    assert [text for text in findings(avro) if f"{LINKS}/v2.avsc: was released and is gone" in text]


def test_a_compatible_new_version_passes(avro):
    """The rules leave a way to change things."""
    add_version(avro, lambda schema: schema["fields"].append({"name": "n", "type": "int", "default": 5, "doc": "N."}))
    write_missing_bodies_of_links_with(avro, n=5)

    assert [] == findings(avro)


def write_missing_bodies_of_links_with(avro, **values):
    """Give the second version's golden record its new values and its bytes."""
    edit(avro / LINKS / "golden" / "v2-empty.json", lambda record: record.update(values))
    write_missing_bodies(read_golden(avro / LINKS), read_schemas(avro)[LINKS])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda schema: schema["fields"].append({"name": "n", "type": "int", "doc": "N."}),
            "v2 can't read what v1 wrote: field n: is not in the data and has no default",
        ),
        (
            lambda schema: schema["fields"].pop(),
            "v1 can't read what v2 wrote: field urls: is not in the data and has no default",
        ),
        (
            lambda schema: field_of(schema, "depth").update(type="long"),
            "v1 can't read what v2 wrote: field depth: long can't be read as int",
        ),
        (
            lambda schema: field_of(schema, "urls").update(type={"type": "array", "items": ["null", "string"]}),
            "v1 can't read what v2 wrote: field urls[]: null can't be read as string",
        ),
    ],
    ids=["later field without default", "field removed", "type widened", "made nullable"],
)
def test_a_version_that_another_one_can_t_read_is_refused(avro, change, said):
    """FULL_TRANSITIVE: readers and writers of all versions meet during a deployment and in every replay."""
    add_version(avro, change)

    assert [text for text in findings(avro) if f"{LINKS}/v2.avsc: {said}" in text]


def test_every_pair_of_versions_is_compared(avro):
    """A default lost in the third version breaks readers of the first, though its neighbour looks fine."""
    later = {"name": "n", "type": "int", "default": 5, "doc": "N."}
    add_version(avro, lambda schema: schema["fields"].append(later))
    shutil.copy(avro / LINKS / "v2.avsc", avro / LINKS / "v3.avsc")
    edit(avro / LINKS / "v3.avsc", lambda schema: schema["fields"][-1].pop("default"))

    assert [text for text in findings(avro) if "v3 can't read what v1 wrote: field n" in text]


def test_golden_bytes_that_decode_to_other_values_are_found(avro):
    """The one proof that old records still mean what they meant."""
    body = avro / LINKS / "golden" / "v1-ordinary.bin"
    body.write_bytes(body.read_bytes().replace(b"other.test", b"third.test"))

    assert [text for text in findings(avro) if "v1-ordinary.json" in text and "field urls[] is" in text]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda body: body[:-1], "can't decode it"),
        (lambda body: body + b"\x00", "leaves 1 bytes unread"),
    ],
    ids=["short", "long"],
)
def test_golden_bytes_that_are_no_record_are_found(avro, damage, said):
    """A damaged file must not pass for a reader that copes."""
    body = avro / LINKS / "golden" / "v1-ordinary.bin"
    body.write_bytes(damage(body.read_bytes()))

    assert [text for text in findings(avro) if "v1-ordinary.json" in text and said in text]


def test_old_golden_bytes_are_read_by_every_later_version(avro):
    """A default swapped for another type of the same name decodes without an error, to something else."""
    add_version(avro, lambda schema: field_of(schema, "psl_version").update(type="bytes"))

    assert [text for text in findings(avro) if "decoded by v2, field psl_version is b''" in text]


def test_a_version_without_golden_bytes_is_found(avro):
    """Nothing would tell when it is misread."""
    add_version(avro, lambda _: None)
    (avro / LINKS / "golden" / "v2-empty.json").unlink()

    assert [text for text in findings(avro) if f"{LINKS}/v2.avsc: has no golden record" in text]


def test_golden_values_without_bytes_are_found(avro):
    """Half of a golden record proves nothing."""
    (avro / LINKS / "golden" / "v1-empty.bin").unlink()

    assert [text for text in findings(avro) if "has no v1-empty.bin" in text]


def test_golden_bytes_are_never_written_again(avro):
    """They are what some release wrote, not what this one would."""
    body = avro / LINKS / "golden" / "v1-ordinary.bin"
    body.write_bytes(b"from long ago")

    assert [] == write_missing_bodies(read_golden(avro / LINKS), read_schemas(avro)[LINKS])
    assert b"from long ago" == body.read_bytes()


def test_golden_values_that_do_not_fit_are_refused(avro):
    """A slip in the JSON must not become the expectation."""
    (avro / LINKS / "golden" / "v1-empty.bin").unlink()
    edit(avro / LINKS / "golden" / "v1-empty.json", lambda record: record.update(depht=1))

    with pytest.raises(ConfigurationError, match=r"v1-empty\.json: doesn't fit v1\.avsc"):
        write_missing_bodies(read_golden(avro / LINKS), read_schemas(avro)[LINKS])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("first.json", "{}", "the name of a golden record"),
        ("v1-x.json", "{", "not a golden record"),
        ("v1-x.json", '{"row": {"$hex": "xy"}}', "not a golden record"),
    ],
)
def test_a_golden_file_that_is_none_is_named(avro, name, text, said):
    """Left aside it would protect nothing."""
    (avro / LINKS / "golden" / name).write_text(text)

    with pytest.raises(ConfigurationError, match=f"{name}: {said}"):
        read_golden(avro / LINKS)


def test_a_subject_without_a_topic_and_a_topic_without_a_subject_are_found(avro):
    """The table of topics and the folder are two halves of one contract."""
    (avro / LINKS).rename(avro / "crawl.lynx.v1-value")
    texts = findings(avro)

    assert [text for text in texts if f"{LINKS}: a topic names this subject" in text]
    assert [text for text in texts if "crawl.lynx.v1-value: no topic names this subject" in text]


def test_a_version_without_an_id_in_the_built_in_lock_is_found(avro):
    """The local stack would not start."""
    texts = [str(finding) for finding in check_contracts(avro, Lock("local", {}), SUBJECTS)]

    assert len(SUBJECTS) == len([text for text in texts if "has no id in the lock" in text])


def test_release_adds_new_versions_and_keeps_old_hashes(avro):
    """What was released once is judged by the hash of that day."""
    edit(avro / "released.json", lambda released: released[LINKS].update({"1": "old"}))
    add_version(avro, lambda _: None)

    assert [f"{LINKS} v2"] == release(avro, read_schemas(avro))
    assert {"old", read_schemas(avro)[LINKS][1].document_sha256} == set(read_released(avro)[LINKS].values())
    assert [] == release(avro, read_schemas(avro))


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_damaged_list_of_released_schemas_is_an_error(avro, text):
    """Without it everything could change unseen."""
    file = avro / "released.json"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)

    with pytest.raises(ConfigurationError, match="restore it"):
        read_released(avro)


def record(**field):
    """A schema with one field that is well but for what is given."""
    return {
        "type": "record",
        "name": "Thing",
        "namespace": "crawl.v1",
        "doc": "A thing.",
        "fields": [{"name": "a", "type": "int", "doc": "An a."} | field],
    }


ENUM = {"type": "enum", "name": "Kind", "symbols": ["UNKNOWN", "HTML"], "default": "UNKNOWN", "doc": "Kinds."}


@pytest.mark.parametrize(
    ("document", "where", "said"),
    [
        (record() | {"namespace": "other.v1"}, "other.v1.Thing", "is in the namespace 'other.v1'"),
        (record(type={"type": "fixed", "name": "b.F", "size": 2, "doc": "F."}), "a", "is in the namespace 'b'"),
        ({**record(), "doc": " "}, "crawl.v1.Thing", "record Thing has no doc"),
        (record(doc=""), "a", "the field has no doc"),
        (record(type=ENUM | {"doc": ""}), "a", "enum Kind has no doc"),
        (record(type=ENUM | {"symbols": ["HTML", "UNKNOWN"]}), "a", "enum Kind can't grow"),
        (record(type=ENUM | {"default": "HTML"}), "a", "enum Kind can't grow"),
        (record(type={"type": "array", "items": ENUM | {"symbols": ["UNKNOWN"], "doc": ""}}), "a[]", "has no doc"),
        (record(type={"type": "map", "values": record(doc="") | {"name": "Inner"}}), "a{}.a", "the field has no doc"),
        (record(name="a-b"), "a-b", "is no Avro name"),
        (record(type=["null", "null"]), "a", "a union with 2 branches of null"),
        (record(type=["null", ["int"]]), "a", "a union with 1 branches of union"),
        (record(type=["null", "Thing"]), "a", "a type inside itself"),
        (record(type={"type": "array", "items": "null"}), "a", "items without bytes"),
        (record(type={"type": "long", "logicalType": "timestamp-millis"}), "a", "a logical type"),
        (record(type=["null", "int"], default=0), "a", "default 0 is no value"),
        (record(type={"type": "array", "items": "int"}, default=[1, "2"]), "a", "default [1, '2'] is no value"),
        (record(type={"type": "map", "values": "int"}, default={"b": None}), "a", "is no value"),
        (record(type={"type": "fixed", "name": "F", "size": 2, "doc": "F."}, default="abc"), "a", "is no value"),
        (record(type=ENUM, default="PDF"), "a", "default 'PDF' is no value"),
        (record(default=2**31), "a", "default 2147483648 is no value"),
        (record(type="double", default="1"), "a", "is no value"),
        (record(type={"type": "array", "items": "boolean"}, default=[0]), "a", "is no value"),
    ],
)
def test_a_schema_that_breaks_a_rule_is_told_where_and_what(document, where, said):
    """Each rule keeps a fault from showing up later, in a consumer of another language or in damaged bytes."""
    assert [one for one in check_document(document) if where == one.where and said in one.message]


def test_two_fields_of_one_name_are_found():
    """A parser may take the last one in silence."""
    document = record()
    document["fields"] *= 2

    assert "two fields of this name: keep one" in {one.message for one in check_document(document)}


@pytest.mark.parametrize(
    "field",
    [
        {"type": ["null", "int"], "default": None},
        {"type": ["int", "null"], "default": 3},
        {"type": ENUM, "default": "HTML"},
        {"type": {"type": "array", "items": "string"}, "default": []},
        {"type": {"type": "map", "values": "long"}, "default": {"a": 2**40}},
        {"type": "bytes", "default": "\u00ff"},
        {"type": {"type": "fixed", "name": "F", "size": 1, "doc": "F."}, "default": "\u00ff"},
        {"type": record(name="b", default=1) | {"name": "Inner"}, "default": {}},
        {"type": "double", "default": 1},
        {"type": "boolean", "default": True},
    ],
)
def test_a_sound_field_breaks_no_rule(field):
    """Every kind of default that the specification has."""
    assert [] == check_document(record(**field))


def test_a_recursive_schema_is_compared_without_end():
    """The reader's check must end on what the rules forbid, too."""
    document = record(type=["null", "Thing"], default=None)

    assert [] == unreadable(document, document)


def test_the_nearest_branch_of_a_union_says_why():
    """'No branch fits' would leave the search to the reader of the message."""
    inner = record() | {"name": "Inner"}
    older = record(type=["null", inner])
    newer = record(type=["null", inner | {"fields": [*inner["fields"], {"name": "b", "type": "int"}]}])

    assert ["field a.b: is not in the data and has no default"] == unreadable(newer, older)
