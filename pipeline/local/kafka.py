"""A real single-node Kafka from Python packages alone: no Java on the machine, no container."""

from __future__ import annotations

import base64
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from pipeline.local import archives
from pipeline.local.server import HOST, JavaServer, is_open, java

METADATA_S = 5.0
JVM = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    # The second compiler pays only after half a minute: until then it doubles the CPU of a transaction (27 and 16 ms
    # against 14 and 9 in the first two times 10 s, measured), after that both need 9 ms.
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
    "--enable-native-access=ALL-UNNAMED",  # zstd and snappy; without it Java 25 warns at each start
    "--sun-misc-unsafe-memory-access=allow",  # mapped indexes; the same
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)
# Left alone on purpose:
# - transaction.abort.timed.out.transaction.cleanup.interval.ms (10 s). With 1 s a broker that comes back ends overdue
#   transactions before its own partitions are online: their markers are lost, the partitions hang for ever for
#   read_committed readers, and the next commit of the same producer id publishes the orphan's offsets (4 of 4 with
#   1 s, 0 of 4 with the default).
# - segment sizes, compaction, the retention check and log.message.timestamp.type: what runs here behaves as a
#   cluster does.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # One node holds the only replica of everything.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Few partitions and threads: one small machine, a handful of groups.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    # A group starts with its first member, and tests may use short sessions.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # There is nobody to hand the partitions to. In an orderly stop the broker would sign off first and still take
    # commits for a moment: it says that they are committed and writes no markers: they hang (5 of 55 stops under load
    # with the default, 0 of 30 with this).
    "controlled.shutdown.enable": "false",
    # A broker that has not signed off may register again only when its former session has run out: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class LocalBroker(JavaServer):
    """A Kafka broker of one's own; topics and records outlive its restarts.

    Args:
        directory: for everything it keeps.
        port: of the listener for clients; None takes a free one.
        properties: broker properties over the ones of this module.
        advertised_ports: for each a listener of its own that tells its clients to come by that port, where a proxy
            stands: `proxied_addresses` are the ones behind it.
    """

    name = "kafka"
    ports_needed = 2

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        *,
        properties: Mapping[str, str] = MappingProxyType({}),
        advertised_ports: Sequence[int] = (),
    ) -> None:
        super().__init__(directory, port)
        self._more_properties = dict(properties)
        self._advertised_ports = tuple(advertised_ports)
        self.ports_needed = 2 + len(advertised_ports)

    @property
    def bootstrap(self) -> str:
        """Address for clients, host:port; a BrokerError before the first start."""
        return self.address

    @property
    def proxied_addresses(self) -> list[str]:
        """Where the listeners with an advertised port of their own really are, host:port."""
        return [f"{HOST}:{port}" for port in self._ports[2:]]

    def _prepare(self, ports: list[int]) -> list[str]:
        command = java(*JVM, "-cp", archives.class_path("kafka"))
        properties = self.directory / "server.properties"
        with self._plain_disk_errors():
            properties.write_text(self._properties(ports), encoding="utf-8")
        self._format(command, properties)
        return [*command, "kafka.Kafka", str(properties)]

    def _is_ready(self, port: int) -> bool:
        if not is_open(f"{HOST}:{port}"):
            return False
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import, and only needed here
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above

        client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
        try:
            metadata = client.list_topics(timeout=METADATA_S)
        except KafkaException:
            return False
        # Another broker may have taken the port before ours could.
        return bool(metadata.brokers) and metadata.cluster_id == self._cluster_id()

    def _cluster_id(self) -> str:
        rows = (self.directory / "data" / "meta.properties").read_text(encoding="utf-8").splitlines()
        return next(row.removeprefix("cluster.id=") for row in rows if row.startswith("cluster.id="))

    def _properties(self, ports: list[int]) -> str:
        port, controller, *proxied = ports
        listeners = {"PLAINTEXT": port, "CONTROLLER": controller}
        advertised = {"PLAINTEXT": port}
        for number, (real, shown) in enumerate(zip(proxied, self._advertised_ports, strict=True)):
            listeners[f"PROXIED{number}"], advertised[f"PROXIED{number}"] = real, shown
        rows = PROPERTIES | {
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": ",".join(f"{name}://{HOST}:{number}" for name, number in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{HOST}:{number}" for name, number in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "log.dirs": str(self.directory / "data").replace("\\", "\\\\"),
            **self._more_properties,
        }
        return "".join(f"{key}={value}\n" for key, value in rows.items())

    def _format(self, command: list[str], properties: Path) -> None:
        """Give the data directory its cluster id, once."""
        if (self.directory / "data" / "meta.properties").exists():
            return
        # Kafka's own form of an id is 22 characters of URL-safe base64; a leading dash would look like an option.
        cluster_id = "h" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii")[1:22]
        tool = [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
        with self._plain_disk_errors():
            done = subprocess.run(tool, capture_output=True, check=False)
            self.log.write_bytes(done.stdout + done.stderr)
        if done.returncode:
            raise self._failure(f"could not format its data directory (status {done.returncode})")
