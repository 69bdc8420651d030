from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli.schemas import schemas as schemas_command
from pipeline.contracts import load_codec
from pipeline.contracts.lock import read_lock
from pipeline.contracts.registration import (
    fill_local_registry,
    register_schemas,
    registry_differences,
    registry_subject,
)
from pipeline.contracts.registry import SchemaRegistry
from pipeline.contracts.schemas import read_schemas
from pipeline.errors import ConfigurationError
from pipeline.topics import TABLE, Topic

SCHEMAS = read_schemas()
FIRST = {
    "type": "record",
    "name": "Thing",
    "namespace": "crawl.v1",
    "doc": "A thing.",
    "fields": [{"name": "a", "type": "int", "doc": "An a."}],
}
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "b", "type": "int", "default": 0, "doc": "A b."}]}


@pytest.fixture(scope="module")
def url(registry):
    """The session's registry, filled like that of the local stack."""
    fill_local_registry(registry.url)
    return registry.url


@pytest.fixture
def client(url):
    """A client of it."""
    with SchemaRegistry(url) as client:
        yield client


def contracts(tmp_path, name, *documents):
    """Schemas of one made-up subject, and the topic that it serves."""
    folder = tmp_path / f"{name}-value"
    folder.mkdir(exist_ok=True)
    for version, document in enumerate(documents, start=1):
        (folder / f"v{version}.avsc").write_text(json.dumps(document))
    return read_schemas(tmp_path), [Topic(name, "", "", f"{name}-value")]


def test_the_local_registry_gives_the_ids_of_the_built_in_lock(url, client):
    """The local stack works without asking it, and a consumer that does ask must find the same schemas."""
    fill_local_registry(url)

    assert [] == list(registry_differences(client, SCHEMAS, read_lock()))


def test_a_foreign_consumer_finds_the_schema_of_every_topic(client):
    """By the rule that deserializers follow: subject = topic name + "-value", id = that in the record."""
    codecs = load_codec()
    tasks = {"crawl": "c", "url": "u", "submitted_at_ms": 0}
    schema_id = int.from_bytes(codecs.encode("crawl.tasks.v1-value", tasks)[1:5], "big")

    for topic in TABLE:
        (version,) = client.versions(registry_subject(topic))
        assert SCHEMAS[topic.subject][0].document == version.document
    for place in ("crawl.tasks.v1-value", "crawl.tasks.urgent.v1-value"):
        assert schema_id == client.versions(place)[0].id
        assert "FULL_TRANSITIVE" == client.compatibility(place)


def test_an_incompatible_schema_is_refused_and_what_was_there_stays(client, tmp_path):
    """The registry is the last gate, for those who come past ours: it answers 409."""
    schemas, topics = contracts(tmp_path, "incompatible", FIRST)
    register_schemas(client, schemas["incompatible-value"], topics=topics)
    narrowed = FIRST | {"fields": [{"name": "a", "type": "string", "doc": "An a."}]}
    schemas, topics = contracts(tmp_path, "incompatible", FIRST, narrowed)

    with pytest.raises(ConfigurationError, match="refused as incompatible: status 409"):
        register_schemas(client, schemas["incompatible-value"], topics=topics)
    assert [FIRST] == [version.document for version in client.versions("incompatible-value")]


def test_a_new_version_is_added_behind_the_old_one(client, tmp_path):
    """Ids of old records stay; a second run changes nothing."""
    schemas, topics = contracts(tmp_path, "growing", FIRST)
    before = register_schemas(client, schemas["growing-value"], topics=topics)
    schemas, topics = contracts(tmp_path, "growing", FIRST, SECOND)
    after = register_schemas(client, schemas["growing-value"], topics=topics)
    again = register_schemas(client, schemas["growing-value"], topics=topics)

    assert before.subjects["growing-value"].versions[1] == after.subjects["growing-value"].versions[1]
    assert 2 == after.subjects["growing-value"].writes
    assert after == again
    assert [1, 2] == [version.version for version in client.versions("growing-value")]


def test_a_held_lock_keeps_what_is_written(client, tmp_path):
    """The first of two deployments: everybody can read the new version, nobody writes it."""
    schemas, topics = contracts(tmp_path, "held", FIRST)
    held = register_schemas(client, schemas["held-value"], topics=topics)
    schemas, topics = contracts(tmp_path, "held", FIRST, SECOND)
    lock = register_schemas(client, schemas["held-value"], topics=topics, held=held)

    assert 1 == lock.subjects["held-value"].writes
    assert {1, 2} == set(lock.subjects["held-value"].versions)


def test_differences_are_told(client, tmp_path):
    """Before a deployment an operator sees what the registry lacks and what others did to it."""
    schemas, topics = contracts(tmp_path, "different", FIRST)
    lock = register_schemas(client, schemas["different-value"], topics=topics)
    client.register("different-value", json.dumps(SECOND))
    client.set_compatibility("different-value", "NONE")
    missing = Topic("missing", "", "", "different-value")
    strange = read_lock()

    assert [
        "different-value: compatibility is NONE, not FULL_TRANSITIVE",
        "different-value: the registry's version 2 (id {}) is none of ours".format(
            client.versions("different-value")[1].id
        ),
        "missing-value: not in the registry",
    ] == list(registry_differences(client, schemas, lock, [*topics, missing]))
    assert [] == [line for line in registry_differences(client, schemas, strange, topics) if "has id" in line]


def test_an_id_that_the_lock_has_otherwise_is_told(client, tmp_path):
    """The lock of another registry: every record written with it would be misread."""
    schemas, topics = contracts(tmp_path, "misread", FIRST)
    lock = register_schemas(client, schemas["misread-value"], topics=topics)
    locked = lock.subjects["misread-value"].versions[1]
    lock.subjects["misread-value"].versions[1] = type(locked)(locked.id + 1000, locked.sha256)

    assert [f"misread-value: v1 has id {locked.id} in the registry and {locked.id + 1000} in the lock"] == list(
        registry_differences(client, schemas, lock, topics)
    )


def test_a_registry_that_held_other_schemas_is_no_local_one(url, monkeypatch):
    """Ids that differ from the built-in lock's would be put on records all the same: said at the start."""
    lock = read_lock()
    subject = lock.subjects["crawl.tasks.v1-value"]
    subject.versions[1] = type(subject.versions[1])(999, subject.versions[1].sha256)
    monkeypatch.setattr("pipeline.contracts.registration.read_lock", lambda: lock)

    with pytest.raises(ConfigurationError, match="start the local stack with an empty one"):
        fill_local_registry(url)


def test_register_writes_a_lock_that_workers_start_with_and_diff_agrees(url, tmp_path):
    """The two commands of a deployment; from then on the registry may be down."""
    lock = tmp_path / "registry.lock.json"
    registered = CliRunner().invoke(schemas_command, ["register", "--url", url, "--lock", str(lock)])
    compared = CliRunner().invoke(schemas_command, ["diff", "--url", url, "--lock", str(lock)])

    assert (0, 0) == (registered.exit_code, compared.exit_code), registered.output + compared.output
    assert "agree" in compared.output
    assert url == read_lock(lock).registry
    task = {"crawl": "c", "url": "u", "submitted_at_ms": 0}
    codecs = load_codec(lock)
    assert "u" == codecs.decode("crawl.tasks.v1-value", codecs.encode("crawl.tasks.v1-value", task))["url"]
