"""A real single-node Kafka from Python packages alone: no Java on the machine, no container."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from pipeline.errors import BrokerError
from pipeline.local import archives
from pipeline.local.server import HOST, JavaServer, PortTakenError, check_port, free_ports, is_open, java

ATTEMPTS = 3
METADATA_S = 5.0
JVM = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
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
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
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
    # A killed broker may register again only when its former session has run out: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class LocalBroker(JavaServer):
    """A Kafka broker of one's own, for as long as the process that started it lives.

    Args:
        directory: its data and its log. Owned by one process at a time; topics and records outlive a restart.
        port: where clients find it on the loopback address; None takes the port of the last start in this
            directory where it is still free, else any.

    Used as a context manager, or with `start` and `stop`. `kill` is there for fault tests; `start` after it, or after
    `stop`, brings the broker back with its data on the same port.
    """

    name = "kafka"

    def __init__(self, directory: Path, port: int | None = None) -> None:
        super().__init__(directory)
        self._named_port = port
        self._port: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """Address for clients, host:port.

        Raises:
            BrokerError: it was never started.
        """
        if self._port is None:
            raise BrokerError("the local broker was not started")
        return f"{HOST}:{self._port}"

    def start(self) -> str:
        """Start the broker and wait until it answers a request for its metadata.

        Returns:
            Its address, host:port. The running one's, where it runs already.

        Raises:
            ConfigurationError: the directory is another process's, the named port is in use, the disk refuses, or
                the Java archives cannot be fetched.
            BrokerError: it did not start; with the end of its log.
        """
        if self.pid is not None:
            return self.bootstrap
        command = java(*JVM, "-cp", archives.class_path("kafka"))
        properties = self.directory / "server.properties"
        with self._locked() as lock:
            for attempt in range(1, ATTEMPTS + 1):
                port, controller = self._ports()
                with self._plain_disk_errors():
                    properties.write_text(self._properties(port, controller), encoding="utf-8")
                self._format(command, properties)
                try:
                    self._run([*command, "kafka.Kafka", str(properties)], lock, lambda: _answers(port))  # noqa: B023
                except PortTakenError:
                    # A free port may be taken between the look and the start; one that was asked for is an answer.
                    if self._named_port is not None or attempt == ATTEMPTS:
                        raise
                else:
                    self._port = port
                    break
        with self._plain_disk_errors():
            (self.directory / "ports.json").write_text(json.dumps([port, controller]), encoding="ascii")
        return self.bootstrap

    def _ports(self) -> tuple[int, int]:
        """Ports for clients and for the controller: the named one, else the last start's, else free ones."""
        if self._named_port is not None:
            check_port(self._named_port, "of the local broker")
        last: list[int] = []
        with contextlib.suppress(FileNotFoundError):
            last = json.loads((self.directory / "ports.json").read_text(encoding="ascii"))
        spare = free_ports(2)
        port = self._named_port or _if_free(last[:1]) or spare[0]
        controller = _if_free(last[1:]) or spare[1]
        return port, controller if controller != port else spare[1]

    def _properties(self, port: int, controller: int) -> str:
        listener = f"PLAINTEXT://{HOST}:{port}"
        rows = PROPERTIES | {
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"{listener},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listener,
            "log.dirs": str(self.directory / "data").replace("\\", "\\\\"),
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


def _if_free(ports: list[int]) -> int | None:
    for port in ports:
        with contextlib.suppress(PortTakenError):
            check_port(port, "of the last start")
            return port
    return None


def _answers(port: int) -> bool:
    """Tell whether a broker on the port names itself in its metadata: an open port alone may still refuse clients."""
    if not is_open(port):
        return False
    from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import, and only needed here
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above

    client = AdminClient({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    try:
        return bool(client.list_topics(timeout=METADATA_S).brokers)
    except KafkaException:
        return False
