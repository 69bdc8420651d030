"""Fetch stage: ready tasks in, pages and outcomes out."""

from __future__ import annotations

from typing import Any

from pipeline.config import Settings
from pipeline.contracts.codec import load_codec
from pipeline.delivery.worker import Worker
from pipeline.fetch import holds, robots_cache
from pipeline.fetch.stage import FetchStage
from pipeline.ops.stage_counters import StageCounters
from pipeline.ops.state_gauges import StateGauges
from pipeline.state.memory import shared_memory
from pipeline.topics import LANE_BULK, LANE_NORMAL, LANE_URGENT


def build(settings: Settings) -> Worker:
    """Wire one worker of the stage: each lane has slots of its own, so that a full one delays no other."""
    worker = Worker("fetch", settings, max_poll_records=200, compression="none")  # bodies are packed already
    stage = FetchStage(settings, load_codec(settings.registry.lock), membership_is_fresh=worker.membership_is_fresh)
    worker.registry.register(StageCounters("fetch", stage.counters))
    worker.registry.register(StateGauges("fetch", shared_memory()))
    urgent = max(1, round(settings.fetch.concurrency * settings.fetch.urgent_share))
    bulk = max(1, (settings.fetch.concurrency - urgent) // 3)
    normal = max(1, settings.fetch.concurrency - urgent - bulk)
    lanes = {LANE_URGENT.name: urgent, LANE_NORMAL.name: normal, LANE_BULK.name: bulk}
    worker.run_parallel(stage, lanes, (robots_cache.TABLE, holds.TABLE))

    @worker.agent
    async def fetch(batches: Any) -> None:
        async for batch in batches.events():
            await worker.submit(batch)

    return worker
