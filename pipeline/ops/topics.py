"""Topics as the table wants them: what differs on the broker, mending it, and refusing to work on wrong ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from pipeline.config import Settings, client_options
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.topics import DAY_MS, DLQ_EXTRA_BYTES, Topic, all_names

if TYPE_CHECKING:
    from concurrent.futures import Future

COMMAND = "headrace topics apply"
DLQ_RETENTION_MS = 30 * DAY_MS
WAIT_SHARE = 0.8  # of broker.wait_s; the rest is for the start of the command and its message
PAUSE_S = 0.05
FIXED = (
    "The partition count decides where the state of each domain is and is fixed for a cluster's life: "
    "set topics.partitions to the cluster's count"
)
UNREACHABLE = frozenset({
    KafkaError._TRANSPORT,  # noqa: SLF001 - the library names its own errors so
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
})  # fmt: skip
OPERATOR = frozenset({
    KafkaError._INVALID_ARG,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the table wants it.

    Attributes:
        topic: its name.
        kind: `missing` and `config` are mended by `apply`; `partitions` never is.
        key: the configuration key; empty for the other kinds.
        found: what the broker has; None where there is nothing.
        wanted: what the table says; for `missing` and `partitions` the partition count.
    """

    topic: str
    kind: Literal["missing", "config", "partitions"]
    key: str
    found: str | None
    wanted: str

    def __str__(self) -> str:
        """Say it in one line."""
        if self.kind == "missing":
            return f"{self.topic}: missing; {self.wanted} partitions are wanted"
        if self.kind == "partitions":
            return f"{self.topic}: has {self.found} partitions; {self.wanted} are configured (topics.partitions)"
        return f"{self.topic}: {self.key} is {self.found}; {self.wanted} is wanted"


def wanted_config(name: str, topic: Topic) -> dict[str, str]:
    """Return the configuration that a topic shall have.

    Args:
        name: the topic's own name, or that of its dead letters.
        topic: the row of the table.

    Dead letters are kept for 30 days whatever the origin's retention, never compacted (two of them may have the same
    key), and may be larger than their origin by their headers.
    """
    if name != topic.dlq:
        return topic.config()
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(DLQ_RETENTION_MS),
        "max.message.bytes": str(topic.max_message_bytes + DLQ_EXTRA_BYTES),
    }


def plan(options: Mapping[str, str], settings: Settings) -> list[Difference]:
    """Compare the broker with the table.

    Args:
        options: client options, from `pipeline.config.client_options`.
        settings: for the partition count and for how long to wait.

    Returns:
        What differs, in the order of the table; empty where all is well. Configuration keys that the table doesn't
        name are the operator's and are not looked at.

    Raises:
        BrokerError: no answer within `broker.wait_s`.
        ConfigurationError: the broker refuses the client.
    """
    with _Admin(options, settings) as admin:
        return admin.differences()


def apply(options: Mapping[str, str], settings: Settings) -> list[Difference]:
    """Create what is missing and set what differs; a second call finds nothing to do.

    Args:
        options: as for `plan`.
        settings: as for `plan`; the replication factor too.

    Returns:
        What was mended.

    Raises:
        ConfigurationError: a topic has another partition count. Nothing was changed then: which partition holds a
            domain follows from the count, so the state of every stage would be in the wrong places.
        BrokerError: as `plan`.
    """
    with _Admin(options, settings) as admin:
        found = admin.differences()
        counts = {
            difference.topic: int(difference.found or 0) for difference in found if difference.kind == "partitions"
        }
        if counts:
            raise ConfigurationError(
                f"{_say_counts(counts, settings.topics.partitions)}\nNothing was changed. {FIXED}; "
                "docs/operations/partitions.md says how to move to another"
            )
        admin.create([difference.topic for difference in found if difference.kind == "missing"])
        admin.configure([difference for difference in found if difference.kind == "config"])
        if found:
            admin.wait_until_mended()
        return found


def verify(settings: Settings, names: Collection[str]) -> None:
    """Refuse to work on topics that are missing or have another partition count.

    Args:
        settings: the broker and the partition count.
        names: the topics that the caller reads or writes.

    Raises:
        ConfigurationError: names each topic at fault and the command that mends it.
        BrokerError: no answer within `broker.wait_s`.
    """
    with _Admin(client_options(settings.broker), settings) as admin:
        counts = admin.partition_counts()
    wanted = settings.topics.partitions
    missing = [name for name in names if name not in counts]
    wrong = {name: counts[name] for name in names if counts.get(name, wanted) != wanted}
    lines = []
    if missing:
        lines.append(f"missing on the broker: {', '.join(missing)}; create them with `{COMMAND}`")
    if wrong:
        lines.append(f"{_say_counts(wrong, wanted)}\n{FIXED}; `{COMMAND}` says more")
    if lines:
        raise ConfigurationError("\n".join(lines))


