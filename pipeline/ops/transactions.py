"""Transactions that are open on the cluster, the ones that nobody will ever end, and their end.

A partition's leader knows which producers have a transaction open in it and from which offset on; a coordinator knows
which transactions it will end, and in which partitions. One that is open in a partition and that no coordinator counts
there hangs (KIP-664, and as Kafka's own `kafka-transactions.sh find-hanging` decides).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

from pipeline.errors import BrokerError, ConfigurationError
from pipeline.ops.cluster_client import NO_LEADER, ClusterClient, Places, check
from pipeline.ops.transaction_requests import (
    AbortMarkersRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

OFFSETS_TOPIC = "__consumer_offsets"
COORDINATORS_TOPIC = "__transaction_state"
REAPER_S = 10.0
"""How often a coordinator looks for overdue transactions (its property's default)."""
CLEARED_S = 10.0
SECOND_LOOK_S = 1.0
PAUSE_S = 0.05
NO_TRANSACTION = -1


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
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise ConfigurationError(f"{text!r} is not TOPIC/PARTITION/START_OFFSET")
        return cls(topic, int(partition), int(offset))


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


async def open_transactions(
    client: ClusterClient, topics: Iterable[str], second_look_s: float = SECOND_LOOK_S
) -> list[OpenTransaction]:
    """Return the transactions that are open in the partitions of topics, in order of producer and place.

    Args:
        client: of the cluster.
        topics: where to look.
        second_look_s: after which those that no coordinator counts are looked at again: one of them may have ended
            between the two questions, and a coordinator that has just come back knows nothing before it reads its log.

    Raises:
        BrokerError: a broker does not answer, or a coordinator is on the move: nothing is known then.
        ConfigurationError: the user may not look.
    """
    if NO_LEADER in client.leaders([COORDINATORS_TOPIC]):
        raise BrokerError("transactions: a part of their coordinators has no broker")
    led = client.leaders(topics)
    led.pop(NO_LEADER, None)
    seen = await _look(client, led)
    if not all(found.owned for found in seen):
        await asyncio.sleep(second_look_s)
        before = {found[:2]: found for found in seen}
        again = await _look(client, led)
        seen = [found if found.owned else before[found[:2]] for found in again if found.owned or found[:2] in before]
    # Offsets last: while they are unstable no worker of the group works.
    return sorted(seen, key=lambda found: (found.producer_id, found.holds_offsets, found.place))


async def _look(client: ClusterClient, led: dict[int, Places]) -> list[OpenTransaction]:
    seen = await _open(client, led)
    known = await _coordinated(client, {found.producer_id for found in seen})
    return [found._replace(coordinated=known.get(found.producer_id)) for found in seen]


async def _open(client: ClusterClient, led: dict[int, Places]) -> list[OpenTransaction]:
    found = []
    for node, places in led.items():
        answer = await client.ask(node, DescribeProducersRequest(places))
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


async def _coordinated(client: ClusterClient, producer_ids: Collection[int]) -> dict[int, Coordinated]:
    known: dict[int, Coordinated] = {}
    for node in client.nodes if producer_ids else ():
        listed = await client.ask(node, ListTransactionsRequest(sorted(producer_ids)))
        check(listed.error_code, f"transactions that broker {node} coordinates")
        names = [name for name, _, _, _ in listed.transaction_states]
        if not names:
            continue
        described = await client.ask(node, DescribeTransactionsRequest(names))
        for code, name, state, timeout_ms, started_ms, producer_id, _, topics, _ in described.transaction_states:
            check(code, f"transaction of {name}")
            partitions = frozenset((topic, number) for topic, numbers, _ in topics for number in numbers)
            known[producer_id] = Coordinated(name, state, started_ms / 1000, timeout_ms / 1000, partitions)
    return known


async def abort(client: ClusterClient, hanging: OpenTransaction) -> None:
    """End a hanging transaction in its partition, as aborted, and wait until it shows.

    Args:
        client: of the cluster.
        hanging: as `open_transactions` has found it.

    Raises:
        BrokerError: the leader refuses the marker, or the transaction is open for ten seconds more.
        ConfigurationError: the user may not.
    """
    place = hanging.place
    node = next(
        node for node, places in client.leaders([place.topic]).items() if place.partition in places[place.topic]
    )
    answer = await client.ask(
        node,
        AbortMarkersRequest(
            place.topic,
            place.partition,
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            coordinator_epoch=max(0, hanging.coordinator_epoch),
        ),
    )
    for _, topics, _ in answer.markers:
        for topic, partitions, _ in topics:
            for partition, code, _ in partitions:
                check(code, f"abort marker of producer {hanging.producer_id} in {topic}/{partition}")
    deadline = time.monotonic() + CLEARED_S
    while hanging[:2] in {found[:2] for found in await _open(client, {node: {place.topic: [place.partition]}})}:
        if time.monotonic() > deadline:
            raise BrokerError(f"{place} is still open {CLEARED_S:g} s after its marker was written")
        await asyncio.sleep(PAUSE_S)
