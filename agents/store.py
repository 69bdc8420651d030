"""Store stage: documents in, files out, each document in one finished file."""

from __future__ import annotations

from typing import Any

from pipeline.config import Settings
from pipeline.contracts.codec import load_codec
from pipeline.delivery.cluster import cluster_mark
from pipeline.delivery.worker import Worker
from pipeline.ops.state_gauges import StateGauges
from pipeline.state.memory import shared_memory
from pipeline.store.segments import TABLES, Place, StoreStage
from pipeline.topics import DOCUMENTS, SEGMENTS


def build(settings: Settings) -> Worker:
    """Wire one worker of the stage."""
    codecs = load_codec(settings.registry.lock)
    worker = Worker("store", settings, max_poll_records=500)
    stage = StoreStage(
        Place(settings.store.directory, settings.store.segment_documents, cluster_mark(worker.options)),
        decode=codecs.decoder(DOCUMENTS.subject),
        encode_segment=codecs.encoder(SEGMENTS.subject),
        decode_segment=codecs.decoder(SEGMENTS.subject),
    )
    worker.registry.register(StateGauges("store", shared_memory()))
    worker.run_ordered(stage, TABLES, interval_s=settings.store.segment_s)

    @worker.agent
    async def store(batches: Any) -> None:
        async for batch in batches.events():
            await worker.submit(batch)

    return worker
