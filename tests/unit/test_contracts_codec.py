from __future__ import annotations

import io
import json
import subprocess
import sys

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contracts import Codecs, load_codec
from pipeline.contracts.codec import frame
from pipeline.contracts.lock import Lock, LockedSubject, read_lock, with_new_ids
from pipeline.contracts.schemas import read_schemas
from pipeline.errors import BugError, InputError

CODECS = load_codec()
SCHEMAS = read_schemas()
LOCK = read_lock()
TASKS = "crawl.tasks.v1-value"
LINKS = "crawl.links.v1-value"
TASK = {
    "crawl": "c",
    "url": "http://news.test/",
    "priority": 3,
    "depth": 0,
    "source": "",
    "submitted_at_ms": 1_790_000_000_000,
    "not_before_ms": 0,
    "timeout_ms": 0,
    "redirects": ["http://other.test/"],
    "replay": False,
}
PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    "bytes": st.binary(max_size=40),
}


def values(schema, types):
    """Strategy for the values of a parsed schema; `types` are its named types."""
    if isinstance(schema, list):
        return st.one_of([values(branch, types) for branch in schema])
    schema = types.get(schema, schema) if isinstance(schema, str) else schema
    match schema if isinstance(schema, str) else schema["type"]:
        case "array":
            strategy = st.lists(values(schema["items"], types), max_size=4)
        case "map":
            strategy = st.dictionaries(PRIMITIVES["string"], values(schema["values"], types), max_size=4)
        case "enum":
            strategy = st.sampled_from(schema["symbols"])
        case "fixed":
            strategy = st.binary(min_size=schema["size"], max_size=schema["size"])
        case "record":
            fields = {field["name"]: values(field["type"], types) for field in schema["fields"]}
            strategy = st.fixed_dictionaries(fields)
        case primitive:
            strategy = PRIMITIVES[primitive]
    return strategy


def records(subject):
    """Strategy for the records of a subject."""
    types = {}
    return values(fastavro.parse_schema(SCHEMAS[subject][-1].document, named_schemas=types), types)


RECORDS = st.one_of([st.tuples(st.just(subject), records(subject)) for subject in SCHEMAS])


def outcome(subject, value):
    """The reason of the refusal, None where the value is a record. Any other exception is the test's failure."""
    try:
        record = CODECS.decode(subject, value)
    except InputError as error:
        return error.reason
    assert isinstance(record, dict)
    return None


@given(RECORDS)
def test_a_record_comes_back_as_it_went(drawn):
    """What a stage hands over is what the next one gets, whatever the values."""
    subject, record = drawn

    assert record == CODECS.decode(subject, CODECS.encode(subject, record))


def test_the_frame_is_confluent_s():
    """Consumers in other languages read our topics with their own deserializer: 0, big-endian id, plain Avro body."""
    value = CODECS.encode(TASKS, TASK)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMAS[TASKS][-1].document), TASK)

    assert b"\x00" + LOCK.subjects[TASKS].versions[1].id.to_bytes(4, "big") == value[:5]
    assert body.getvalue() == value[5:]


@given(st.sampled_from(sorted(SCHEMAS)), st.binary(max_size=64))
def test_arbitrary_bytes_decode_or_are_an_input_error(subject, value):
    """A topic takes anybody's bytes: whatever they are, they cost one dead letter, never a worker."""
    assert outcome(subject, value) in {None, "undecodable", "schema_rejected"}


@given(st.sampled_from(sorted(SCHEMAS)), st.binary(max_size=200))
def test_arbitrary_bytes_behind_a_right_frame_decode_or_are_undecodable(subject, body):
    """The frame may be right and the rest noise: the decoder itself must hold, with every schema."""
    value = frame(LOCK.subjects[subject].versions[1].id) + body

    assert outcome(subject, value) in {None, "undecodable"}


@given(RECORDS, st.data())
def test_damaged_records_decode_or_are_undecodable(drawn, data):
    """One flipped, lost or added byte in a good record is the likeliest damage, and the hardest to tell."""
    subject, record = drawn
    value = bytearray(CODECS.encode(subject, record))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(5, len(value)))
        cut = data.draw(st.integers(0, 2))
        value[at : at + cut] = data.draw(st.binary(max_size=2))

    assert outcome(subject, bytes(value)) in {None, "undecodable"}


@given(RECORDS, st.data())
def test_a_record_that_is_cut_off_is_undecodable(drawn, data):
    """A short record must not be taken for a whole one with defaults."""
    subject, record = drawn
    value = CODECS.encode(subject, record)

    assert outcome(subject, value[: data.draw(st.integers(0, len(value) - 1))]) == "undecodable"


@pytest.mark.parametrize(
    ("length", "said"),
    [(0, "byte 0 of 0"), (1, "byte 1 of 1: ends inside"), (4, "byte 4 of 4: ends inside"), (5, "byte 5 of 5")],
)
def test_a_value_without_a_body_is_undecodable_and_says_where_it_ends(length, said):
    """The message must say what the bytes were, for the person at the dead letter."""
    with pytest.raises(InputError, match=said) as caught:
        CODECS.decode(TASKS, CODECS.encode(TASKS, TASK)[:length])
    assert "undecodable" == caught.value.reason


def test_an_unframed_value_is_undecodable():
    """Somebody who sends JSON must read what was expected."""
    with pytest.raises(InputError, match="magic byte") as caught:
        CODECS.decode(TASKS, b'{"url": "http://news.test/"}')
    assert "undecodable" == caught.value.reason


