"""A whole pipeline that runs: a broker, a small simulated web, one worker of each stage, a monitor."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from confluent_kafka import Producer

from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.local.checker import Report, check
from pipeline.local.crawl_run import CrawlRun
from pipeline.local.request_log import read_log
from pipeline.local.simulated_web import ServedWeb, crawler_options
from pipeline.local.site_judge import Interruption, killed
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet, WorkerProcess
from pipeline.local.topic_reader import ReadRecord, read_all
from pipeline.ops import topics
from pipeline.ops.lag import LagReader, PartitionLag
from pipeline.topics import INPUTS, STAGES, group_id

T = TypeVar("T")

DELAY_S = 0.05
MAX_DEPTH = 12
SESSION_S = 6.0
LOOK_S = 0.1
END_LOOK_S = 1.5
LIMIT_S = 60.0


class PipelineWorld:
    """Starts everything; a context manager.

    Args:
        directory: for everything that is written.
        seed: of the simulated web; without a Crawl-delay, which would only take time.
        hosts: of the simulated web.
        pages: of each host.

    Attributes:
        environ: what a command needs to work on this broker.
        interruptions: when workers were killed.
    """

    def __init__(self, directory: Path, *, seed: int, hosts: int, pages: int) -> None:
        self.directory = directory
        self.documents = directory / "documents"
        self.interruptions: list[Interruption] = []
        self._served = ServedWeb(seed, hosts, pages, directory / "requests.jsonl")
        self._stack = LocalStack(directory / "local", registry=False)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        if hasattr(self, "fleet"):
            self.monitor.terminate()
            self.fleet.stop()
            self.monitor.wait(5)
            self._lag.close()
        self._stack.stop()
        self._served.stop()

    def _start(self) -> None:
        self._stack.start()
        self.environ = {
            **crawler_options(self._served.port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self._stack.addresses.bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": str(DELAY_S),
            "HEADRACE_DELIVERY__SESSION_TIMEOUT_S": str(SESSION_S),
            "HEADRACE_STORE__DIRECTORY": str(self.documents),
            "HEADRACE_STORE__SEGMENT_S": "1",
            "HEADRACE_WORKER__DATA_DIR": str(self.directory),
        }
        self.settings = with_addresses(load(environ=self.environ).settings, self._stack.addresses)
        topics.apply(client_options(self.settings.broker), self.settings)
        self.codecs = load_codec()
        self.web = self._served.web
        self.expectation = self.web.expectation(MAX_DEPTH)
        self._lag = LagReader(client_options(self.settings.broker))
        self.fleet = Fleet(self.directory, self.environ, dict.fromkeys(STAGES, 1))
        self.monitor = WorkerProcess(
            "monitor",
            ["-m", "pipeline.cli", "monitor", "--interval", "0.5"],
            self.environ,
            self.directory / "logs" / "monitor.log",
        )
        self.fleet.start()
        self.monitor.start()

    @property
    def bootstrap(self) -> str:
        """Address of the broker."""
        return self._stack.addresses.bootstrap

    def worker(self, stage: str) -> WorkerProcess:
        """Return the worker of a stage."""
        return self.fleet.by_stage[stage][0]

    def until(self, condition: Callable[[], T], what: str, *, pause_s: float = LOOK_S, limit_s: float = LIMIT_S) -> T:
        """Return the condition's answer as soon as it is true; workers that end are started again meanwhile."""
        deadline = time.monotonic() + limit_s
        while not (answer := condition()):
            assert time.monotonic() < deadline, f"waited {limit_s} s for {what}; workers end with {self.tails()}"
            self.fleet.look_after()
            time.sleep(pause_s)
        return answer

    def tails(self) -> str:
        """Return the ends of the workers' logs."""
        return "\n".join(f"--- {worker.label}\n{worker.tail()[-1_500:]}" for worker in self.fleet.all)

    # ---- a crawl

    def begin(self, crawl: str) -> CrawlRun:
        """Begin a crawl of the whole web."""
        definition = {
            "crawl": crawl, "start_urls": list(self.web.start_urls), "scope": [], "max_depth": MAX_DEPTH,
            "created_at_ms": 0, "max_pages": None, "max_pages_per_domain": None, "delay_ms": None,
        }  # fmt: skip
        run = CrawlRun(self.settings, self.codecs, definition)
        run.begin(self.web.start_urls)
        return run

    def until_ended(self, run: CrawlRun) -> None:
        """Wait for a crawl's end and for its documents to be in files."""
        self.until(lambda: run.status().ended, "the end of the crawl", pause_s=END_LOOK_S)
        self.until(lambda: run.documents_left() == 0, "the files")

    def kill(self, stage: str) -> None:
        """SIGKILL the worker of a stage."""
        self.worker(stage).kill()
        self.interruptions.append(killed(time.time_ns()))

    def judge(self, crawl: str) -> Report:
        """Let the checker judge a crawl that has ended."""
        return check(
            self.bootstrap,
            self.expectation,
            self._served.log,
            DELAY_S,
            crawl=crawl,
            interruptions=self.interruptions,
        )

    def documents_in_files(self, crawl: str) -> Counter[str]:
        """Return URL -> how often it is in finished files."""
        rows = [json.loads(line) for file in self.documents.glob("*.jsonl") for line in file.read_bytes().splitlines()]
        return Counter(row["url"] for row in rows if row["crawl"] == crawl)

    def requests(self) -> Counter[str]:
        """Return canonical URL -> how often the sites were asked."""
        return Counter(request.page for request in read_log(self._served.log))

    # ---- topics

    def write(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        """Write a record as anybody might, without our code."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value, key, partition)
        assert 0 == producer.flush(10)

    def read(self, topic: str) -> list[ReadRecord]:
        """Return all committed records of a topic."""
        return read_all(self.bootstrap, topic)

    def lags(self, stage: str) -> list[PartitionLag]:
        """Return the lag of a stage's group by partition."""
        names = [topic.name for topic in INPUTS[stage]]
        return self._lag.read(group_id(stage), names, self.settings.topics.partitions)

    def until_idle(self, limit_s: float = 30.0) -> None:
        """Wait until no group has lag."""
        self.until(
            lambda: not any(lag.lag for stage in STAGES for lag in self.lags(stage)),
            "groups without lag",
            limit_s=limit_s,
        )
