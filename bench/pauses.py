"""Pauses of one stage's partitions when its workers are killed or deployed, seen from outside."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from bench.arrivals import Arrivals
from bench.latency import Latencies
from pipeline.config import Settings, client_options
from pipeline.local.supervisor import WorkerProcess
from pipeline.topics import group_id

FRESH_S = 1.5
"""A partition whose newest record is younger works."""
SETTLED_S = 1.0
LOOK_S = 0.02
GROUP_LOOK_S = 0.25
LIMIT_S = 90.0
STOP_S = 20.0
REACH_S = 10.0
GOALS_S = {"restarted": 5.0, "without": 15.0}


@dataclass(frozen=True, slots=True)
class Pauses:
    """What kills or deploys of one stage's workers did.

    Attributes:
        stage: of the pipeline.
        what: restarted, without or deploy.
        times: kills, or deploys.
        partitions: that were concerned, each counted at each time.
        pause: from the kill to the partition's first record written after it; of a deploy, the longest gap between the
            records of a partition.
        others_s: longest gap of a partition that was not concerned; 0 for deploys, which concern all.
    """

    stage: str
    what: str
    times: int
    partitions: int
    pause: Latencies
    others_s: float

    @property
    def good(self) -> bool:
        """Whether the goal is reached, where there is one."""
        return self.pause.p99 <= GOALS_S.get(self.what, float("inf"))


class StageRun:
    """The workers of one stage, fed and watched.

    Args:
        stage: of the pipeline.
        settings: with a broker.
        workers: of the stage; they run.
        arrivals: of its output.
        seed: of the moments of kills.
    """

    def __init__(
        self, stage: str, settings: Settings, workers: Sequence[WorkerProcess], arrivals: Arrivals, seed: int
    ) -> None:
        self._stage = stage
        self._partitions = range(settings.topics.partitions)
        self._workers = workers
        self._arrivals = arrivals
        self._admin = AdminClient({**client_options(settings.broker), "log_level": 0})
        self._random = random.Random(seed)  # noqa: S311  # no secret

    def settle(self, since_s: float = 0.0) -> dict[str, frozenset[int]]:
        """Wait until every worker has partitions and every partition gives; returns worker → its partitions.

        Args:
            since_s: only records written after this moment count; the group does not notice a short absence.
        """
        self._until(lambda: len(self._owned()) == len(self._workers), "members with partitions", GROUP_LOOK_S)
        self._until(lambda: self._all_fresh(since_s), "records of every partition")
        time.sleep(SETTLED_S + self._random.random())  # kills come at any moment between two commits
        return self._owned()

    def restart(self, times: int) -> Pauses:
        """Kill workers in turn; each is started again at once."""
        return self._kill(times, "restarted", WorkerProcess.look_after)

    def leave(self, times: int) -> Pauses:
        """Kill workers in turn; each is started again when the other has taken over."""
        return self._kill(times, "without", lambda _: None)

    def deploy(self, times: int) -> Pauses:
        """Stop and start every worker, one after the other."""
        pauses: list[float] = []
        for _ in range(times):
            self.settle()
            begun_s = time.time()
            for worker in self._workers:
                worker.terminate()
                if not worker.wait(STOP_S):
                    raise SystemExit(f"{worker.label} did not stop in {STOP_S:.0f} s: {worker.tail()}")
                gone_s = time.time()
                worker.start()
                self.settle(gone_s)
            pauses += [self._arrivals.longest_gap_s(number, begun_s, time.time()) for number in self._partitions]
        return Pauses(self._stage, "deploy", times, len(pauses), Latencies.of(pauses), 0.0)

    def _kill(self, times: int, what: str, then: Callable[[WorkerProcess], None]) -> Pauses:
        pauses: list[float] = []
        others_s = 0.0
        for number in range(times):
            owned = self.settle()
            victim = self._workers[number % len(self._workers)]
            concerned = owned[victim.label]
            killed_s = time.time()
            victim.kill()
            victim.wait(STOP_S)
            gone_s = time.time()
            then(victim)
            pauses += [self._first_after(partition, gone_s) - killed_s for partition in concerned]
            gaps = [
                self._arrivals.longest_gap_s(partition, killed_s, time.time())
                for partition in self._partitions
                if partition not in concerned
            ]
            others_s = max(others_s, *gaps)
            if victim.pid is None:
                victim.start()
        return Pauses(self._stage, what, times, len(pauses), Latencies.of(pauses), others_s)

    def _first_after(self, partition: int, moment_s: float) -> float:
        """Wait for a partition's first record that was written after a moment; returns when it came."""
        self._until(
            lambda: self._arrivals.first_written_after(partition, moment_s) is not None, f"a record of {partition}"
        )
        first = self._arrivals.first_written_after(partition, moment_s)
        assert first is not None
        return first.at_s

    def _owned(self) -> dict[str, frozenset[int]]:
        """Return worker → partition numbers, as the group's coordinator has it; only workers that have some."""
        name = group_id(self._stage)
        try:
            group = self._admin.describe_consumer_groups([name])[name].result(REACH_S)
        except KafkaException:  # the coordinator is still being found
            return {}
        if group.state is not ConsumerGroupState.STABLE:
            return {}
        owned = {
            member.group_instance_id: frozenset(tp.partition for tp in member.assignment.topic_partitions)
            for member in group.members
        }
        return {worker: numbers for worker, numbers in owned.items() if numbers}

    def _all_fresh(self, since_s: float) -> bool:
        oldest_s = max(since_s, time.time() - FRESH_S)
        return all(self._arrivals.last_written_s(partition) > oldest_s for partition in self._partitions)

    def _until(self, condition: Callable[[], bool], what: str, look_s: float = LOOK_S) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline:
                tails = "\n".join(worker.tail() for worker in self._workers)
                raise SystemExit(f"{self._stage}: waited {LIMIT_S:.0f} s for {what}\n{tails}")
            time.sleep(look_s)
