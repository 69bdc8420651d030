"""The table of faults in the documentation: made of what the tests of `tests/integration/test_faults.py` measured.

`make faults` runs them and writes figures and page anew; `test_fault_table.py` holds the page against the figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fault_run import Observed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations" / "faults.md"
FIGURES = ROOT / "docs" / "operations" / "faults.json"
TESTS = ROOT / "tests" / "integration" / "test_faults.py"
RECORD_VARIABLE = "HEADRACE_FAULTS"
"""Names the file that a run's figures go to; without it nothing is recorded."""
SESSION_S = 3
TRANSACTION_S = 3
KINDS = ("parallel", "ordered")


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        name: of its test, without `test_`.
        title: what happens, in a word.
        story: what the test does.
        kinds: runners it can happen to.
    """

    name: str
    title: str
    story: str
    kinds: tuple[str, ...] = KINDS


FAULTS: tuple[Fault, ...] = (
    Fault(
        "connection_lost",
        "connection lost",
        "all connections of a worker to the broker are reset for half its session, and each new one at once",
    ),
    Fault(
        "connection_lost_for_long",
        "connection lost for long",
        "no byte passes between a worker and the broker for longer than its session; another worker takes over",
    ),
    Fault(
        "backlog_beyond_the_transaction_timeout",
        "backlog beyond the transaction time-out",
        "all of a worker's slots, or its round, are busy for longer than a transaction may last; its topics fill",
    ),
    Fault(
        "consumer_crash",
        "consumer crash",
        "kill -9 right before the commit of a transaction; started again at once",
    ),
    Fault(
        "consumer_crash_and_absence",
        "consumer crash, not started again",
        "the same, and another worker takes over when the session has run out",
    ),
    Fault(
        "broker_crash",
        "broker crash",
        "kill -9 of the only broker; started again at once",
    ),
    Fault(
        "zombie",
        "zombie",
        "stopped with finished work in hand for longer than the session, continued after another has taken over",
    ),
    Fault(
        "zombie_inside_a_transaction",
        "zombie inside a transaction",
        "the same between the offsets and the commit: nobody can go on before the broker has ended the transaction",
    ),
    Fault(
        "slow_record",
        "slow record",
        "one record takes 1.5 s where others take milliseconds",
    ),
    Fault(
        "deadline",
        "record that never ends",
        "one record does not end; after `delivery.handler_s`, here 1 s, it is a dead letter",
        ("parallel",),
    ),
    Fault(
        "poison_record",
        "poison record",
        "records that can't be handled, some of them half-way, in the midst of good ones",
    ),
    Fault(
        "disk_lost",
        "disk lost",
        "kill -9, the worker's data directory is gone, started again at once",
    ),
    Fault(
        "deploy",
        "deploy",
        "SIGTERM and start again, one worker after the other",
    ),
    Fault(
        "scaling",
        "scaling",
        "a third worker joins, and leaves for good",
    ),
)


def record(fault: str, kind: str, observed: Observed) -> None:
    """Put an outcome into the file that the environment names; without one do nothing."""
    named = os.environ.get(RECORD_VARIABLE)
    if named is None:
        return
    path = Path(named)
    figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    figures.setdefault(fault, {})[kind] = observed.to_row()
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_figures() -> dict[str, dict[str, Observed]]:
    """Return fault → runner → outcome, as last recorded."""
    rows: Mapping[str, Mapping[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return {fault: {kind: Observed(**row) for kind, row in kinds.items()} for fault, kinds in rows.items()}


HEAD = f"""\
# Table of faults

What a reader downstream (`isolation.level=read_committed`) and the stage itself notice of each fault. No figure here is
written by hand: each row is a test of `tests/integration/test_faults.py`, which feeds a stage with two workers, breaks
it, reads its output all the while and counts afterwards. `make faults` runs them all and writes this page; a row whose
promise is broken fails its test. A worker that ends by itself is started again at once, as supervisors do; the statuses are
explained under [failures](failures.md#exit-statuses).

Sessions and transactions last {SESSION_S} s here, 10 s by default (`delivery.session_timeout_s`,
`delivery.transaction_timeout_s`), and pauses that end with them are that much shorter; the broker looks for overdue
transactions every 10 s. Each partition gets 25 records a second and a commit is due every 0.1 s, so 0.3 s between two
outputs are no pause. Broker, workers and reader share two cores.

| fault | runner | is unconfirmed work done again? | is committed work rolled back? | is anything read twice? | is anything lost? | does its worker end? | pause of its worker's partitions | pause of the others |
|---|---|---|---|---|---|---|---:|---:|
"""  # noqa: E501  # one row of a table


def render(figures: Mapping[str, Mapping[str, Observed]]) -> str:
    """Return the page."""
    rows = [_row(fault, kind, figures[fault.name][kind]) for fault in FAULTS for kind in fault.kinds]
    stories = [f"- **{fault.title}**: {fault.story} (`test_{fault.name}`)" for fault in FAULTS]
    return HEAD + "\n".join([*rows, "", "What happens in each:", "", *stories, "", *FOOT])


FOOT = (
    "Work that is done again is what was in hand and not committed. In the parallel runner that is what was in flight:",
    "the offset map keeps what had overtaken it. In the ordered runner it is a round. A request to a site is work in",
    "hand, so a page may be asked for twice; it is never published twice. A zombie that is continued works on until",
    "its next heartbeat or commit tells it what it is; a fetch worker asks no site without a fresh heartbeat.",
    "",
)


def _row(fault: Fault, kind: str, observed: Observed) -> str:
    again = "no"
    if observed.handled_again or observed.written_again:
        again = f"yes: {observed.handled_again} of {observed.records} records"
        if observed.written_again:
            again += f"; {observed.written_again} outputs written twice, visible once"
    others = "-" if observed.others_pause_s is None else f"{observed.others_pause_s:.1f} s"
    cells = [
        fault.title, kind, again, _count(observed.rolled_back), _count(observed.read_twice), _count(observed.lost),
        _ends(observed.exits), f"{observed.pause_s:.1f} s", others,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _ends(exits: Sequence[int]) -> str:
    statuses = ", ".join(str(status) for status in sorted(set(exits)))
    return f"yes, with {statuses}" if exits else "no"


def _count(number: int) -> str:
    return f"**yes: {number}**" if number else "no"


def main() -> None:
    """Write the page anew from the figures."""
    PAGE.write_text(render(read_figures()), encoding="utf-8")


if __name__ == "__main__":
    main()
