"""One worker process with a bare stage, which measures itself: `python -m bench.bare_worker` with a `Job` on its input.

It ends when it has read the input, or when its time is up. Its log goes to its standard error, what it found to the
file that the job names.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import faust
import psutil
import uvloop
from faust.types import EventT

from bench.bare_stages import TABLE, BareOrdered, BareParallel, Work
from bench.record_events import use_record_events
from pipeline.config import load
from pipeline.delivery.worker import Layout, Worker

Runner = Literal["parallel", "ordered", "faust"]
SLOTS = 1_000
SAMPLE_S = 0.02
MAX_BYTES = 1 << 20
FAUST_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker has to do.

    Attributes:
        runner: one of ours, or a plain Faust agent that sends what it gets, at least once.
        work: of the stage.
        record_events: one Faust event a record and not a batch (a plain agent knows nothing else).
        group: consumer group and first part of the topics' names.
        source: input topic.
        records: in it, of this job.
        value_bytes: of each of them.
        seconds: after which it ends although something is left.
        broker_pid: its CPU time is counted.
        result: file that is written at the end.
    """

    runner: Runner
    work: Work
    record_events: bool
    group: str
    source: str
    records: int
    value_bytes: int
    seconds: float
    broker_pid: int
    result: str

    @property
    def out(self) -> str:
        """Topic of the outputs."""
        return f"{self.group}-out"

    @property
    def changelog(self) -> str:
        """Topic of the state; empty for a runner without."""
        return f"{self.group}-changelog" if self.runner == "ordered" else ""


class Counts(NamedTuple):
    """Where a worker stands."""

    records: int
    commits: int


class Sample(NamedTuple):
    """A look at a worker at one time; seconds."""

    at_s: float
    records: int
    commits: int
    cpu_s: float
    broker_s: float


class Gauge(threading.Thread):
    """Looks at the worker until its work is done, then lets it end.

    From the first commit that is seen to the last: what came before is the start, what a commit holds came before it.

    Args:
        job: when it is done.
        look: returns where the worker stands.
    """

    def __init__(self, job: Job, look: Callable[[], Counts]) -> None:
        super().__init__(daemon=True, name="gauge")
        self._job = job
        self._look = look
        self._broker = psutil.Process(job.broker_pid)

    def run(self) -> None:
        """Sample, write the result, ask the process to stop."""
        samples: list[Sample] = []
        while not samples or (
            samples[-1].records < self._job.records and time.perf_counter() < samples[0].at_s + self._job.seconds
        ):
            time.sleep(SAMPLE_S)
            counts = self._look()
            if counts.records > (samples[-1].records if samples else 0):
                broker_s = sum(self._broker.cpu_times()[:2])
                samples.append(Sample(time.perf_counter(), *counts, time.process_time(), broker_s))
        Path(self._job.result).write_text(json.dumps([samples[0], samples[-1]]), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGTERM)


def our_worker(job: Job) -> Worker:
    """Build a worker of the pipeline's own kind around a bare stage."""
    layout = Layout(job.group, (job.source,), job.changelog, {job.out: MAX_BYTES, f"{job.source}-dlq": MAX_BYTES})
    few = job.value_bytes > 10_000
    worker = Worker(f"bare-{job.runner}", load().settings, layout=layout, max_poll_records=500 if few else 5_000)
    if job.runner == "parallel":
        worker.run_parallel(BareParallel(job.out if job.work == "pass" else None), {job.source: SLOTS})
    else:
        worker.run_ordered(BareOrdered(job.work, job.out), (TABLE,))
    if job.record_events:
        use_record_events(worker)

    @worker.agent
    async def take(stream: Any) -> None:
        async for event in stream.events():
            await worker.submit(event)

    return worker


def faust_app(job: Job, count: Callable[[], None]) -> Any:
    """Build a plain Faust app, as its own guide has it: each event is sent on, offsets are committed by time."""
    app = faust.App(
        job.group,
        broker=f"kafka://{load().settings.broker.bootstrap}",
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_max_batch_size=FAUST_BUFFER_BYTES,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        datadir=str(load().settings.worker.data_dir),
    )
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    out = app.topic(job.out, **raw)

    @app.agent(app.topic(job.source, **raw))  # type: ignore[untyped-decorator]  # faust is not followed
    async def take(stream: Any) -> None:
        event: EventT
        async for event in stream.events():
            if job.work == "pass":
                await out.send(key=event.key, value=event.value, partition=event.message.partition)
            count()

    return app


def main() -> None:
    """Run until the job is done."""
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as the workers of the pipeline have it
    job = Job(**json.load(sys.stdin))
    if job.runner == "faust":
        done = 0

        def count() -> None:
            nonlocal done
            done += 1

        app = faust_app(job, count)
        Gauge(job, lambda: Counts(done, 0)).start()
        sys.argv = ["faust", "worker", "-l", "warn", "--without-web"]
        app.main()
        return
    worker = our_worker(job)
    labels = {"stage": worker.stage_name}

    def look() -> Counts:
        series = ("headrace_records_total", "headrace_commits_total")
        return Counts(*(int(worker.registry.get_sample_value(name, labels) or 0) for name in series))

    Gauge(job, look).start()
    worker.main()


def to_json(job: Job) -> str:
    """Return the text for a worker's input."""
    return json.dumps(asdict(job))


if __name__ == "__main__":
    main()
