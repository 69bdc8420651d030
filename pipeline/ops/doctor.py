"""Looks at a whole cluster and says what is wrong with it; ends hanging transactions, and only those."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from aiokafka.protocol.admin import DescribeConfigsRequest

from pipeline.config import Settings, client_options
from pipeline.delivery.cluster_client import NO_LEADER, ClusterClient, check
from pipeline.delivery.open_transactions import OFFSETS_TOPIC, REAPER_S, OpenTransaction, Place
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.ops.findings import (
    REAPER_PROPERTY,
    Finding,
    leader_findings,
    property_findings,
    topic_findings,
    transaction_findings,
)
from pipeline.ops.group_checks import NOBODY, examine_offsets, member_findings, not_examined, read_members
from pipeline.ops.topics import plan
from pipeline.ops.transactions import abort, open_transactions
from pipeline.ops.uncommitted import read_tails
from pipeline.topics import INPUTS, STAGES, all_names, group_id

BROKER_RESOURCE = 4


def hanging_after_s(settings: Settings) -> float:
    """Age from which on an open transaction that no coordinator knows hangs: no worker's is ever older."""
    return settings.delivery.transaction_timeout_s + REAPER_S


def examine(settings: Settings) -> list[Finding]:
    """Look at everything and change nothing.

    Raises:
        BrokerError: no broker answers.
        ConfigurationError: the broker refuses the client.
    """
    options = client_options(settings.broker)
    differences = plan(options, settings)
    missing = {difference.topic for difference in differences if difference.kind == "missing"}
    names = [name for name, _ in all_names() if name not in missing]
    findings = topic_findings(differences)
    findings += asyncio.run(_examine_cluster(settings, names))
    counts = {found.topic: int(found.found or 0) for found in differences if found.kind == "partitions"}

    def examine_group(stage: str) -> list[Finding]:
        inputs = [topic.name for topic in INPUTS[stage] if topic.name not in missing]
        partitions = min([settings.topics.partitions, *(counts[name] for name in inputs if name in counts)])
        try:
            return examine_offsets(options, group_id(stage), inputs, partitions) if inputs else []
        except BrokerError as exc:
            return [not_examined(group_id(stage), exc)]

    with ThreadPoolExecutor(len(STAGES)) as pool:  # each waits for its own open transactions
        for found in pool.map(examine_group, STAGES):
            findings += found
    return findings


async def _examine_cluster(settings: Settings, names: Sequence[str]) -> list[Finding]:
    findings: list[Finding] = []
    async with ClusterClient(settings.broker) as client:
        findings += leader_findings(client.leaders(names).get(NO_LEADER, {}))
        for check_part in (_examine_brokers, _examine_transactions, _examine_members):
            try:
                findings += await check_part(client, settings, names)
            except (BrokerError, ConfigurationError) as exc:
                findings.append(not_examined(check_part.__name__.removeprefix("_examine_"), exc))
    return findings


async def _examine_brokers(client: ClusterClient, settings: Settings, names: Sequence[str]) -> list[Finding]:
    del settings, names
    found: dict[int, str | None] = {}
    for node in client.nodes:
        answer = await client.ask(node, DescribeConfigsRequest([(BROKER_RESOURCE, str(node), [REAPER_PROPERTY])]))
        code, _, _, _, entries = answer.resources[0]
        check(code, f"configuration of broker {node}")
        found[node] = next((value for name, value, *_ in entries if name == REAPER_PROPERTY), None)
    return property_findings(found)


async def _examine_transactions(client: ClusterClient, settings: Settings, names: Sequence[str]) -> list[Finding]:
    topics = [*names, OFFSETS_TOPIC]
    transactions = await open_transactions(client, topics)
    tails = await read_tails(client, {found.place.topic for found in transactions})
    return transaction_findings(transactions, tails, time.time(), hanging_after_s(settings))


