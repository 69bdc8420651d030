"""The transport as it would be with one Faust event a record: what a batch an event saves is the difference."""

from __future__ import annotations

from typing import Any

from faust.types import TP

from pipeline.delivery import transport
from pipeline.delivery.assignment import Batch
from pipeline.delivery.worker import Worker

EVENTS_BUFFERED = 4_096
"""Faust's own default."""


class ConsumerThread(transport.ConsumerThread):
    """Cuts each batch into batches of one record; the chain of positions stays whole."""

    async def _fetch_records(self, *args: Any, **kwargs: Any) -> dict[TP, list[Batch]]:
        fetched = await super()._fetch_records(*args, **kwargs)
        return {tp: [part for batch in batches for part in _cut(batch)] for tp, batches in fetched.items()}


def _cut(batch: Batch) -> list[Batch]:
    ends = [record.offset + 1 for record in batch.records]
    if not ends:
        return [batch]
    ends[-1] = batch.end
    starts = [batch.start, *ends[:-1]]
    return [
        Batch((record,), start, end, batch.assignment)
        for record, start, end in zip(batch.records, starts, ends, strict=True)
    ]


class Consumer(transport.Consumer):
    """Uses the thread above."""

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)


class Transport(transport.Transport):
    """Uses the consumer above."""

    Consumer = Consumer


def use_record_events(worker: Worker) -> None:
    """Let a worker have one event a record; to be called before its agent is registered."""
    worker.app.transport = Transport(worker.app.conf.broker_consumer, worker.app)
    worker.app.conf.stream_buffer_maxsize = EVENTS_BUFFERED
