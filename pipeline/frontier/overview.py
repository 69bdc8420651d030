"""What is under way in a partition, and the domains that have most of it: bounded, counted when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pipeline.frontier.crawls import CrawlState
from pipeline.frontier.domains import DomainBook
from pipeline.frontier.insight import Insight
from pipeline.frontier.records import Lane
from pipeline.frontier.waiting import WaitingQueue
from pipeline.frontier.waits import delays_ms, domain_waits

MAX_LOOKED_AT: Final = 20_000
"""Domains that are looked at for those that have most to do, those that were there first; some 20 ms."""
MAX_TASKS: Final = 1_000
"""Waiting tasks of a lane of a domain that are counted at most."""
_SUMMED: Final = ("waiting", "out", "seen", "done", "failed", "pages_fetched", "bytes_received", "links_received")


class DomainRow(NamedTuple):
    """A domain with something under way.

    Attributes:
        domain: registrable domain.
        waiting: tasks by lane, at most `MAX_TASKS` in each.
        out: tasks given out and not ended.
        due_ms: when the own time of its first task came or comes, milliseconds since the epoch; None where none waits.
        delay_ms: pause between two requests.
        made_by: who wants it so long, see `delays_ms`.
        why: what its next task waits for beside its own time (`Wait.why`), empty for nothing.
        until_ms: until when, milliseconds since the epoch; None where that is not known.
    """

    domain: str
    waiting: Mapping[str, int]
    out: int
    due_ms: int | None
    delay_ms: int
    made_by: str
    why: str
    until_ms: int | None


class Overview(NamedTuple):
    """What is under way in a partition.

    Attributes:
        totals: sums of the counters of all crawls (`CrawlState`), `held`, `refused`, `domains` with waiting tasks.
        domains: those whose first task has been due for longest, and those of which most is out.
    """

    totals: Mapping[str, int]
    domains: tuple[DomainRow, ...]


def overview(  # noqa: PLR0917  # the parts of a partition
    insight: Insight, queue: WaitingQueue, book: DomainBook, crawls: Iterable[CrawlState], most: int, now_ms: int
) -> Overview:
    """Look at a partition.

    Args:
        insight: of the partition.
        queue: its waiting tasks.
        book: its domains.
        crawls: its counters.
        most: domains of each kind.
        now_ms: now.
    """
    totals = dict.fromkeys((*_SUMMED, "held", "refused"), 0)
    for state in crawls:
        for name in _SUMMED:
            totals[name] += getattr(state, name)
        totals["held"] += state.parked
        totals["refused"] += sum(state.refused.values())
    totals["domains"] = len(queue)
    due_ms: dict[str, int | None] = {name: due for due, name in queue.longest(most, MAX_LOOKED_AT)}
    for name in book.most_out(most, MAX_LOOKED_AT):
        due_ms.setdefault(name, queue.due_ms(name))
    return Overview(totals, tuple(_row(insight, name, due, now_ms) for name, due in due_ms.items()))


def _row(insight: Insight, domain: str, due_ms: int | None, now_ms: int) -> DomainRow:
    wanted = delays_ms(insight, None, insight.pace(domain))
    made_by = max(wanted, key=wanted.__getitem__)
    waits = domain_waits(insight, domain, None, now_ms)
    first = max(waits, key=lambda wait: wait.until_ms or 0, default=None)
    return DomainRow(
        domain=domain,
        waiting={lane.name.lower(): insight.waiting(domain, lane, most=MAX_TASKS) or 0 for lane in Lane},
        out=insight.out(domain),
        due_ms=due_ms,
        delay_ms=wanted[made_by],
        made_by=made_by,
        why=first.why if first else "",
        until_ms=first.until_ms if first else None,
    )
