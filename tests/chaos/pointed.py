"""The product's classes, wrapped so that a worker passes the points of `points.py`."""

from __future__ import annotations

import functools
import threading

from aiokafka.consumer.group_coordinator import GroupCoordinator
from confluent_kafka import Producer

from pipeline.delivery import transactions
from pipeline.delivery.ordered import OrderedRunner
from pipeline.delivery.parallel import ParallelRunner
from pipeline.delivery.runner import Runner
from pipeline.delivery.stable_offsets import StableOffsets
from pipeline.state.changelog import Changelog
from pipeline.state.store import PartitionStore
from tests.chaos.points import FLUSH_S, Points


def wrap_producer(points: Points) -> None:
    """Points around the calls of the transactional producer."""

    class PointedProducer(Producer):
        def _settle(self):
            self.flush(FLUSH_S)  # so that the broker has what is to be undone

        def begin_transaction(self, *args):
            points.pass_by("before_begin")
            return super().begin_transaction(*args)

        def produce(self, *args, **options):
            points.pass_by("before_produce", self._settle)
            super().produce(*args, **options)
            points.pass_by("after_produce", self._settle)

        def send_offsets_to_transaction(self, *args):
            points.pass_by("before_offsets", self._settle)
            super().send_offsets_to_transaction(*args)
            points.pass_by("after_offsets", self._settle)

        def commit_transaction(self, *args):
            points.pause()
            points.pass_by("before_commit", self._settle)
            super().commit_transaction(*args)
            points.pass_by("after_commit")
            points.pause()

    transactions.Producer = PointedProducer


def wrap_state(points: Points) -> None:
    """Points where a store is restored and where it is written."""
    thread = threading.local()
    apply, restore = PartitionStore.apply, Changelog.restore

    @functools.wraps(apply)
    def pointed_apply(self, *args):
        restoring = getattr(thread, "restoring", False)
        points.pass_by("restore_read" if restoring else "before_apply")
        apply(self, *args)
        points.pass_by("restore_written" if restoring else "after_apply")

    @functools.wraps(restore)
    def pointed_restore(self, *args):
        points.pass_by("restore_start")
        thread.restoring = True
        try:
            restored = restore(self, *args)
        finally:
            thread.restoring = False
        points.pass_by("restore_end")
        return restored

    PartitionStore.apply = pointed_apply
    Changelog.restore = pointed_restore


def wrap_runners(points: Points) -> None:
    """Points where partitions are called back."""
    hand_back = Runner._hand_back

    @functools.wraps(hand_back)
    async def pointed_hand_back(self):
        if self._assignment is None:  # called back before the first assignment, too
            return await hand_back(self)
        await points.pass_by_in_loop("revoke")
        await hand_back(self)
        return await points.pass_by_in_loop("revoked")

    Runner._hand_back = pointed_hand_back
    for runner in (ParallelRunner, OrderedRunner):
        runner._drain = _drained(runner._drain, points)


def _drained(drain, points: Points):
    @functools.wraps(drain)
    async def pointed_drain(self):
        await drain(self)
        if self._assignment is not None:
            await points.pass_by_in_loop("drained")

    return pointed_drain


def wrap_group(points: Points) -> None:
    """Points where a member gets its partitions, and where it says that it lives."""
    starts, beat = StableOffsets.starts, GroupCoordinator._do_heartbeat

    @functools.wraps(starts)
    def pointed_starts(self, *args):
        found = starts(self, *args)
        points.pass_by("offsets_read")
        return found

    @functools.wraps(beat)
    async def muted(self):
        return True if points.is_held("heartbeat") else await beat(self)

    StableOffsets.starts = pointed_starts
    GroupCoordinator._do_heartbeat = muted