def test_a_tombstone_is_undecodable():
    """A null value where a record is due must be a dead letter, not a crash."""
    with pytest.raises(InputError, match="no value") as caught:
        CODECS.decode(TASKS, None)
    assert "undecodable" == caught.value.reason


def test_bytes_after_the_record_are_undecodable():
    """They mean that the bytes were written with another schema than the id says: the values are not to be trusted."""
    with pytest.raises(InputError, match="after the end") as caught:
        CODECS.decode(TASKS, CODECS.encode(TASKS, TASK) + b"\x00")
    assert "undecodable" == caught.value.reason


@pytest.mark.parametrize(("at", "field"), [(5, "crawl"), (8, "url"), (-3, "redirects")])
def test_a_damaged_field_is_named(at, field):
    """The sender looks for one fault in one field, not in a hexdump."""
    value = bytearray(CODECS.encode(TASKS, TASK))
    value[at] = 0xFF  # no UTF-8, and as a length -128 or more than there is

    with pytest.raises(InputError, match=f"^{field}: byte ") as caught:
        CODECS.decode(TASKS, bytes(value))
    assert field == caught.value.field


def test_an_id_that_is_not_in_the_lock_is_a_rejected_schema():
    """Other than damage: the record may be good and this worker too old, so the reason is one of its own."""
    with pytest.raises(InputError, match="id 256 is not in the lock") as caught:
        CODECS.decode(TASKS, frame(256) + b"body")
    assert "schema_rejected" == caught.value.reason


def test_a_record_of_another_subject_is_a_rejected_schema():
    """A record on the wrong topic would decode well and mean something else."""
    with pytest.raises(InputError, match=rf"is {TASKS} v1, not {LINKS}") as caught:
        CODECS.decode(LINKS, CODECS.encode(TASKS, TASK))
    assert "schema_rejected" == caught.value.reason


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "\ud800"}, "url"),
        ({"depth": 2**64}, "depth"),
        ({"redirects": [1]}, "redirects"),
    ],
)
def test_a_record_that_does_not_fit_is_a_bug_and_names_the_field(change, field):
    """Our own code made the record: nobody else can mend it."""
    with pytest.raises(BugError, match=f"field {field}: "):
        CODECS.encode(TASKS, TASK | change)


def test_a_missing_field_without_a_default_is_a_bug():
    """Nothing is made up for it."""
    with pytest.raises(BugError, match="field url: "):
        CODECS.encode(TASKS, {"crawl": "c", "submitted_at_ms": 0})


def test_a_field_that_the_contract_does_not_have_is_a_bug():
    """A slip in a name would else be a lost value that nobody notices."""
    with pytest.raises(BugError, match="urgent"):
        CODECS.encode(TASKS, TASK | {"urgent": True})


def test_a_field_with_a_default_may_be_left_out():
    """People's tasks are two fields long."""
    task = CODECS.decode(TASKS, CODECS.encode(TASKS, {"crawl": "c", "url": "u", "submitted_at_ms": 1}))

    assert (3, [], False) == (task["priority"], task["redirects"], task["replay"])


def test_an_unknown_subject_is_a_bug():
    """Subjects are written in the table of topics, never by a sender."""
    with pytest.raises(BugError, match="nonsense"):
        CODECS.encoder("nonsense")
    with pytest.raises(BugError, match="nonsense"):
        CODECS.decoder("nonsense")


@pytest.fixture
def two_versions(tmp_path):
    """A folder with one subject of two versions: the second has another field and another symbol."""
    kinds = {"type": "enum", "name": "Kind", "symbols": ["UNKNOWN", "HTML"], "default": "UNKNOWN"}
    first = {
        "type": "record",
        "name": "Thing",
        "namespace": "crawl.v1",
        "fields": [{"name": "kind", "type": kinds}],
    }
    second = {
        **first,
        "fields": [
            {"name": "kind", "type": {**kinds, "symbols": ["UNKNOWN", "HTML", "PDF"]}},
            {"name": "note", "type": "string", "default": "none"},
        ],
    }
    folder = tmp_path / "thing-value"
    folder.mkdir()
    for version, document in enumerate((first, second), start=1):
        (folder / f"v{version}.avsc").write_text(json.dumps(document))
    return read_schemas(tmp_path)


def codecs_writing(schemas, version):
    """Codecs whose producers write that version."""
    lock = with_new_ids(Lock("test", {}), schemas)
    subjects = {name: LockedSubject(version, entry.versions) for name, entry in lock.subjects.items()}
    return Codecs(Lock("test", subjects), schemas)


def test_an_older_version_is_read_as_the_newest(two_versions):
    """What lies in a topic from before a deployment stays readable, with the defaults of what came later."""
    value = codecs_writing(two_versions, 1).encode("thing-value", {"kind": "HTML"})

    assert {"kind": "HTML", "note": "none"} == codecs_writing(two_versions, 2).decode("thing-value", value)


def test_an_older_version_is_written_while_the_lock_says_so(two_versions):
    """The first of two deployments teaches every reader, and only then the second one writes the new version."""
    first = codecs_writing(two_versions, 1)
    value = first.encode("thing-value", {"kind": "HTML", "note": "lost on purpose"})

    assert {"kind": "HTML", "note": "none"} == first.decode("thing-value", value)


def test_neither_registry_nor_broker_client_is_loaded():
    """A worker that can't reach the registry must not notice: nothing that could ask is even there."""
    code = (
        "import sys, pipeline.contracts as c; c.load_codec();"
        "print([m for m in ('httpx', 'confluent_kafka', 'aiokafka', 'requests') if m in sys.modules])"
    )

    assert "[]\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
