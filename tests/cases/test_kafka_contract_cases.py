"""Acceptance cases on Kafka that concern the contracts."""

from __future__ import annotations

import json
import socket

import pytest

from pipeline.contracts import Codecs, load_codec
from pipeline.contracts.codec import frame
from pipeline.contracts.compatibility import unreadable
from pipeline.contracts.lock import Lock, LockedSubject, with_new_ids
from pipeline.contracts.schemas import read_schemas
from pipeline.errors import InputError

TASKS = "crawl.tasks.v1-value"


@pytest.fixture
def no_network(monkeypatch):
    """Every attempt to reach anybody is counted and fails."""
    attempts = []

    def refuse(*arguments, **_):
        attempts.append(arguments)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return attempts


def test_kaf_06_an_unknown_id_is_one_dead_letter_and_an_outage_is_none(no_network):
    """A missing id stays missing; a registry that is away must stop nothing.

    The four runs of the case differ in what the registry does (404 for id 256, 503, silence, 500 with a filled
    cache). Here they are one: ids come from the lock, so no run has a look-up, and none has an outage.
    """
    codecs = load_codec()
    good = codecs.encode(TASKS, {"crawl": "c", "url": "http://news.test/", "submitted_at_ms": 0})
    values = [frame(256) + good[5:] if number == 41 else good for number in range(100)]
    processed, dead = 0, []
    for value in values:
        try:
            codecs.decode(TASKS, value)
            processed += 1
        except InputError as error:
            dead.append(error.reason)

    assert 99 == processed
    assert ["schema_rejected"] == dead
    assert [] == no_network


KIND_3 = {"type": "enum", "name": "Kind", "symbols": ["HTML", "FEED", "PDF"]}
KIND_2 = {"type": "enum", "name": "Kind", "symbols": ["HTML", "FEED"], "default": "HTML"}
KAF_08 = [
    pytest.param(KIND_3, KIND_2, "PDF", "HTML", True, id="symbol unknown to the reader, default"),
    pytest.param(
        {"type": "enum", "name": "Kind", "symbols": ["HTML", "PDF"]},
        {"type": "enum", "name": "Kind", "symbols": ["HTML"]},
        "PDF",
        InputError,
        False,
        id="symbol unknown to the reader, no default",
    ),
    pytest.param("int", "long", 7, 7, True, id="widened"),
    pytest.param("long", "int", 7, InputError, False, id="narrowed"),
    pytest.param(["null", "string"], "string", "x", "x", False, id="no longer nullable, with a value"),
    pytest.param(["null", "string"], "string", None, InputError, False, id="no longer nullable, null"),
]


@pytest.mark.parametrize(("writer", "reader", "datum", "expected", "passes"), KAF_08)
def test_kaf_08_a_changed_type_is_resolved_or_refused_and_never_misread(
    tmp_path, *, writer, reader, datum, expected, passes
):
    """The decoder follows Avro's resolution; what it can't resolve is found before a producer with it starts."""
    (tmp_path / "thing-value").mkdir()
    for version, kind in enumerate((writer, reader), start=1):
        document = {"type": "record", "name": "Thing", "fields": [{"name": "kind", "type": kind}]}
        (tmp_path / "thing-value" / f"v{version}.avsc").write_text(json.dumps(document))
    schemas = read_schemas(tmp_path)
    lock = with_new_ids(Lock("test", {}), schemas)
    versions = lock.subjects["thing-value"].versions
    old = Codecs(Lock("test", {"thing-value": LockedSubject(1, versions)}), schemas)
    value = old.encode("thing-value", {"kind": datum})

    if expected is InputError:
        with pytest.raises(InputError) as caught:
            old.decode("thing-value", value)
        assert "undecodable" == caught.value.reason
    else:
        assert {"kind": expected} == old.decode("thing-value", value)
    assert passes == (not unreadable(schemas["thing-value"][1].document, schemas["thing-value"][0].document))
