"""Transactions that are open on the cluster, the ones that nobody will ever end, and their end.

A partition's leader knows which producers have a transaction open in it and from which offset on; a coordinator knows
which transactions it will end, and in which partitions. One that is open in a partition and that no coordinator counts
there hangs (KIP-664, and as Kafka's own `kafka-transactions.sh find-hanging` decides).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable

from pipeline.delivery.cluster_client import NO_LEADER, ClusterClient, Places, check
from pipeline.delivery.open_transactions import Coordinated, OpenTransaction, read_coordinated, read_open
from pipeline.delivery.transaction_requests import AbortMarkersRequest, ListTransactionsRequest
from pipeline.errors import BrokerError

COORDINATORS_TOPIC = "__transaction_state"
CLEARED_S = 10.0
SECOND_LOOK_S = 1.0
PAUSE_S = 0.05


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
    seen = await read_open(client, led)
    known = await _coordinated(client, {found.producer_id for found in seen})
    return [found._replace(coordinated=known.get(found.producer_id)) for found in seen]


async def _coordinated(client: ClusterClient, producer_ids: Collection[int]) -> dict[int, Coordinated]:
    known: dict[int, Coordinated] = {}
    for node in client.nodes if producer_ids else ():
        listed = await client.ask(node, ListTransactionsRequest(sorted(producer_ids)))
        check(listed.error_code, f"transactions that broker {node} coordinates")
        names = [name for name, _, _, _ in listed.transaction_states]
        if not names:
            continue
        known |= await read_coordinated(client, node, names)
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
    while hanging[:2] in {found[:2] for found in await read_open(client, {node: {place.topic: [place.partition]}})}:
        if time.monotonic() > deadline:
            raise BrokerError(f"{place} is still open {CLEARED_S:g} s after its marker was written")
        await asyncio.sleep(PAUSE_S)
