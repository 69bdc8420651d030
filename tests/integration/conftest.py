"""Fixtures for tests of workers on a real broker."""

from __future__ import annotations

import uuid
from dataclasses import fields, replace

import pytest
from confluent_kafka.admin import NewTopic

from tests.chaos.ledger import Offsets, Reader
from tests.chaos.process import Stage
from tests.chaos.toy import Faults, Toy

REACH_S = 10.0
KINDS = ("parallel", "ordered")


class StageFactory:
    """Makes toy stages on topics of their own: `factory("ordered", partitions=2, timer_s=1.0, aborts=1)`.

    Args:
        bootstrap: address of the broker.
        admin: its AdminClient.
        directory: for logs and data.
    """

    def __init__(self, bootstrap, admin, directory):
        self._bootstrap = bootstrap
        self._admin = admin
        self._directory = directory
        self._stages = []
        self._topics = []

    def __call__(self, kind, partitions=2, inputs=1, out_config=None, *, with_state=None, **options):
        """Names of fields of `Toy` and `Faults` are taken; `out_config` configures the output topic."""
        name = f"toy-{uuid.uuid4().hex[:12]}"
        sources = [f"{name}-in-{number}" for number in range(inputs)]
        with_state = kind == "ordered" if with_state is None else with_state
        changelog = f"{name}-changelog" if with_state else ""
        configs = {topic: {} for source in sources for topic in (source, f"{source}-dlq")}
        configs[f"{name}-out"] = out_config or {}
        if changelog:
            configs[changelog] = {"cleanup.policy": "compact"}
        if options.get("served"):
            configs |= {f"{name}-control": {}, f"{name}-answers": {}}
        made = [NewTopic(topic, partitions, 1, config=config) for topic, config in configs.items()]
        for done in self._admin.create_topics(made).values():
            done.result(REACH_S)
        self._topics.extend(configs)
        faults = Faults(**{row.name: options.pop(row.name) for row in fields(Faults) if row.name in options})
        directory = self._directory / name
        toy = Toy(
            group=name,
            inputs=sources,
            out=f"{name}-out",
            journal=str(directory / "journal"),
            gates=str(directory / "gates"),
            changelog=changelog,
            faults=faults,
        )
        self._stages.append(Stage(kind, replace(toy, **options), self._bootstrap, directory, partitions))
        return self._stages[-1]

    def end(self):
        """End all workers and remove the topics."""
        for stage in self._stages:
            stage.end()
        if self._topics:
            for done in self._admin.delete_topics(self._topics).values():
                done.result(REACH_S)


@pytest.fixture
def stage_factory(broker, admin, tmp_path):
    """A factory of toy stages; all workers are ended after the test."""
    factory = StageFactory(broker.bootstrap, admin, tmp_path)
    yield factory
    factory.end()


@pytest.fixture(scope="module")
def steady(broker, admin, tmp_path_factory):
    """A parallel and an ordered stage with one worker each, for tests that only send records: `steady[kind]`."""
    factory = StageFactory(broker.bootstrap, admin, tmp_path_factory.mktemp("steady"))
    stages = {kind: factory(kind) for kind in KINDS}
    for stage in stages.values():
        stage.worker().start()
    yield stages
    factory.end()


@pytest.fixture
def reader(broker):
    """Open readers of topics: `reader(topic)`; closed after the test."""
    readers = []

    def make(topic, isolation="read_committed"):
        readers.append(Reader(broker.bootstrap, topic, isolation))
        return readers[-1]

    yield make
    for opened in readers:
        opened.close()


@pytest.fixture
def offsets(broker):
    """Committed offsets of groups: `offsets(group)`; closed after the test."""
    opened = []

    def make(group):
        opened.append(Offsets(broker.bootstrap, group))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
