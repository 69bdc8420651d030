"""Parse stage: pages in, documents and links out."""

from __future__ import annotations

import time
from typing import Any

from pipeline.config import Settings
from pipeline.delivery.worker import Worker
from pipeline.parse.pool import WINDOW
from pipeline.parse.stage import ParseStage
from pipeline.topics import PAGES


def build(settings: Settings) -> Worker:
    """Wire one worker of the stage: as many pages in flight as its processes have under way, twice."""
    worker = Worker("parse", settings, max_poll_records=100)
    stage = ParseStage.from_settings(settings, time.time)
    in_flight = max(settings.topics.partitions, settings.parse.processes * WINDOW) * 2
    worker.run_parallel(stage, {PAGES.name: in_flight})

    @worker.agent
    async def parse(batches: Any) -> None:
        async for batch in batches.events():
            await worker.submit(batch)

    return worker
