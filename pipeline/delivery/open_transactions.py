"""Transactions that are open in partitions, as the leaders of these and the coordinators tell (KIP-664)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.delivery.cluster_client import ClusterClient, Places, check
from pipeline.delivery.transaction_requests import DescribeProducersRequest, DescribeTransactionsRequest
from pipeline.errors import ConfigurationError

OFFSETS_TOPIC = "__consumer_offsets"
REAPER_S = 10.0
"""How often a coordinator looks for overdue transactions (its property's default)."""
NO_TRANSACTION = -1
MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
_NUMBER: Final = re.compile("[0-9]{1,19}")


def read_number(text: str, most: int) -> int | None:
    """Return the number that a partition or an offset is written as; None where there is none, or it is over `most`."""
    number = int(text) if _NUMBER.fullmatch(text) else -1
    return number if 0 <= number <= most else None


class Place(NamedTuple):
    """Where a transaction is open; names it, for at an offset only one can begin.

    Attributes:
        topic: its name.
        partition: number.
        start_offset: of the transaction's first record there.
    """

    topic: str
    partition: int
    start_offset: int

    def __str__(self) -> str:
        """As `headrace doctor --abort` takes it."""
        return f"{self.topic}/{self.partition}/{self.start_offset}"

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read what `str` writes.

        Raises:
            ConfigurationError: it is not of that form.
        """
        topic, _, rest = text.partition("/")
        partition, _, offset = rest.partition("/")
        number, start = read_number(partition, MAX_PARTITION), read_number(offset, MAX_OFFSET)
        if not topic or number is None or start is None:
            raise ConfigurationError(f"{text!r} is not TOPIC/PARTITION/START_OFFSET")
        return cls(topic, number, start)


class Coordinated(NamedTuple):
    """What a coordinator knows of a producer's transaction.

    Attributes:
        transactional_id: of the producer.
        state: `Ongoing`, `PrepareAbort` and so on.
        started_at: when it began, seconds since the epoch; negative where none is under way.
        timeout_s: after which the coordinator ends it.
        partitions: topic and number of those that it will end it in.
    """

    transactional_id: str
    state: str
    started_at: float
    timeout_s: float
    partitions: frozenset[tuple[str, int]]


class OpenTransaction(NamedTuple):
    """A transaction that is open in one partition: readers of what is committed stop at its start.

    Attributes:
        place: where.
        producer_id: whose.
        producer_epoch: that its last record there had.
        coordinator_epoch: of the last marker there; negative where there was none.
        written_at: timestamp of its last record there, seconds since the epoch.
        coordinated: what a coordinator knows of the producer; None where none knows it.
    """

    place: Place
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    written_at: float
    coordinated: Coordinated | None = None

    @property
    def owned(self) -> bool:
        """Whether a coordinator will end it."""
        return self.coordinated is not None and self.place[:2] in self.coordinated.partitions

    @property
    def holds_offsets(self) -> bool:
        """Whether what it holds back are committed offsets."""
        return self.place.topic == OFFSETS_TOPIC

    def hangs(self, now: float, limit_s: float) -> bool:
        """Whether nobody will end it.

        Args:
            now: seconds since the epoch.
            limit_s: only one that is older counts: a coordinator that is just moving may not be seen.
        """
        return not self.owned and now - self.written_at > limit_s

    def overdue(self, now: float) -> bool:
        """Whether its coordinator should have ended it by now."""
        known = self.coordinated
        return self.owned and known is not None and 0 <= known.started_at < now - known.timeout_s - REAPER_S


async def read_open(client: ClusterClient, led: Mapping[int, Places]) -> list[OpenTransaction]:
    """Return the transactions that are open in partitions, one request for each broker.

    Args:
        client: of the cluster.
        led: partitions by the broker that leads them.

    Raises:
        BrokerError: a broker does not answer, or leads a partition no more.
        ConfigurationError: the user may not look.
    """
    answers = await asyncio.gather(
        *(client.ask(node, DescribeProducersRequest(places)) for node, places in led.items())
    )
    found = []
    for answer in answers:
        for topic, partitions, _ in answer.topics:
            for partition, code, _, producers, _ in partitions:
                check(code, f"producers of {topic}/{partition}")
                found += [
                    OpenTransaction(
                        Place(topic, partition, start), producer_id, epoch, coordinator_epoch, written_ms / 1000
                    )
                    for producer_id, epoch, _, written_ms, coordinator_epoch, start, _ in producers
                    if start != NO_TRANSACTION
                ]
    return found


async def read_coordinated(
    client: ClusterClient, node: int, transactional_ids: Sequence[str]
) -> dict[int, Coordinated]:
    """Return what a coordinator knows of transactional ids, by producer id.

    Args:
        client: of the cluster.
        node: the broker that coordinates them.
        transactional_ids: which.

    Raises:
        BrokerError: the broker does not answer, or does not coordinate one of them.
        ConfigurationError: the user may not look.
    """
    answer = await client.ask(node, DescribeTransactionsRequest(transactional_ids))
    known = {}
    for code, name, state, timeout_ms, started_ms, producer_id, _, topics, _ in answer.transaction_states:
        check(code, f"transaction of {name}")
        partitions = frozenset((topic, number) for topic, numbers, _ in topics for number in numbers)
        known[producer_id] = Coordinated(name, state, started_ms / 1000, timeout_ms / 1000, partitions)
    return known
