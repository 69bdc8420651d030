"""Questions to brokers of one's choice, for what no client library asks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.structs import TopicPartition
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from pipeline.config import Broker, client_options
from pipeline.delivery.credentials import faust_credentials
from pipeline.errors import BrokerError, ConfigurationError

CLIENT_ID = "headrace-questions"
NO_LEADER = -1
REFUSALS = frozenset({29, 30, 31, 53})
"""Error codes of a user that may not: topic, group, cluster, transactional id (Kafka's protocol guide)."""

Places = dict[str, list[int]]
"""Topic → partition numbers."""


class UnknownRequestError(BrokerError):
    """The broker is older than the request."""


class ClusterClient:
    """Connections to the brokers of a cluster; an asynchronous context manager.

    Args:
        broker: where the cluster is, how to log in, and how long an answer may take.

    Each call, the entry too, raises a BrokerError where a broker does not answer in time, an `UnknownRequestError`
    where it is too old for the request, and a ConfigurationError where the user may not ask.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._servers = client_options(broker)["bootstrap.servers"]
        self._client: Any = None
        self._metadata: Any = None
        self._log_level = logging.NOTSET

    async def __aenter__(self) -> Self:
        log = logging.getLogger("aiokafka")
        self._log_level = log.level
        log.setLevel(logging.CRITICAL)  # what it meets is raised here, once
        self._client = AIOKafkaClient(
            bootstrap_servers=self._servers,
            client_id=CLIENT_ID,
            request_timeout_ms=int(self._broker.wait_s * 1000),
            **credentials_to_aiokafka_auth(faust_credentials(self._broker)),
        )
        try:
            with self._mapped_errors(self._servers):
                await self._client.bootstrap()
                self._metadata = await self._client.fetch_all_metadata()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await self._client.close()
        logging.getLogger("aiokafka").setLevel(self._log_level)  # a worker's consumer has things to say, too

    @property
    def nodes(self) -> list[int]:
        """Ids of the brokers."""
        return sorted(node.nodeId for node in self._metadata.brokers())

    @property
    def topics(self) -> set[str]:
        """Names of all topics, the cluster's own too."""
        names: set[str] = self._metadata.topics(exclude_internal_topics=False)
        return names

    def leaders(self, topics: Iterable[str]) -> dict[int, Places]:
        """Return the partitions of topics by the broker that leads them, `NO_LEADER` for those that none leads."""
        led: dict[int, Places] = {}
        for topic in topics:
            for number in sorted(self._metadata.partitions_for_topic(topic) or ()):
                leader = self._metadata.leader_for_partition(TopicPartition(topic, number))
                led.setdefault(leader, {}).setdefault(topic, []).append(number)
        return led

    async def coordinator(self, group: str) -> int:
        """Return the broker that coordinates a consumer group."""
        return await self._coordinator(CoordinationType.GROUP, group)

    async def transaction_coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates the transactions of an id."""
        return await self._coordinator(CoordinationType.TRANSACTION, transactional_id)

    async def _coordinator(self, kind: int, key: str) -> int:
        with self._mapped_errors(f"coordinator of {key}"):
            node: int = await self._client.coordinator_lookup(kind, key)
        return node

    async def ask(self, node: int, request: Any) -> Any:
        """Return a broker's answer to a request of aiokafka's kind."""
        with self._mapped_errors(f"broker {node}"):
            return await self._client.send(node, request)

    @contextlib.contextmanager
    def _mapped_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (IncompatibleBrokerVersion, NotImplementedError) as exc:
            raise UnknownRequestError(f"{what}: {exc}") from exc
        except (KafkaError, TimeoutError) as exc:
            if (code := getattr(exc, "errno", 0)) in REFUSALS:
                check(code, what)
            raise BrokerError(f"{what}: {exc}" if str(exc) else f"{what}: {type(exc).__name__}") from exc


def check(code: int, what: str) -> None:
    """Raise what an error code in an answer stands for; 0 is none.

    Args:
        code: as in the answer.
        what: was asked for.

    Raises:
        ConfigurationError: the user may not.
        BrokerError: anything else.
    """
    if code in REFUSALS:
        raise ConfigurationError(f"{what}: {for_code(code).__name__}: the user of broker.options may not")
    if code:
        raise BrokerError(f"{what}: {for_code(code).__name__}")
