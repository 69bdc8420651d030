"""Faust transport `headrace://`: read_committed, one event per fetched batch, stable start offsets.

It replaces what Faust assumes about one record per message, and is sound only where every topic is declared
`acks=False` and the app has no Faust tables (`docs/architecture/delivery.md` lists the places).

Private attributes of faust-streaming and aiokafka that are used here, whose versions are pinned:
`AIOKafkaConsumer._isolation_level`, `._subscription`, `._coordinator` with `member_id`, `generation`, `group_id`,
`_group_instance_id`, `_do_heartbeat`; `AIOKafkaConsumerThread._assignor`, `._fetch_records`, `._seek_wait`,
`._create_worker_consumer`; `Consumer._getmany`, `._to_message`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from pipeline.delivery.assignment import Assignment, Batch, equal_partition_sets
from pipeline.delivery.exits import ExitCode, exit_now
from pipeline.delivery.identity import Identity

URL_SCHEME = "headrace"
IDLE_POLL_S = 0.05


class BatchSchema(faust.Schema):
    """Hands the batch through undecoded: a poison record can't raise inside Faust, nor be skipped by it."""

    def loads_key(self, app: Any, message: Any, **kwargs: Any) -> None:
        """Return no key: a batch has none."""

    def loads_value(self, app: Any, message: Any, **kwargs: Any) -> Batch:
        """Return the batch as it is."""
        del app, kwargs
        value: Batch = message.value
        return value


class RebalanceListener(driver.ConsumerRebalanceListener):
    """Runs in the aiokafka thread."""

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> Awaitable[None]:
        coordinator = self._thread._ensure_consumer()._coordinator  # noqa: SLF001
        if revoked and coordinator._group_instance_id and not coordinator.member_id:  # noqa: SLF001
            # aiokafka would rejoin and fence the replacement, which rejoins and fences us, once a second for ever.
            exit_now("this static member was replaced by a worker of the same name or evicted", ExitCode.REPLACED)
        revoking: Awaitable[None] = super().on_partitions_revoked(revoked)
        return revoking

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        coordinator = self._thread._ensure_consumer()._coordinator  # noqa: SLF001
        consumer: Consumer = self._thread.consumer
        identity = Identity(
            coordinator.group_id,
            coordinator.generation,
            coordinator.member_id,
            coordinator._group_instance_id,  # noqa: SLF001
        )
        partitions = frozenset(TP(tp.topic, tp.partition) for tp in assigned)
        if not equal_partition_sets(partitions):
            exit_now(f"co-partitioned topics were assigned apart: {sorted(partitions)}", ExitCode.BUG)
        self._thread.watch_heartbeats(coordinator)
        self._thread.positions.clear()
        consumer.held.clear()
        consumer.current_assignment = Assignment(identity, partitions) if identity.fenceable else None
        await super().on_partitions_assigned(assigned)


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Owns the aiokafka consumer; its methods run in the aiokafka thread."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.positions: dict[TP, int] = {}
        """Position after the last batch handed out; absent before our own seek."""

    def watch_heartbeats(self, coordinator: Any) -> None:
        """Note when a heartbeat that succeeded was sent; an assignment counts as one."""
        consumer: Consumer = self.consumer
        consumer.last_heartbeat_s = time.monotonic()
        if getattr(coordinator, "headrace_watched", False):
            return
        beat = coordinator._do_heartbeat  # noqa: SLF001

        async def watched() -> bool:
            sent_s = time.monotonic()
            succeeded: bool = await beat()
            if succeeded:
                consumer.last_heartbeat_s = sent_s
            return succeeded

        coordinator._do_heartbeat = watched  # noqa: SLF001
        coordinator.headrace_watched = True

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        if self._assignor is not self.app.assignor:
            exit_now("the faust assignor is not in use: co-partitioned topics would be torn apart", ExitCode.BUG)
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        return consumer

    async def _seek_wait(self, consumer: Any, partitions: Mapping[TP, int]) -> None:
        # Before the seek and without an await in between: what was drained earlier has no start and is dropped.
        self.positions.update({TP(*tp): offset for tp, offset in partitions.items()})
        await super()._seek_wait(consumer, partitions)

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109  # as in the base class
        max_records: int | None = None,
    ) -> dict[TP, list[Batch]]:
        drained = await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        # No await from here on: the positions belong to these records.
        subscription = consumer._subscription.subscription  # noqa: SLF001
        state = subscription.assignment if subscription is not None else None
        if state is None:
            return {}
        assignment = self.consumer.current_assignment
        records = {TP(*tp): found for tp, found in drained.items()}
        batches: dict[TP, list[Batch]] = {}
        for tp in active_partitions | records.keys():
            start = self.positions.get(TP(*tp))
            tp_state = state.state_value(tp) if tp in state.tps else None
            if start is None or tp_state is None or not tp_state.has_valid_position:
                continue  # drained before our seek: the seek brings it again
            end = tp_state.position
            if end < start:
                exit_now(f"{tp} went back from {start} to {end}: it was truncated or made anew", ExitCode.BROKER)
            if end > start:  # without records too: control records and aborted ones must not count as lag
                self.positions[TP(*tp)] = end
                batches[TP(*tp)] = [Batch(records.get(TP(*tp), ()), start, end, assignment)]
        return batches