def _say_counts(found: Mapping[str, int], wanted: int) -> str:
    """Name the topics that have another partition count than is configured, a line for each count."""
    return "\n".join(
        f"{count} partitions instead of the configured {wanted} (topics.partitions): "
        + ", ".join(name for name in found if found[name] == count)
        for count in sorted(set(found.values()))
    )


class _Admin:
    """The administration of one cluster for one command, within its time."""

    def __init__(self, options: Mapping[str, str], settings: Settings) -> None:
        self._address = options["bootstrap.servers"]
        self._partitions = settings.topics.partitions
        self._replication = settings.topics.replication
        self._wait_s = WAIT_SHARE * settings.broker.wait_s
        self._deadline = time.monotonic() + self._wait_s
        self._met: list[KafkaError] = []
        config: dict[str, Any] = {**options, "log_level": 0, "error_cb": self._remember}
        try:
            self._client = AdminClient(config)
        except KafkaException as exc:
            raise ConfigurationError(f"broker.options: {exc.args[0].str()}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        del self._client

    def _remember(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its own name; it says nothing about why
            self._met.append(error)

    def _left_s(self) -> float:
        return max(self._deadline - time.monotonic(), 0.1)

    def partition_counts(self) -> dict[str, int]:
        """Return the partition count of every topic on the broker."""
        with self._mapped_errors():
            found = self._client.list_topics(timeout=self._left_s()).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def differences(self) -> list[Difference]:
        """Compare with the table; as `plan`."""
        counts = self.partition_counts()
        configs = self._configs([name for name, _ in all_names() if name in counts])
        wanted_count = str(self._partitions)
        found: list[Difference] = []
        for name, topic in all_names():
            if name not in counts:
                found.append(Difference(name, "missing", "", None, wanted_count))
                continue
            if counts[name] != self._partitions:
                found.append(Difference(name, "partitions", "", str(counts[name]), wanted_count))
            found += [
                Difference(name, "config", key, configs[name].get(key), value)
                for key, value in wanted_config(name, topic).items()
                if configs[name].get(key) != value
            ]
        return found

    def _configs(self, names: list[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        with self._mapped_errors():
            answers = self._client.describe_configs(resources, request_timeout=self._left_s())
            return {
                resource.name: {key: entry.value for key, entry in answer.result(self._left_s()).items()}
                for resource, answer in answers.items()
            }

    def create(self, names: list[str]) -> None:
        """Create topics."""
        if not names:
            return
        table = dict(all_names())
        topics = [
            NewTopic(
                name,
                num_partitions=self._partitions,
                replication_factor=self._replication,
                config=wanted_config(name, table[name]),
            )
            for name in names
        ]
        with self._mapped_errors():
            self._finish(self._client.create_topics(topics, request_timeout=self._left_s()))

    def configure(self, differences: list[Difference]) -> None:
        """Set the configuration keys that differ; the others stay."""
        if not differences:
            return
        entries: dict[str, list[ConfigEntry]] = {}
        for difference in differences:
            entry = ConfigEntry(difference.key, difference.wanted, incremental_operation=AlterConfigOpType.SET)
            entries.setdefault(difference.topic, []).append(entry)
        resources = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=rows) for name, rows in entries.items()
        ]
        with self._mapped_errors():
            self._finish(self._client.incremental_alter_configs(resources, request_timeout=self._left_s()))

    def wait_until_mended(self) -> None:
        """Wait until the broker shows what its controller has already accepted."""
        while left := self.differences():
            if time.monotonic() > self._deadline:
                raise BrokerError(
                    f"broker {self._address} has accepted the changes and does not show them after {self._wait_s:g} s: "
                    + "; ".join(map(str, left))
                )
            time.sleep(PAUSE_S)

    def _finish(self, answers: Mapping[Any, Future[None]]) -> None:
        for answer in answers.values():
            try:
                answer.result(self._left_s())
            except KafkaException as exc:
                # Two that apply at the same time want the same.
                if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Map the client's errors to ours: who must act."""
        try:
            yield
        except (KafkaException, TimeoutError) as exc:
            error = exc.args[0] if isinstance(exc, KafkaException) else KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
            self._client.poll(0)  # hands over what the connections met
            refusal = next((met for met in [error, *self._met] if met.code() in OPERATOR), None)
            if refusal:
                raise ConfigurationError(f"broker {self._address}: {refusal.str()}") from exc
            if error.code() not in UNREACHABLE:
                raise BrokerError(f"broker {self._address}: {error.str()}") from exc
            raise BrokerError(
                f"no answer from the broker {self._address} within {self._wait_s:g} s "
                f"({(self._met or [error])[-1].str()}): "
                "start it (`headrace up` for a local one), or correct broker.bootstrap"
            ) from exc
