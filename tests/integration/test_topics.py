"""Topics on a real broker: made, mended, refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from pipeline.cli import cli
from pipeline.config import Broker, Settings, Topics, client_options
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.local.kafka import LocalBroker
from pipeline.ops.topics import Difference, apply, plan, verify, wanted_config
from pipeline.topics import TASKS, all_names

LIMIT_S = 20.0
PARTITIONS = 3

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    """A broker without topics: names are fixed, so these tests cannot share one with others."""
    with LocalBroker(tmp_path_factory.mktemp("kafka")) as local:
        yield local.bootstrap


@pytest.fixture
def client(bootstrap):
    """An AdminClient; after the test no topic is left."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    yield admin
    made = [name for name in admin.list_topics(timeout=LIMIT_S).topics if not name.startswith("__")]
    for done in admin.delete_topics(made).values() if made else ():
        done.result(LIMIT_S)
    wait_until(lambda: not any(name in admin.list_topics(timeout=LIMIT_S).topics for name in made))


@pytest.fixture
def settings(bootstrap):
    """Settings with another partition count than the default."""
    return Settings(broker=Broker(bootstrap=bootstrap), topics=Topics(partitions=PARTITIONS))


def config_of(admin: AdminClient, topic: str) -> dict[str, str]:
    """Read a topic's configuration from the broker."""
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {key: entry.value for key, entry in answer.result(LIMIT_S).items()}


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    """Create a topic and return when the broker shows it, which is after its controller has accepted it."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_S)
    wait_until(lambda: topic in admin.list_topics(timeout=LIMIT_S).topics)


def wait_until(condition: Callable[[], bool]) -> None:
    """Ask again until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline


def test_apply_makes_every_topic_as_planned_and_then_has_nothing_to_do(client, settings):
    """Deployments run it each time: the second run must change nothing."""
    options = client_options(settings.broker)
    planned = plan(options, settings)
    assert [Difference(name, "missing", "", None, str(PARTITIONS)) for name, _ in all_names()] == planned
    assert planned == apply(options, settings)
    assert [] == plan(options, settings)
    assert [] == apply(options, settings)
    topics = client.list_topics(timeout=LIMIT_S).topics
    assert {PARTITIONS} == {len(topics[name].partitions) for name, _ in all_names()}
    assert wanted_config(TASKS.dlq, TASKS).items() <= config_of(client, TASKS.dlq).items()
    verify(settings, [name for name, _ in all_names()])


def test_apply_mends_what_differs_and_leaves_what_the_table_does_not_name(client, settings):
    """An operator's own settings, such as a segment size, are not ours to undo."""
    options = client_options(settings.broker)
    apply(options, settings)
    changed = [
        ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("segment.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ResourceType.TOPIC, TASKS.name, incremental_configs=changed)
    client.incremental_alter_configs([resource])[resource].result(LIMIT_S)
    wait_until(lambda: config_of(client, TASKS.name)["retention.ms"] == "60000")
    mended = apply(options, settings)
    assert [Difference(TASKS.name, "config", "retention.ms", "60000", str(TASKS.retention_ms))] == mended
    config = config_of(client, TASKS.name)
    assert (str(TASKS.retention_ms), "3600000") == (config["retention.ms"], config["segment.ms"])


def test_another_partition_count_is_refused_and_nothing_is_changed(client, settings):
    """The count decides where each domain's state is: half of the topics on another one would tear it apart."""
    create(client, TASKS.name, PARTITIONS + 1)
    with pytest.raises(ConfigurationError, match=r"4 partitions instead of the configured 3 .*: crawl\.tasks\.v1\n"):
        apply(client_options(settings.broker), settings)
    assert {TASKS.name} == {name for name in client.list_topics(timeout=LIMIT_S).topics if name[0] != "_"}


def test_a_worker_refuses_wrong_topics_and_names_the_command(client, settings):
    """A worker on a wrong count would look for domains where they are not; on a missing topic it would hang."""
    create(client, TASKS.name, PARTITIONS + 1)
    with pytest.raises(ConfigurationError) as refusal:
        verify(settings, [TASKS.name, TASKS.dlq])
    message = str(refusal.value)
    assert f"missing on the broker: {TASKS.dlq}; create them with `headrace topics apply`" in message
    assert f"4 partitions instead of the configured 3 (topics.partitions): {TASKS.name}" in message


def test_the_command_plans_and_applies_as_json(client, settings):
    """Scripts read it: one object a line, and nothing else on standard output."""
    environment = {"HEADRACE_BROKER__BOOTSTRAP": settings.broker.bootstrap, "HEADRACE_TOPICS__PARTITIONS": "3"}

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["topics", *arguments], env=environment, catch_exceptions=False)
        assert 0 == result.exit_code
        return result.stdout

    missing = [{"topic": name, "kind": "missing", "key": "", "found": None, "wanted": "3"} for name, _ in all_names()]
    assert missing == list(map(json.loads, run("plan", "--json").splitlines()))
    assert missing == list(map(json.loads, run("apply", "--json").splitlines()))
    assert "" == run("plan", "--json")
    assert f"all {len(all_names())} topics are as they should be\n" == run("plan")


def test_without_a_broker_the_message_comes_within_ten_seconds():
    """It names the address and what to do; nobody waits longer than that before looking elsewhere."""
    settings = Settings(broker=Broker(bootstrap="127.0.0.1:1"))
    start = time.monotonic()
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 within 8 s \(.*Connection refused.*headrace up"):
        verify(settings, [TASKS.name])
    assert time.monotonic() - start < 9.5
