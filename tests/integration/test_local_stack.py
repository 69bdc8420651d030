"""The real broker and registry: data that outlives restarts, a port of one's own, an end with the owner."""

from __future__ import annotations

import socket

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.config import Broker, Settings
from pipeline.errors import ConfigurationError
from pipeline.local.kafka import LocalBroker
from pipeline.local.stack import Addresses, LocalStack, directory_of, find, with_local_addresses

LIMIT_S = 20.0

pytestmark = pytest.mark.broker


def create(bootstrap: str, topic: str) -> None:
    """Create a topic of one partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_S)


def write(bootstrap: str, topic: str, *values: bytes) -> None:
    """Write records and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert 0 == producer.flush(LIMIT_S)


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """Read a number of records from the start."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, LIMIT_S)]
    finally:
        consumer.close()


def test_records_outlive_a_stop_and_a_kill_at_the_same_address(tmp_path):
    """Kafka is the only system of record: what a client was told is stored is there after a power cut."""
    with LocalBroker(tmp_path) as broker:
        bootstrap = broker.bootstrap
        create(bootstrap, "kept")
        write(bootstrap, "kept", b"before the stop")
        broker.stop()
        assert broker.pid is None
        assert bootstrap == broker.start()
        write(bootstrap, "kept", b"before the kill")
        broker.kill()
        assert bootstrap == broker.start()
        assert [b"before the stop", b"before the kill"] == read(bootstrap, "kept", 2)
        with pytest.raises(ConfigurationError, match="is in use by process"):
            LocalBroker(tmp_path).start()


def test_a_named_port_in_use_is_refused_before_anything_is_started(tmp_path):
    """The message must come at once, not after Java's start and a trace."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port} is in use by another process"):
            LocalBroker(tmp_path, port).start()
    assert not (tmp_path / "kafka.log").exists()


def test_broker_and_registry_run_side_by_side_and_are_found_while_they_do(tmp_path):
    """Commands in another terminal use the running stack without being told its address."""
    settings = Settings().model_copy(update={"worker": Settings().worker.model_copy(update={"data_dir": tmp_path})})
    directory = directory_of(settings)
    assert settings == with_local_addresses(settings)
    with LocalStack(directory, registry=True) as stack:
        found = with_local_addresses(settings)
        assert stack.addresses == find(directory)
        assert Addresses(found.broker.bootstrap or "", found.registry.url) == stack.addresses
        answer = httpx.get(f"{found.registry.url}/subjects")
        assert (200, []) == (answer.status_code, answer.json())
        named = settings.model_copy(update={"broker": Broker(bootstrap="cluster.example:9092")})
        assert named == with_local_addresses(named)
        stack.check()
        # A killed owner leaves the file with the addresses behind.
        stack.broker.kill()
        assert find(directory) is None
    assert find(directory) is None


def test_a_listener_with_an_advertised_port_sends_its_clients_there(tmp_path):
    """A proxy between a worker and the broker is of use only when the client does not go round it."""
    with LocalBroker(tmp_path, properties={"log.retention.ms": "12345"}, advertised_ports=[9]) as broker:
        (behind,) = broker.proxied_addresses
        for address, port in ((broker.bootstrap, int(broker.bootstrap.rpartition(":")[2])), (behind, 9)):
            brokers = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=10).brokers
            assert [port] == [one.port for one in brokers.values()]
        assert "log.retention.ms=12345" in (tmp_path / "server.properties").read_text(encoding="utf-8")
