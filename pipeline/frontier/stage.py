"""The frontier as a stage: opens partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pipeline.config import Frontier, Politeness
from pipeline.contracts.codec import Codecs
from pipeline.delivery.api import StateView
from pipeline.frontier.parked import Parked
from pipeline.frontier.partition import FrontierPartition, Surroundings, TaskDeadLetter
from pipeline.frontier.policy import Definition, Policies
from pipeline.frontier.records import OutRow


class FrontierStage:
    """Opens the partitions of a worker; fulfils `OrderedStage`.

    Args:
        frontier: settings.
        politeness: settings.
        codecs: contracts.
        partitions: partition count of every topic.
        crawls: returns the definition of a crawl (a `Crawl` record), None while nobody has told it.
        task_dead_letter: makes the dead letter of a task that was given up.
        lane_record_is_lost: says whether the lane record of a task whose lease has passed will never be handled, so
            that it is given out anew; by default none is.

    Attributes:
        parked: what is parked, by partition that is open, when last looked at.
        counters: since the worker started: `tasks_known`, `tasks_forwarded`, `links_forwarded`, `stale_outcomes`,
            `dead_tasks`, `lane_records_lost`, `urls_forgotten`, `polls_failed`,
            `validators_distrusted`.
    """

    def __init__(
        self,
        *,
        frontier: Frontier,
        politeness: Politeness,
        codecs: Codecs,
        partitions: int,
        crawls: Callable[[str], Definition | None],
        task_dead_letter: TaskDeadLetter,
        lane_record_is_lost: Callable[[OutRow], bool] = lambda _: False,
    ) -> None:
        self.parked: dict[int, Parked] = {}
        self.counters: Counter[str] = Counter()
        self._around = Surroundings(
            frontier,
            politeness,
            codecs,
            partitions,
            Policies(crawls, frontier),
            task_dead_letter,
            lane_record_is_lost,
            self.counters,
            self.parked,
        )

    def open(self, partition: int, view: StateView, now: float) -> FrontierPartition:
        """Build a partition's memory from its view."""
        del now
        return FrontierPartition(self._around, partition, view)
