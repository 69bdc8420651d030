"""What `headrace doctor` looks at in one consumer group: offsets, their maps, members."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import MemberAssignment
from faust.types import TP

from pipeline.delivery.cluster_client import ClusterClient, check
from pipeline.delivery.stable_offsets import StableOffsets
from pipeline.errors import BrokerError
from pipeline.ops.findings import Finding
from pipeline.ops.lag import LagReader, PartitionLag

STABLE_S = 1.0
"""A transaction of a working member ends within it."""
SETTLED = "Stable"
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})


class Members(NamedTuple):
    """Who is in a group.

    Attributes:
        state: the coordinator's word for it: `Stable`, `Empty`, `PreparingRebalance` and so on.
        size: how many members.
        assigned: what they have together.
    """

    state: str
    size: int
    assigned: frozenset[TP]


NOBODY = Members("Dead", 0, frozenset())
"""Of a group that never was."""


async def read_members(client: ClusterClient, group: str) -> Members:
    """Ask a group's coordinator who is in it.

    Raises:
        BrokerError: it does not answer, or is on the move.
        ConfigurationError: the user may not look.
    """
    answer = await client.ask(await client.coordinator(group), DescribeGroupsRequest([group]))
    code, _, state, _, _, members, *_ = answer.groups[0]
    check(code, f"members of {group}")
    assigned = frozenset(
        TP(topic, partition)
        for *_, assignment in members
        if assignment
        for topic, partitions in MemberAssignment.decode(assignment).assignment
        for partition in partitions
    )
    return Members(state, len(members), assigned)


def member_findings(group: str, members: Members, topics: Sequence[str], partitions: int) -> list[Finding]:
    """Return a finding where nobody is in the group, or nobody has some of its partitions; none while it rebalances."""
    if members.state in WITHOUT_MEMBERS:
        stage = group.rpartition("-")[2]
        return [
            Finding(
                "no_members",
                group,
                "no worker is in the group: nothing of its topics is worked on",
                f"headrace worker {stage}",
                {"state": members.state},
            )
        ]
    left = [TP(topic, number) for topic in topics for number in range(partitions)]
    left = [tp for tp in left if tp not in members.assigned] if members.state == SETTLED else []
    if not left:
        return []
    return [
        Finding(
            "unassigned_partitions",
            group,
            f"none of its {members.size} members has {_names(left)}: nothing of them is worked on",
            "look at the members' logs; all of one group must read the same topics: one release, one configuration",
            {"partitions": [list(tp) for tp in left]},
        )
    ]


def lag_findings(lags: Sequence[PartitionLag]) -> Iterator[Finding]:
    """Yield the partitions whose committed offset or its map can't be used."""
    for lag in lags:
        place, committed = f"{lag.topic}/{lag.partition}", lag.committed
        if committed is not None and committed > lag.high_watermark:
            yield Finding(
                "offset_beyond_end",
                place,
                f"{lag.group} has committed {committed}, and the partition ends at {lag.high_watermark}: it was "
                "truncated or made anew. Workers refuse it: what comes next would be taken for finished",
                f"stop the stage's workers, then: kafka-consumer-groups.sh --group {lag.group} --topic {lag.topic} "
                "--reset-offsets --to-earliest --execute",
                _details(lag),
            )
        if lag.offset_map is not None and not lag.offset_map.readable:
            yield Finding(
                "unreadable_map",
                place,
                f"the commit metadata of {lag.group} can't be read: what was finished beyond {committed} is done again",
                "find out who else commits for the group; the next commit of a worker mends it",
                _details(lag),
            )


def unstable_findings(group: str, unstable: Sequence[TP]) -> list[Finding]:
    """Return a finding where offsets of a group are held by an open transaction."""
    if not unstable:
        return []
    return [
        Finding(
            "unstable_offsets",
            group,
            f"offsets of {_names(unstable)} are held by an open transaction: no worker of the group begins to work",
            "end what hangs in __consumer_offsets (above); where nothing hangs, it ends by itself: look again",
            {"partitions": [list(tp) for tp in unstable]},
        )
    ]


def examine_offsets(options: Mapping[str, str], group: str, topics: Sequence[str], partitions: int) -> list[Finding]:
    """Look at a group's committed offsets. Blocking.

    Args:
        options: librdkafka options of the cluster.
        group: consumer group.
        topics: its inputs, as far as they are there.
        partitions: of each.

    Raises:
        BrokerError: they can't be read.
    """
    quiet = {**options, "log_level": "0"}
    with LagReader(quiet) as reader:
        lags = reader.read(group, topics, partitions)
    unstable = StableOffsets(quiet, group).unstable(topics, partitions, STABLE_S)
    return [*lag_findings(lags), *unstable_findings(group, unstable)]


def not_examined(what: str, error: BrokerError | Exception) -> Finding:
    """Return the finding that something could not be looked at."""
    return Finding("not_examined", what, str(error), "docs/operations/broker.md: what the user must be allowed to do")


def _names(partitions: Collection[TP]) -> str:
    return ", ".join(f"{tp.topic}/{tp.partition}" for tp in partitions)


def _details(lag: PartitionLag) -> dict[str, object]:
    return {
        "group": lag.group,
        "topic": lag.topic,
        "partition": lag.partition,
        "committed": lag.committed,
        "end": lag.high_watermark,
    }