async def _examine_members(client: ClusterClient, settings: Settings, names: Sequence[str]) -> list[Finding]:
    findings: list[Finding] = []
    for stage, topics in INPUTS.items():
        # The offsets topic comes with a cluster's first group, and before it no broker coordinates any.
        members = await read_members(client, group_id(stage)) if OFFSETS_TOPIC in client.topics else NOBODY
        inputs = [topic.name for topic in topics if topic.name in names]
        findings += member_findings(group_id(stage), members, inputs, settings.topics.partitions)
    return findings


def end_hanging(settings: Settings, places: Sequence[Place]) -> list[OpenTransaction]:
    """End hanging transactions, as aborted: their outputs stay invisible and their records are done again.

    Args:
        settings: the cluster, and what age hangs.
        places: where they begin; committed offsets come last, whatever the order.

    Returns:
        What was ended.

    Raises:
        ConfigurationError: something at one of the places is not hanging, or offsets would be freed while the outputs
            of the same producer still hang; nothing was changed.
        BrokerError: the cluster does not answer, or refuses.
    """
    return asyncio.run(_end_hanging(settings, places))


async def _end_hanging(settings: Settings, places: Sequence[Place]) -> list[OpenTransaction]:
    names = {name for name, _ in all_names()} | {place.topic for place in places} | {OFFSETS_TOPIC}
    async with ClusterClient(settings.broker) as client:
        for place in places:
            _check_is_there(client, place)
        found = await open_transactions(client, sorted(names & client.topics))
        chosen = choose(found, places, time.time(), hanging_after_s(settings))
        for hanging in chosen:
            await abort(client, hanging)
    return chosen


def _check_is_there(client: ClusterClient, place: Place) -> None:
    numbers = {number for led in client.leaders([place.topic]).values() for number in led[place.topic]}
    if not numbers:
        raise ConfigurationError(f"there is no topic {place.topic}{_nearest(place.topic, client.topics)}")
    if place.partition not in numbers:
        raise ConfigurationError(f"{place.topic} has no partition {place.partition}, but 0 to {max(numbers)}")


def _nearest(name: str, names: Collection[str]) -> str:
    found = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


def choose(
    found: Sequence[OpenTransaction], places: Sequence[Place], now: float, limit_s: float
) -> list[OpenTransaction]:
    """Return the transactions that are to be ended, in their order.

    Args:
        found: all that are open, in order.
        places: which are asked for.
        now: seconds since the epoch.
        limit_s: age from which on one that no coordinator knows hangs.

    Raises:
        ConfigurationError: as `end_hanging`.
    """
    by_place = {transaction.place: transaction for transaction in found}
    for place in places:
        if place not in by_place:
            raise ConfigurationError(
                f"no transaction is open in {place.topic}/{place.partition} from {place.start_offset}"
            )
        if not by_place[place].hangs(now, limit_s):
            raise ConfigurationError(_not_hanging(by_place[place], now, limit_s))
    chosen = [transaction for transaction in found if transaction.place in places]
    # Offsets that are stable let the producer's worker begin, and its next commit would publish what still hangs.
    freed = {transaction.producer_id for transaction in chosen if transaction.holds_offsets}
    left = [
        str(transaction.place)
        for transaction in found
        if transaction.producer_id in freed and transaction.place not in places and transaction.hangs(now, limit_s)
    ]
    if left:
        raise ConfigurationError(
            f"the same producer hangs in {', '.join(left)} too: end those with it, or its next commit publishes them"
        )
    return chosen


def _not_hanging(transaction: OpenTransaction, now: float, limit_s: float) -> str:
    known = transaction.coordinated
    if transaction.owned and known is not None:
        return f"{transaction.place} does not hang: its coordinator ends it ({known.transactional_id}, {known.state})"
    left_s = transaction.written_at + limit_s - now
    return (
        f"{transaction.place} is too young to say that it hangs: its coordinator may be moving; try in {left_s:.0f} s"
    )
