"""Parked domains: those that must not be asked for long, and what waits for them; told to the operator alone."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.frontier.domains import DomainBook, Slots
from pipeline.frontier.politeness import allowed_ms
from pipeline.frontier.waiting import WaitingQueue

PARKED_FROM_MS: Final = 60_000
"""A domain is parked when its next request lies further ahead than this, whatever it is that keeps it."""
COUNTED_TASKS: Final = 10_000
"""Waiting tasks that are counted at most: to count all of a domain with millions would take seconds."""


class Parked(NamedTuple):
    """What is parked in a partition.

    Attributes:
        domains: that are parked and have something waiting.
        tasks: that wait for them; `COUNTED_TASKS` stands for so many and more.
        until_ms: when the last of the domains may be asked again, milliseconds since the epoch; 0 for none.
    """

    domains: int = 0
    tasks: int = 0
    until_ms: int = 0


NOTHING: Final = Parked()


def count_parked(domains: DomainBook, slots: Slots, waiting: WaitingQueue, now_ms: int) -> Parked:
    """Count what is parked.

    Args:
        domains: pace of each.
        slots: pauses; those of no crawl in particular are taken.
        waiting: tasks that wait.
        now_ms: now.
    """
    count = tasks = last_ms = 0
    for name, pace in domains.slow():
        until_ms = allowed_ms(pace, slots.learned_ms(name, None))
        if until_ms <= now_ms + PARKED_FROM_MS or name not in waiting:
            continue
        count += 1
        tasks += waiting.count(name, COUNTED_TASKS - tasks)
        last_ms = max(last_ms, until_ms)
    return Parked(count, tasks, last_ms)
