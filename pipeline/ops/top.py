"""What is under way: the frontier workers' answers, the lags of the lanes, and the outcomes of the last minute."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from pipeline.config import Settings, client_options
from pipeline.contracts.codec import Codecs
from pipeline.ops.control import ControlClient
from pipeline.ops.lag import LagReader
from pipeline.ops.recent_outcomes import Rates, RecentOutcomes
from pipeline.topics import LANES, group_id

STAGE: Final = "frontier"
ANSWER_S: Final = 3.0
RATED: Final = ("seen", "done", "links_received")
"""Totals that only grow, or nearly so: their growth is a rate."""


class Answers(NamedTuple):
    """What the workers said, put together.

    Attributes:
        at_s: when, seconds on a clock that does not step back.
        workers: that own a partition, in order.
        partitions: number → totals.
        domains: rows of `pipeline.frontier.overview.DomainRow`.
    """

    at_s: float
    workers: tuple[str, ...]
    partitions: Mapping[int, Mapping[str, int]]
    domains: tuple[Mapping[str, Any], ...]


class Top:
    """Looks again and again; a context manager.

    Args:
        settings: with the address of a broker.
        codecs: contracts.
        domains: how many are wanted, of those that wait longest and of those with most out.
    """

    def __init__(self, settings: Settings, codecs: Codecs, domains: int) -> None:
        options = client_options(settings.broker)
        self._partitions = settings.topics.partitions
        self._domains = domains
        self._client = ControlClient(options, codecs)
        self._lags = LagReader(options)
        self._outcomes = RecentOutcomes(options, codecs, self._partitions)
        self._before: Answers | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lags.close()
        self._outcomes.__exit__(kind, error, trace)

    def look(self) -> dict[str, Any]:
        """Return what is under way now, as `headrace top --json` prints it (docs/operations/explain.md).

        Raises:
            BrokerError: the cluster did not answer.
        """
        answers = self._ask()
        before, self._before = self._before, answers
        lags = self._lags.read(group_id("fetch"), [topic.name for topic in LANES.values()], self._partitions)
        lanes = {lane: sum(lag.lag for lag in lags if lag.topic == topic.name) for lane, topic in LANES.items()}
        rates, by_domain = self._outcomes.look()
        return {
            "at_ms": int(time.time() * 1000),
            "workers": list(answers.workers),
            "partitions": self._partitions,
            "partitions_told": len(answers.partitions),
            "totals": totals(answers),
            "per_s": per_s(before, answers),
            "lanes": lanes,
            "per_min": rates._asdict(),
            "domains": ranked(answers.domains, by_domain, self._domains),
        }

    def _ask(self) -> Answers:
        workers: set[str] = set()
        partitions: dict[int, Mapping[str, int]] = {}
        domains: list[Mapping[str, Any]] = []
        argument = json.dumps({"domains": self._domains})
        for answer in self._client.ask("TOP", STAGE, ("", 0, 0), ANSWER_S, argument):
            for told in answer["told"]:
                if told["partition"] in partitions:
                    continue  # it is moving from one worker to another: one of both is enough
                said = json.loads(told["answer"])
                workers.add(answer["worker"])
                partitions[told["partition"]] = said["totals"]
                domains += said["domains"]
            if len(partitions) == self._partitions:
                break
        return Answers(time.monotonic(), tuple(sorted(workers)), partitions, tuple(domains))


def totals(answers: Answers) -> dict[str, int]:
    """Return the sums over all partitions that were told of."""
    sums: Counter[str] = Counter()
    for partition in answers.partitions.values():
        sums.update(partition)
    return dict(sums)


def per_s(before: Answers | None, now: Answers) -> dict[str, float] | None:
    """Return how fast the totals grow, per second; None at the first look.

    Only partitions that were told of at both looks count: one that is moving would look like a leap.
    """
    if before is None or now.at_s <= before.at_s:
        return None
    both = before.partitions.keys() & now.partitions.keys()
    return {
        name: sum(now.partitions[number][name] - before.partitions[number][name] for number in both)
        / (now.at_s - before.at_s)
        for name in RATED
    }


def ranked(rows: tuple[Mapping[str, Any], ...], rates: Mapping[str, Rates], most: int) -> list[dict[str, Any]]:
    """Return the domains with most to do first: what waits and is out, then what was due first.

    Args:
        rows: of all partitions.
        rates: outcomes per minute by domain.
        most: rows that are wanted.
    """
    ordered = sorted(rows, key=lambda row: (-(sum(row["waiting"].values()) + row["out"]), row["due_ms"] or 0))
    return [{**row, "per_min": rates.get(row["domain"], Rates())._asdict()} for row in ordered[:most]]
