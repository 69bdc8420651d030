"""Replays all letters of some `-dlq` topics, as a process that can be held or killed at the points of `points.py`.

`python -m tests.chaos.replayer BOOTSTRAP DIRECTORY NAME TOPIC…`; prints how many were replayed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.errors import HeadraceError
from pipeline.ops.dead_letter_origins import as_it_was
from pipeline.ops.dead_letter_replay import DeadLetterOffice
from pipeline.ops.dead_letters import Filters
from tests.chaos import points

LIMIT = 100_000
TRANSACTION_S = 10.0


def main() -> None:
    """Run once; exit status 3 with the message where the cluster or another replay is in the way."""
    bootstrap, directory, name, *topics = sys.argv[1:]
    points.install(points.Points(Path(directory), name))
    options = {"bootstrap.servers": bootstrap}
    try:
        with DeadLetterOffice(options, topics, by=name, dry=False, transaction_timeout_s=TRANSACTION_S) as office:
            outcome = office.replay(Filters(), LIMIT, as_it_was, lambda letter, refusal: None)
            office.settle()
    except HeadraceError as exc:
        sys.stderr.write(f"{exc}\n")
        sys.exit(3)
    sys.stdout.write(f"{outcome.done}\n")


if __name__ == "__main__":
    main()
