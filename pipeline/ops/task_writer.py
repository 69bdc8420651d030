"""Writes tasks, all of a call or none: one transaction, acknowledged by every in-sync replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pipeline.contracts.codec import Codecs
from pipeline.delivery.api import Output
from pipeline.delivery.identity import Identity
from pipeline.delivery.transactions import ReplacedError, TransactionalProducer, Verdict, Work
from pipeline.errors import BrokerError
from pipeline.tasks.records import Wish
from pipeline.topics import TASKS

TRIES: Final = 2
"""Transactions begun for a call: one may be aborted for reasons that pass, such as a leader that has moved."""
_NOBODY: Final = Identity("headrace-submit", -1, "")
"""No input is read, so no offsets are committed for a group."""


class TaskWriter:
    """Blocking; used from one thread.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        transactional_id: whoever opens another writer of that id ends this one.
        timeout_s: after which the broker ends an open transaction: readers of the task topics wait so long for a
            process that was killed while it wrote.
        now: clock, seconds since the epoch.

    Raises:
        BrokerError: from both methods: the broker did not answer in time; `ReplacedError` where another writer of the
            id has taken over.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        codecs: Codecs,
        transactional_id: str,
        timeout_s: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._make = partial(TransactionalProducer, options, transactional_id, timeout_s, "zstd")
        self._encode = codecs.encoder(TASKS.subject)
        self._producer: TransactionalProducer | None = None
        self._now = now

    def open(self) -> None:
        """Take over the transactional id, which ends what its last owner left open; `write` does so by itself."""
        self._open()

    def write(self, wishes: Sequence[Wish]) -> None:
        """Return when all are on the broker; where it raises, none is visible, or all of them are.

        The latter is when a commit was sent and no answer came. It does no harm to write them again.
        """
        now_ms = int(self._now() * 1000)
        outputs = [
            Output(wish.topic.name, self._encode({**wish.record, "submitted_at_ms": now_ms}), wish.key)
            for wish in wishes
        ]
        work = Work(outputs, {}, {}, _NOBODY, alone=True)
        trouble = ""
        for _ in range(TRIES):
            producer = self._open()
            # What this one leaves open the next one ends. After an abort librdkafka may be about to get another epoch,
            # which the next transaction of the same producer would meet.
            self._producer = None
            try:
                verdict, _ = producer.run(work)
            except ReplacedError:
                self._producer = producer  # a new one would fence the successor
                raise
            if verdict is Verdict.COMMITTED:
                self._producer = producer
                return
            trouble = producer.trouble
        raise BrokerError(f"the broker has ended {TRIES} transactions, nothing was written: {trouble}")

    def _open(self) -> TransactionalProducer:
        if self._producer is None:
            producer = self._make()
            producer.open()
            self._producer = producer
        return self._producer
