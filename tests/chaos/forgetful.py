"""A broker whose coordinators forget transactions: what they had begun hangs for ever, each time.

A crash that lasts longer than the time-out leaves them too, but not in every try: there the coordinator ends a
transaction while the broker is not yet back in the cluster, finds no leader of its partitions, takes them for deleted
and writes no markers. Here the log of the coordinators goes back to what it was before the transactions began, as after
a crash that cost its last records. In both cases the producers keep their ids, which is what makes it dangerous.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from pipeline.local.kafka import LocalBroker

STATE_LOG = "__transaction_state-*"


@contextlib.contextmanager
def transactions_forgotten(broker: LocalBroker) -> Iterator[None]:
    """Crash a broker at the end of the block and start it without what its coordinators wrote in the block.

    Args:
        broker: runs, and its coordinators know every transactional id of the block already (`init_transactions`).
    """
    data, kept = broker.directory / "data", broker.directory / "kept"
    for log in data.glob(STATE_LOG):
        shutil.copytree(log, kept / log.name)
    yield
    broker.kill()
    for log in kept.iterdir():
        shutil.rmtree(data / log.name)
        log.rename(data / log.name)
    kept.rmdir()
    broker.start()
