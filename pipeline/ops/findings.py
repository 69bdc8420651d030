"""What `headrace doctor` finds in a cluster: one thing that is wrong, what it means, what to do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.delivery.open_transactions import REAPER_S, OpenTransaction
from pipeline.ops.topics import Difference
from pipeline.ops.uncommitted import Partition, Tail

REAPER_PROPERTY = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
REAPER_DEFAULT_MS = "10000"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        kind: machine-readable, one of `KINDS`.
        place: topic, topic/partition, group or broker.
        text: what is wrong and what follows from it.
        action: what to do; a command where there is one.
        details: figures for programs.
    """

    kind: str
    place: str
    text: str
    action: str
    details: Mapping[str, Any] = field(default_factory=dict)


KINDS: Mapping[str, str] = {
    "topic_missing": "a topic of the table is not there",
    "topic_config": "a topic is configured otherwise than the table says",
    "topic_partitions": "a topic has another partition count than is configured",
    "no_leader": "no broker leads a partition: it can be neither read nor written",
    "broker_property": "a broker ends overdue transactions at another pace than its default",
    "hanging_transaction": "a transaction is open in a partition, and no coordinator will end it",
    "unknown_transaction": "the same, but so young that its coordinator may just be moving",
    "overdue_transaction": "a transaction is older than its time-out, and its coordinator has not ended it",
    "unstable_offsets": "committed offsets of a group are held by an open transaction",
    "offset_beyond_end": "a partition ends before its committed offset: truncated, or made anew",
    "unreadable_map": "commit metadata that can't be read: what it covered is done again",
    "no_members": "no worker of a stage is in its group",
    "unassigned_partitions": "partitions that no member of the group has",
    "not_examined": "a part of the cluster could not be looked at",
}
"""Every kind of finding and what it stands for."""


def topic_findings(differences: Iterable[Difference]) -> list[Finding]:
    """Return what differs from the table of topics."""
    return [
        Finding(
            f"topic_{difference.kind}",
            difference.topic,
            str(difference).removeprefix(f"{difference.topic}: "),
            "the count is fixed for a cluster's life: set topics.partitions to it"
            if difference.kind == "partitions"
            else "headrace topics apply",
            {"key": difference.key, "found": difference.found, "wanted": difference.wanted},
        )
        for difference in differences
    ]


def leader_findings(leaderless: Mapping[str, Sequence[int]]) -> list[Finding]:
    """Return a finding for each partition that none leads."""
    return [
        Finding(
            "no_leader",
            f"{topic}/{partition}",
            "no broker leads it: it can be neither read nor written",
            "start the brokers that have its replicas",
            {"topic": topic, "partition": partition},
        )
        for topic, partitions in leaderless.items()
        for partition in partitions
    ]


def property_findings(found: Mapping[int, str | None]) -> list[Finding]:
    """Return the brokers whose reaper of transactions does not run at its default pace.

    Args:
        found: broker id → value of `REAPER_PROPERTY`; None where the broker does not tell.
    """
    return [
        Finding(
            "broker_property",
            f"broker {node}",
            f"{REAPER_PROPERTY} is {value}: a broker that comes back from a crash and ends overdue transactions before "
            "it serves its partitions leaves them hanging",
            f"remove the property (its default is {REAPER_DEFAULT_MS}) and restart the broker",
            {"broker": node, "found": value, "wanted": REAPER_DEFAULT_MS},
        )
        for node, value in found.items()
        if value not in {None, REAPER_DEFAULT_MS}
    ]


def transaction_findings(
    transactions: Sequence[OpenTransaction], tails: Mapping[Partition, Tail], now: float, limit_s: float
) -> list[Finding]:
    """Return the open transactions that nobody ends, or not in time.

    Args:
        transactions: all that are open, in the order in which they are to be ended.
        tails: how much each partition holds back.
        now: seconds since the epoch.
        limit_s: age from which on one that no coordinator knows hangs.
    """
    commands: dict[int, str] = {}
    for found in transactions:
        if found.hangs(now, limit_s):
            commands[found.producer_id] = f"{commands.get(found.producer_id, 'headrace doctor')} --abort {found.place}"
    findings = []
    for found in transactions:
        if found.hangs(now, limit_s):
            kind, text = "hanging_transaction", f"{_who(found)} and no coordinator will ever end it. {_held(found)}"
            action = f"stop the stage's workers, then: {commands[found.producer_id]}"
        elif not found.owned:
            kind, text = "unknown_transaction", f"{_who(found)} and no coordinator knows of it. {_held(found)}"
            action = f"look again in {found.written_at + limit_s - now:.0f} s: then it hangs"
        elif found.overdue(now):
            kind, text = "overdue_transaction", f"{_who(found)} and is older than its time-out. {_held(found)}"
            action = f"look again in {REAPER_S:.0f} s; if it stays, look at the log of its coordinator"
        else:
            continue
        findings.append(Finding(kind, "/".join(map(str, found.place[:2])), text, action, _details(found, tails, now)))
    return findings


def _who(found: OpenTransaction) -> str:
    name = f" ({found.coordinated.transactional_id})" if found.coordinated else ""
    return (
        f"producer {found.producer_id}{name}, epoch {found.producer_epoch}, has a transaction open from offset "
        f"{found.place.start_offset} on, last written at {_time(found.written_at)},"
    )


def _held(found: OpenTransaction) -> str:
    if found.holds_offsets:
        return "It holds committed offsets back: workers of their group refuse to work"
    return "Readers of what is committed stop there"


def _time(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).isoformat(timespec="seconds")


def _details(found: OpenTransaction, tails: Mapping[Partition, Tail], now: float) -> dict[str, Any]:
    place, known = found.place, found.coordinated
    tail = tails.get((place.topic, place.partition))
    return {
        **place._asdict(),
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transactional_id": known and known.transactional_id,
        "coordinator_state": known and known.state,
        "written_at": _time(found.written_at),
        "age_s": round(now - found.written_at, 3),
        "holds_offsets": found.holds_offsets,
        "held_back": tail and tail.held_back,
    }
