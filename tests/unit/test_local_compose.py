"""The containers run what the embedded broker runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.local import archives, kafka

COMPOSE = (Path(__file__).parents[2] / "compose.yaml").read_text(encoding="utf-8")
ONLY_EMBEDDED = {
    # Sizes for one small machine, and a quick return after a kill in tests.
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "log.cleaner.dedupe.buffer.size",
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
}


@pytest.mark.parametrize("key", sorted(kafka.PROPERTIES.keys() - ONLY_EMBEDDED))
def test_a_property_of_the_embedded_broker_is_in_compose(key):
    """Who moves from one to the other must not meet other behaviour."""
    name = "KAFKA_" + key.upper().replace(".", "_")
    found = re.search(rf'^ +{name}: "?([^"\n]+)"?$', COMPOSE, re.MULTILINE)
    assert found, name
    assert kafka.PROPERTIES[key] == found[1]


def test_the_reaper_of_transactions_keeps_its_default_in_both():
    """A shorter interval leaves hanging transactions after a broker's crash: a record was lost to it."""
    key = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    assert key not in kafka.PROPERTIES
    assert "KAFKA_" + key.upper().replace(".", "_") not in COMPOSE


def test_images_have_the_versions_of_the_archives():
    """One version is tested; the other would be a guess."""
    kafka_version = archives.ROOTS["kafka"][0].split(":")[2]
    registry_version = archives.ROOTS["registry"][0].split(":")[2]
    assert f"image: apache/kafka:{kafka_version}\n" in COMPOSE
    assert f"image: apicurio/apicurio-registry:{registry_version}\n" in COMPOSE
