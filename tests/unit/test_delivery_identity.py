from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from pipeline.delivery import identity as module
from pipeline.delivery.identity import Identity, check_layout
from pipeline.delivery.transactions import TransactionalProducer, Work
from pipeline.errors import BugError, ConfigurationError

NOBODY = "127.0.0.1:1"


def written_by_librdkafka(group: str, instance: str | None) -> bytes:
    """What the client itself says of a member that has not joined."""
    options = {"bootstrap.servers": NOBODY, "group.id": group, "log_level": 0}
    consumer = Consumer(options | ({"group.instance.id": instance} if instance else {}))
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


@pytest.mark.parametrize("group", ["g", "headrace-fetch", "grüße"])
@pytest.mark.parametrize("instance", [None, "fetch-0"])
def test_the_byte_form_is_librdkafkas_own(group, instance):
    """The producer reads it back: one byte off, and offsets would be sent under another name or none."""
    assert written_by_librdkafka(group, instance) == bytes(Identity(group, -1, "", instance))


def test_the_installed_client_passes_the_check_at_start():
    """A worker asks this before it does anything."""
    check_layout()


def test_a_client_with_another_byte_form_is_refused_at_start(monkeypatch):
    """The form is private to librdkafka; an update may change it without a word."""

    class Changed:
        def __init__(self, options):
            pass

        def consumer_group_metadata(self):
            return b"CGMDv3:" + bytes(Identity("canary", -1, ""))[7:]

        def close(self):
            pass

    monkeypatch.setattr(module, "Consumer", Changed)
    with pytest.raises(ConfigurationError, match="confluent-kafka"):
        check_layout()


@pytest.mark.parametrize(
    "identity",
    [
        Identity("g", -1, ""),
        Identity("g", -1, "member"),
        Identity("g", 0, "member"),
        Identity("g", 5, ""),
        Identity("g", 5, "", "instance"),
    ],
)
def test_generation_minus_one_or_an_empty_member_id_never_commits(identity):
    """The broker takes offsets of a nobody from anybody, unchecked; so they are refused before they are sent."""
    assert not identity.fenceable
    producer = TransactionalProducer({"bootstrap.servers": NOBODY, "log_level": "0"}, "t", 6.0, "none")
    with pytest.raises(BugError, match="fenceable"):
        producer.run(Work([], {}, {}, identity))


def test_a_member_of_a_generation_may_commit():
    """Static or not: the broker checks its member id."""
    assert Identity("g", 1, "member").fenceable
    assert Identity("g", 1, "member", "instance").fenceable