class Consumer(driver.Consumer):
    """What the runners see of the group membership.

    Attributes:
        current_assignment: the one in force; None while there is none, or one that must not commit.
        held: partitions not fetched for now (back-pressure). Never `pause_partitions`: Faust drops already fetched
            records of a partition that is paused while it iterates a batch.
        last_heartbeat_s: monotonic time at which the last heartbeat that succeeded was sent.
    """

    RebalanceListener = RebalanceListener

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.current_assignment: Assignment | None = None
        self.held: set[TP] = set()
        self.last_heartbeat_s = float("-inf")

    def membership_is_fresh(self, session_timeout_s: float, margin_s: float) -> bool:
        """Whether the group can't have given our partitions away yet, a process that was stopped included."""
        return time.monotonic() - self.last_heartbeat_s < session_timeout_s - margin_s

    def last_stable_offset(self, tp: TP) -> int | None:
        """End of a partition as the last fetch saw it; None before the first, or where the partition is not ours."""
        subscription = self._thread._ensure_consumer()._subscription.subscription  # noqa: SLF001
        assignment = subscription.assignment if subscription is not None else None
        if assignment is None or tp not in assignment.tps:
            return None
        end: int | None = assignment.state_value(tp).lso
        return end

    async def _getmany(self, active_partitions: set[TP], timeout: float) -> Any:  # noqa: ASYNC109  # as in the base class
        wanted = (
            set(active_partitions) - self.held
        )  # a copy: another thread reads it while this one changes the original
        if not wanted:  # aiokafka takes an empty set for all partitions
            await asyncio.sleep(IDLE_POLL_S)
            return {}
        return await super()._getmany(wanted, min(timeout, 2 * IDLE_POLL_S) if self.held else timeout)

    def _to_message(self, tp: TP, record: Batch) -> ConsumerMessage:
        # The last offset: Faust's only filter is `offset >= read offset`, so a batch that overlaps the start point
        # passes whole and the runner filters record by record. The first offset would drop it whole.
        return ConsumerMessage(
            tp.topic, tp.partition, record.end - 1, None, 0, None, None, record, None, 0, 0, tp,
            generation_id=self.app.consumer_generation_id,
        )  # fmt: skip

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek all assigned partitions to their stable offsets and publish them as the assignment's starts."""
        assignment = self.current_assignment
        if assignment is None or not assignment.partitions:
            return {}
        runner = self.app.headrace_runner
        if assignment.starts:  # Faust seeks again after it has dropped a fetch: back to where the runner stands
            expected: Mapping[TP, int] = runner.expected(assignment)
            await self.seek_wait(expected)
            return expected
        starts = await runner.starts(assignment)
        if starts is None:
            return {}
        offsets = {tp: start.offset_map.base for tp, start in starts.items()}
        await self.seek_wait(offsets)
        if self.current_assignment is assignment and not assignment.starts:
            assignment.starts = starts
            runner.assigned(assignment)
        return offsets


class Transport(driver.Transport):
    """Entry point `faust.transports`: headrace."""

    Consumer = Consumer
