"""Frontier stage: tasks, links and outcomes in, tasks that may run now out."""

from __future__ import annotations

from functools import partial
from typing import Any

from pipeline.config import Settings
from pipeline.contracts.codec import load_codec
from pipeline.delivery.dead_letters import task_dead_letter
from pipeline.delivery.global_table import GlobalTable
from pipeline.delivery.worker import Worker
from pipeline.frontier.answers import answer_explain, answer_top
from pipeline.frontier.records import TABLES
from pipeline.frontier.stage import FrontierStage
from pipeline.ops.parked_gauges import ParkedGauges
from pipeline.ops.stage_counters import StageCounters
from pipeline.ops.state_gauges import StateGauges
from pipeline.state.contract_rows import ContractRows
from pipeline.state.memory import shared_memory
from pipeline.topics import CRAWLS, FRONTIER_STATE

QUESTIONS = {"EXPLAIN": answer_explain, "TOP": answer_top}
"""What its workers tell people, by command."""


def build(settings: Settings) -> Worker:
    """Wire one worker of the stage."""
    codecs = load_codec(settings.registry.lock)
    worker = Worker("frontier", settings)
    crawls = GlobalTable(worker.options, CRAWLS.name, settings.topics.partitions, codecs.decoder(CRAWLS.subject))
    crawls.start()
    crawls.wait(settings.broker.wait_s)  # tasks of a crawl that is not known yet would be set aside first
    stage = FrontierStage(
        frontier=settings.frontier,
        politeness=settings.politeness,
        codecs=codecs,
        partitions=settings.topics.partitions,
        crawls=crawls.get,
        task_dead_letter=partial(task_dead_letter, group=worker.layout.group, stage="frontier"),
    )
    worker.registry.register(StageCounters("frontier", stage.counters))
    worker.registry.register(ParkedGauges(stage.parked))
    worker.registry.register(StateGauges("frontier", shared_memory()))
    rows = ContractRows(codecs.encoder(FRONTIER_STATE.subject), codecs.decoder(FRONTIER_STATE.subject))
    worker.run_ordered(stage, TABLES, rows, settings.frontier.commit_interval_s)

    @worker.agent
    async def frontier(batches: Any) -> None:
        async for batch in batches.events():
            await worker.submit(batch)

    return worker
