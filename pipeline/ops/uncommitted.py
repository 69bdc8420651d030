"""What open transactions hold back: the records between a partition's last stable offset and its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from aiokafka.protocol.offset import OffsetRequest

from pipeline.delivery.cluster_client import NO_LEADER, ClusterClient

CONSUMER = -1
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Partition = tuple[str, int]
"""Topic and number."""


class Tail(NamedTuple):
    """The end of a partition.

    Attributes:
        last_stable: offset at which a reader of what is committed stops.
        held_back: offsets from there to the end of the log.
    """

    last_stable: int
    held_back: int


class StandingTail(NamedTuple):
    """A tail as a watch has seen it.

    Attributes:
        topic: its name.
        partition: number.
        held_back: offsets behind the last stable one.
        stands_s: for how long the last stable offset has not moved while something was held back; 0 where nothing is.
    """

    topic: str
    partition: int
    held_back: int
    stands_s: float


async def read_tails(client: ClusterClient, topics: Iterable[str]) -> dict[Partition, Tail]:
    """Return the tail of every partition of topics; one that can't be read is absent.

    Raises:
        BrokerError: a broker does not answer.
    """
    tails: dict[Partition, Tail] = {}
    for node, places in client.leaders(topics).items():
        if node == NO_LEADER:
            continue
        wanted = [(topic, [(number, LATEST) for number in numbers]) for topic, numbers in places.items()]
        # The end first: read the other way round, what came in between would look held back.
        ends = dict(_offsets(await client.ask(node, OffsetRequest(CONSUMER, READ_UNCOMMITTED, wanted))))
        for place, stable in _offsets(await client.ask(node, OffsetRequest(CONSUMER, READ_COMMITTED, wanted))):
            if place in ends:
                tails[place] = Tail(stable, max(0, ends[place] - stable))
    return tails


def _offsets(answer: object) -> Iterator[tuple[Partition, int]]:
    for topic, partitions in answer.topics:  # type: ignore[attr-defined]  # aiokafka is not followed
        for number, error, _, offset in partitions:
            if not error:
                yield (topic, number), offset


class TailWatch:
    """Tells tails that stand still from those of a busy partition, where some transaction is open at any time."""

    def __init__(self) -> None:
        self._seen: dict[Partition, tuple[Tail, float]] = {}

    def look(self, tails: Mapping[Partition, Tail], now_s: float) -> None:
        """Take what was read at `now_s`, seconds of a clock that only goes forward."""
        self._seen = {place: (tail, self._since(place, tail, now_s)) for place, tail in tails.items()}

    def _since(self, place: Partition, tail: Tail, now_s: float) -> float:
        before, since_s = self._seen.get(place, (None, now_s))
        stands = before is not None and before.held_back and before.last_stable == tail.last_stable
        return since_s if stands else now_s

    def standing(self, now_s: float) -> list[StandingTail]:
        """Return all tails with how long each has stood still at `now_s`."""
        return [
            StandingTail(topic, number, tail.held_back, now_s - since_s if tail.held_back else 0.0)
            for (topic, number), (tail, since_s) in self._seen.items()
        ]
