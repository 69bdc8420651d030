"""The parse stage: page records in; documents, link records and answers to the frontier out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from pipeline import topics
from pipeline.config import Settings
from pipeline.contracts import Codecs, load_codec
from pipeline.delivery.api import ANSWERED_HEADER, Output, Result, SourceRecord, StateView, is_answered
from pipeline.errors import InputError
from pipeline.parse.directives import product_token
from pipeline.parse.document import dead_letter_draft
from pipeline.parse.pool import ParsePool

_WORKER: Final = "pipeline.parse.worker"


class ParseStage:
    """A `ParallelStage`: each page is parsed by a pool of worker processes; nothing is kept.

    Args:
        pool: parses; started and stopped with the stage.
        codecs: contracts, for dead letters.
        clock: seconds since the epoch: the time of parsing that records carry.
    """

    def __init__(self, pool: ParsePool, codecs: Codecs, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._decode = codecs.decoder(topics.PAGES.subject)
        self._encode_parsed = codecs.encoder(topics.PARSED.subject)
        self._clock = clock

    @classmethod
    def from_settings(cls, settings: Settings, clock: Callable[[], float]) -> ParseStage:
        """Build the stage of a configuration.

        Raises:
            ConfigurationError: `registry.lock` can't be used.
        """
        pool = ParsePool(
            worker_command(settings),
            processes=settings.parse.processes,
            time_limit_s=settings.parse.time_limit_s,
            recycle_pages=settings.parse.recycle_pages,
        )
        return cls(pool, load_codec(settings.registry.lock), clock)

    async def start(self) -> None:
        await self._pool.start()

    async def stop(self) -> None:
        await self._pool.stop()

    def opened(self, partition: int, view: StateView | None) -> None:
        """Nothing is kept by partition."""

    def closed(self, partition: int) -> None:
        """Nothing is kept by partition."""

    async def handle(self, record: SourceRecord, *, backlog: bool) -> Result:
        """Parse one page; see `ParallelStage.handle`.

        Raises:
            InputError: no page record, a body that can't be had, or `parse_crash`.
            ParseFailure: the parser failed in a way nobody foresaw.
        """
        del backlog  # a page is parsed the same, however long it has waited
        if record.value is None:
            raise InputError("undecodable", "a page record without a value")
        outputs = await self._pool.parse(record.value, record.partition, self._now_ms())
        return Result(_marked(outputs, record))

    async def dead_letter_outputs(self, record: SourceRecord, reason: str) -> list[Output]:
        """Tell the frontier that the page's parsing has ended, where the record says which page it is."""
        del reason
        try:
            page = self._decode(record.value)
            draft = dead_letter_draft(page, partition=record.partition, now_ms=self._now_ms())
        except InputError:
            return []
        answer = Output(draft.topic.name, self._encode_parsed(draft.record), draft.key, draft.partition)
        return _marked([answer], record)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)


def _marked(outputs: list[Output], page: SourceRecord) -> list[Output]:
    """Let the answer of a page that had one before say so."""
    if not is_answered(page.headers):
        return outputs
    mark = ((ANSWERED_HEADER, b"1"),)
    return [row._replace(headers=mark) if row.topic == topics.PARSED.name else row for row in outputs]


def worker_command(settings: Settings) -> Sequence[str]:
    """Command line of a worker process (`pipeline.parse.worker`)."""
    command = [
        sys.executable, "-m", _WORKER,
        "--partitions", str(settings.topics.partitions),
        "--agent", product_token(settings.fetch.user_agent),
        "--max-url-bytes", str(settings.frontier.max_url_bytes),
        "--memory-limit-bytes", str(settings.parse.memory_limit_bytes),
        "--time-limit-s", str(settings.parse.time_limit_s),
    ]  # fmt: skip
    if settings.registry.lock is not None:
        command += ["--lock", str(settings.registry.lock.absolute())]
    return command
