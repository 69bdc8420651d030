"""Fixtures of the whole session: one broker, one registry, topics of one's own."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

BROKER_FIXTURES = {"broker", "admin", "topic_factory"}
REACH_S = 10.0


@dataclass(frozen=True)
class NamedBroker:
    """A broker that runs already, named by `HEADRACE_TEST_BOOTSTRAP`."""

    bootstrap: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that asks for the broker, directly or through another fixture."""
    for item in items:
        if BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """One broker for all tests: `.bootstrap` is its address. Who wants to kill one starts its own `LocalBroker`."""
    named = os.environ.get("HEADRACE_TEST_BOOTSTRAP")
    if named:
        yield NamedBroker(named)
        return
    from pipeline.local.kafka import LocalBroker  # noqa: PLC0415 - unit tests do without

    with LocalBroker(tmp_path_factory.mktemp("kafka")) as local:
        yield local


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """One schema registry for all tests, started by the first that asks: `.url` is its address."""
    from pipeline.local.registry import LocalRegistry  # noqa: PLC0415 - unit tests do without

    with LocalRegistry(tmp_path_factory.mktemp("registry")) as local:
        yield local


@pytest.fixture(scope="session")
def admin(broker):
    """An AdminClient of the session's broker."""
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - unit tests do without

    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic_factory(admin) -> Iterator[Callable[..., str]]:
    """Make topics with unique names: `topic_factory(partitions=3, cleanup_policy="compact")` returns the name.

    Underscores in configuration keys stand for dots. The topics are removed after the test.
    """
    from confluent_kafka.admin import NewTopic  # noqa: PLC0415 - unit tests do without

    made: list[str] = []

    def make(partitions: int = 1, **config: object) -> str:
        name = f"test-{uuid.uuid4().hex}"
        rows = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=rows)
        admin.create_topics([topic])[name].result(REACH_S)
        made.append(name)
        deadline = time.monotonic() + REACH_S
        # The controller has it before the broker shows it.
        while len(admin.list_topics(name, timeout=REACH_S).topics[name].partitions) < partitions:
            assert time.monotonic() < deadline, f"{name} does not show"
        return name

    yield make
    if made:
        for done in admin.delete_topics(made).values():
            done.result(REACH_S)
