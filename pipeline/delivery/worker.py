"""One worker process: a Faust app of one stage with its runner, producer, watchdog and lock on its data directory."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TextIO

import faust
import uvloop
from aiokafka.errors import KafkaError
from faust.tables.manager import TableManager
from faust.transport.drivers import TRANSPORTS
from prometheus_client import CollectorRegistry

from pipeline.config import Settings, client_options
from pipeline.delivery.api import OrderedStage, ParallelStage
from pipeline.delivery.credentials import faust_credentials
from pipeline.delivery.exits import ExitCode, exit_after
from pipeline.delivery.identity import check_layout
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.delivery.ordered import OrderedRunner
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.delivery.parallel import ParallelRunner, StateLocation
from pipeline.delivery.runner import Runner
from pipeline.delivery.transactions import TransactionalProducer
from pipeline.delivery.transport import URL_SCHEME, BatchSchema
from pipeline.errors import ConfigurationError
from pipeline.process import calm_garbage_collection, raise_file_limit
from pipeline.state.changelog import Changelog, PlainRows, RowCodec
from pipeline.topics import CHANGELOGS, DAY_MS, DLQ_EXTRA_BYTES, INPUTS, all_names, group_id

log = logging.getLogger(__name__)

BATCHES_BUFFERED = 4
MAX_FETCH_BYTES = 1 << 20
HEARTBEAT_MARGIN_S = 2.0
LOCK_PAUSE_S = 0.2
MAX_POLL_INTERVAL_S = 2_000_000.0
"""Never: a worker whose partitions are all held polls nothing, and aiokafka would take it for dead. Standstills are the
watchdog's to notice."""


class Layout(NamedTuple):
    """The topics of a stage.

    Attributes:
        group: consumer group and Faust app id.
        inputs: topics read, in the order in which an ordered stage takes them.
        changelog: topic of the stage's state; empty for a stage without.
        max_bytes: topic → largest record it takes, for every topic that may be written.
    """

    group: str
    inputs: tuple[str, ...]
    changelog: str
    max_bytes: Mapping[str, int]


def layout_of(stage_name: str) -> Layout:
    """Return the layout of a stage of the pipeline."""
    return Layout(
        group_id(stage_name),
        tuple(topic.name for topic in INPUTS[stage_name]),
        CHANGELOGS[stage_name].name if stage_name in CHANGELOGS else "",
        {name: topic.max_message_bytes + (DLQ_EXTRA_BYTES if name != topic.name else 0) for name, topic in all_names()},
    )


class NoTables(TableManager):
    """There are none, so nothing waits the second that Faust gives tables to be registered."""

    async def on_start(self) -> None:
        """Start as Faust does, at once."""
        await self._update_channels()
        await self.recovery.start()


class FaustWorker(faust.Worker):
    """Arms the watchdog when the signal arrives: a shutdown that hangs earlier never gets to a service's `on_stop`."""

    async def _sentinel_task(self) -> None:
        """Let the last callbacks run, without the second of sleep that a deploy would wait for in each worker."""
        await asyncio.sleep(0)

    def _schedule_shutdown(self, signal: Any) -> None:
        exit_after(self.app.headrace_shutdown_s, 0)
        super()._schedule_shutdown(signal)


class Worker:
    """A stage's process.

    Args:
        stage_name: one of `pipeline.topics.STAGES`, or any name with a layout of its own.
        settings: the whole configuration.
        layout: the stage's topics; None for those of the pipeline.
        max_poll_records: records decoded ahead per fetch: small for large records.
        compression: codec of the worker's output batches.
    """

    def __init__(
        self,
        stage_name: str,
        settings: Settings,
        *,
        layout: Layout | None = None,
        max_poll_records: int = 5_000,
        compression: str = "zstd",
    ) -> None:
        self.settings = settings
        self.layout = layout or layout_of(stage_name)
        self.stage_name = stage_name
        self.name = f"{stage_name}-{settings.worker.name}"
        self.registry = CollectorRegistry()
        self.metrics = DeliveryMetrics(self.registry, stage_name)
        self.options = client_options(settings.broker)
        self.directory = settings.worker.data_dir / "state" / self.name
        self.app = self._make_app(max_poll_records)
        self._compression = compression
        self._runner: Runner | None = None
        self._lock: TextIO | None = None

    @property
    def runner(self) -> Runner:
        """The runner; set by `run_parallel` or `run_ordered`."""
        if self._runner is None:
            raise ConfigurationError(f"the {self.stage_name} worker has no runner")
        return self._runner

    def membership_is_fresh(self) -> bool:
        """Whether the group can't have given this worker's partitions away yet."""
        fresh: bool = self.app.consumer.membership_is_fresh(
            self.settings.delivery.session_timeout_s,
            min(HEARTBEAT_MARGIN_S, self.settings.delivery.session_timeout_s / 3),
        )
        return fresh

    def run_parallel(self, stage: ParallelStage, lanes: dict[str, int], tables: tuple[str, ...] = ()) -> None:
        """Use the parallel runner.

        Args:
            stage: what is done with a record.
            lanes: topic → how many of its records may be in flight.
            tables: of the stage's state; none for a stage without.

        Raises:
            ConfigurationError: as `run_ordered`.
        """
        self._take_directory()
        state = StateLocation(self._changelog(PlainRows()), self.directory, tables) if tables else None
        self._install(
            ParallelRunner(
                self.app, stage, lanes=lanes, journal=self.directory / "in-flight", state=state, **self._shared()
            )
        )

    def run_ordered(
        self,
        stage: OrderedStage,
        tables: tuple[str, ...],
        rows: RowCodec | None = None,
        interval_s: float | None = None,
    ) -> None:
        """Use the ordered runner.

        Args:
            stage: opens the partitions' logic.
            tables: one-letter names of the state's tables.
            rows: how rows travel in the changelog; None for rows that are contract records already.
            interval_s: longest time between commits under load; None for the configured one.

        Raises:
            ConfigurationError: another worker has the data directory, or it can't be written.
        """
        self._take_directory()
        shared = self._shared()
        if interval_s is not None:
            shared["interval_s"] = interval_s
        changelog = self._changelog(rows or PlainRows())
        self._install(
            OrderedRunner(
                self.app,
                stage,
                changelog=changelog,
                directory=self.directory,
                tables=tables,
                journal=self.directory / "in-hand",
                **shared,
            )
        )

    def agent(self, handler: Callable[[Any], Awaitable[None]]) -> None:
        """Register the agent: it gets the stream of batch events of all input topics of the stage."""
        source = self.app.topic(*self.layout.inputs, acks=False, schema=BatchSchema())
        self.app.agent(source, name=self.stage_name)(handler)

    async def submit(self, event: Any) -> None:
        """Hand a batch event to the runner; never raises and never waits for capacity."""
        await self.runner.submit(event)

    def _take_directory(self) -> None:
        """Lock the data directory for the life of the process, before anything in it is touched."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / "owner").open("a+", encoding="ascii")
            self._wait_for_lock(self._lock)
            self._lock.truncate(0)
            os.write(self._lock.fileno(), f"{os.getpid()}\n".encode())  # unbuffered: a full disk answers here
        except BlockingIOError as exc:
            raise ConfigurationError(
                f"{self.directory} is in use by another worker named {self.name}; give this one another worker.name"
            ) from exc
        except OSError as exc:
            raise ConfigurationError(
                f"{self.directory}: {exc.strerror}; name another directory by worker.data_dir"
            ) from exc

    def _wait_for_lock(self, lock: TextIO) -> None:
        """A predecessor whose supervisor was killed may still be draining: as long as a shutdown takes."""
        deadline = time.monotonic() + self.settings.delivery.shutdown_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_PAUSE_S)
            else:
                return

    def _install(self, runner: Runner) -> None:
        self._runner = runner
        self.app.headrace_runner = runner
        self.app._extra_services.append(runner)  # noqa: SLF001  # the place Faust gives services that start with the app

    def _changelog(self, rows: RowCodec) -> Changelog:
        limit_s = self.settings.delivery.stable_offsets_s
        return Changelog(self.options, self.layout.changelog, rows, DAY_MS / 1000, limit_s)

    def _shared(self) -> dict[str, Any]:
        delivery = self.settings.delivery
        transactional_id = f"{self.layout.group}-{self.settings.worker.name}"
        written = {*self.layout.max_bytes, self.layout.changelog} - {""}
        return {
            "stage_name": self.stage_name,
            "settings": delivery,
            "options": self.options,
            "input_topics": self.layout.inputs,
            "partitions": self.settings.topics.partitions,
            "max_bytes": self.layout.max_bytes,
            "producer": TransactionalProducer(
                self.options, transactional_id, delivery.transaction_timeout_s, self._compression
            ),
            "own_transactions": OwnTransactions(self.settings.broker, transactional_id, written),
            "metrics": self.metrics,
            "interval_s": delivery.commit_interval_s,
        }  # fmt: skip

    def _make_app(self, max_poll_records: int) -> Any:
        TRANSPORTS.aliases[URL_SCHEME] = "pipeline.delivery.transport:Transport"
        delivery = self.settings.delivery
        servers = self.options["bootstrap.servers"].split(",")
        app = faust.App(
            self.layout.group,
            broker=[f"{URL_SCHEME}://{server.strip()}" for server in servers],
            broker_credentials=faust_credentials(self.settings.broker),
            consumer_group_instance_id=self.name,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=MAX_FETCH_BYTES,
            broker_max_poll_records=max_poll_records,
            broker_session_timeout=delivery.session_timeout_s,
            broker_heartbeat_interval=delivery.heartbeat_s,
            broker_max_poll_interval=MAX_POLL_INTERVAL_S,
            stream_buffer_maxsize=BATCHES_BUFFERED,  # batches, not records
            topic_allow_declare=False,
            topic_disable_leader=True,
            web_enabled=False,
            datadir=str(self.directory / "faust"),
            Worker=FaustWorker,
            TableManager=NoTables,
        )
        app.headrace_shutdown_s = delivery.shutdown_s
        return app

    def main(self) -> None:
        """Run as `faust worker` until a signal. Does not return."""
        loop = type(asyncio.get_event_loop_policy())
        if not issubclass(loop, uvloop.EventLoopPolicy):
            log.info("running on the loop policy %s", loop.__name__)
        check_layout()
        raise_file_limit()
        calm_garbage_collection()
        level = {"warning": "warn"}.get(self.settings.worker.log_level, self.settings.worker.log_level)  # Faust's words
        sys.argv = ["faust", "worker", "-l", level, "--without-web"]
        try:
            self.app.main()
        except SystemExit as exc:
            raise SystemExit(self._status(exc)) from exc

    def _status(self, end: SystemExit) -> int:
        """Return the status to exit with: Faust's own is 1, whatever has happened."""
        if self.runner.exit_code is not None:
            return int(self.runner.exit_code)
        if isinstance(end.__context__ or self.app.crash_reason, KafkaError):  # the broker went away during the start
            return int(ExitCode.BROKER)
        return int(ExitCode.BUG) if end.code else 0
