"""A run in which toy workers and their broker are killed, stopped and robbed of their disks while records come in."""

from __future__ import annotations

import heapq
import itertools
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.delivery.exits import ExitCode
from pipeline.local.kafka import LocalBroker
from tests.chaos import checker
from tests.chaos.feeder import Feeder
from tests.chaos.ledger import Offsets, Reader, Row
from tests.chaos.plan import Fault, Kind, plan
from tests.chaos.process import SESSION_S, Stage, ToyWorker, until
from tests.chaos.toy import Faults, Toy

log = logging.getLogger(__name__)

PARTITIONS = 6
RATE_PER_S = 200.0
WINDOW_S = 0.1
WORKERS = ("a", "b")
LOOK_S = 0.05
END_S = 30.0
DRAIN_S = 120.0
REACH_S = 20.0
# What a worker may end with by itself when others are killed around it.
EXPECTED = {0, ExitCode.BROKER, ExitCode.REPLACED, -signal.SIGKILL, -signal.SIGTERM}


class ChaosRun:
    """One run, from its topics to its verdict.

    Args:
        directory: for everything.
        seed: of the faults and of what is fed.
        duration_s: how long things go wrong.
        broker_kills: how often the broker is among them.
    """

    def __init__(self, directory: Path, seed: int, duration_s: float, broker_kills: int) -> None:
        self._directory = directory
        self._duration_s = duration_s
        self._seed = seed
        self._broker = LocalBroker(directory / "kafka")
        self._stages: list[Stage] = []
        self._workers: list[ToyWorker] = []
        self._absent: set[int] = set()
        self._stopped: set[int] = set()
        self._faults = plan(seed, duration_s, 2 * len(WORKERS), SESSION_S, broker_kills)
        self._exits: Counter[tuple[str, int]] = Counter()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def run(self) -> list[str]:
        """Run to the end; returns what is wrong, nothing where all is well."""
        log.info("chaos with seed %d: %d faults in %.0f s", self._seed, len(self._faults), self._duration_s)
        self._broker.start()
        try:
            self._stages = [self._stage("parallel"), self._stage("ordered")]
            self._workers = [stage.worker(name) for stage in self._stages for name in WORKERS]
            for worker in self._workers:
                worker.start()
            for stage in self._stages:
                for name in WORKERS:
                    stage.assigned_to(name)
            topics = [stage.toy.inputs[0] for stage in self._stages]
            feeder = Feeder(self._broker.bootstrap, topics, RATE_PER_S, self._seed)
            feeder.start()
            try:
                self._break_things()
            finally:
                self._mend_everything()
                feeder.stop()
            try:
                self._drain()
            except AssertionError:
                for worker in self._workers:
                    worker.tell_stacks()
                raise
            return self._verdict()
        finally:
            for stage in self._stages:
                stage.end()
            self._broker.stop()

    def _stage(self, kind: str) -> Stage:
        topics = {name: f"chaos-{kind}-{name}" for name in ("in", "in-dlq", "out", "changelog")}
        made = [
            NewTopic(topic, PARTITIONS, 1, config={"cleanup.policy": "compact"} if name == "changelog" else {})
            for name, topic in topics.items()
        ]
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        for done in admin.create_topics(made).values():
            done.result(REACH_S)
        directory = self._directory / kind
        toy = Toy(
            group=f"chaos-{kind}",
            inputs=[topics["in"]],
            out=topics["out"],
            journal=str(directory / "journal"),
            gates=str(directory / "gates"),
            changelog=topics["changelog"] if kind == "ordered" else "",
            pause_s=0.03,
            slow_share=0.005,
            faults=Faults(window_s=WINDOW_S),
        )
        return Stage(kind, toy, self._broker.bootstrap, directory, PARTITIONS)

    # ---- what goes wrong

    def _break_things(self) -> None:
        began_s = time.monotonic()
        for fault in self._faults:
            self._at(began_s + fault.at_s, partial(self._begin, fault))
        while self._later or time.monotonic() < began_s + self._duration_s:
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            self._start_those_that_ended()
            time.sleep(LOOK_S)

    def _at(self, when_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._later, (when_s, next(self._order), action))

    def _begin(self, fault: Fault) -> None:
        end_s = time.monotonic() + fault.lasts_s
        if fault.kind is Kind.BROKER:
            log.info("%s", fault.kind.value)
            self._broker.kill()
            self._at(end_s, self._broker.start)
            return
        worker = self._workers[fault.worker]
        if fault.worker in self._absent | self._stopped or not worker.running:
            return  # the plan hits one that is down already
        log.info("%s-%s %s, for %.1f s", worker.kind, worker.name, fault.kind.value, fault.lasts_s)
        if fault.kind in {Kind.PAUSE, Kind.ZOMBIE}:
            worker.send(signal.SIGSTOP)
            self._stopped.add(fault.worker)
            self._at(end_s, partial(self._continue, fault.worker))
        elif fault.kind is Kind.TERMINATE:
            worker.send(signal.SIGTERM)
            self._at(time.monotonic() + END_S, partial(self._must_have_ended, worker, worker.starts))
        else:
            worker.kill()
            if fault.kind is Kind.WIPE:
                worker.lose_disk()
            self._absent.add(fault.worker)
            self._at(end_s, partial(self._absent.discard, fault.worker))

    def _continue(self, index: int) -> None:
        self._workers[index].send(signal.SIGCONT)
        self._stopped.discard(index)

    def _must_have_ended(self, worker: ToyWorker, starts: int) -> None:
        assert worker.starts > starts, f"{worker.name} did not end in {END_S} s when asked to:\n{worker.log()[-3000:]}"

    def _start_those_that_ended(self) -> None:
        for index, worker in enumerate(self._workers):
            if index not in self._absent and not worker.running:
                self._note_exit(worker)
                worker.start()

    def _note_exit(self, worker: ToyWorker) -> None:
        status = worker.exit_status()
        self._exits[worker.kind, status] += 1
        assert status in EXPECTED, f"{worker.kind}-{worker.name} ended with {status}:\n{worker.log()[-6000:]}"

    def _mend_everything(self) -> None:
        self._broker.start()
        for index in self._stopped:
            self._workers[index].send(signal.SIGCONT)
        self._stopped.clear()
        self._absent.clear()

    # ---- what comes of it

    def _drain(self) -> None:
        """Wait until the groups have nothing left to do, workers that end being started again."""
        began_s = time.monotonic()
        offsets = [Offsets(self._broker.bootstrap, stage.toy.group) for stage in self._stages]

        def drained() -> bool:
            self._start_those_that_ended()
            return all(
                not any(group.lag(stage.toy.inputs[0], PARTITIONS).values())
                for group, stage in zip(offsets, self._stages, strict=True)
            )

        until(drained, "the groups' lag to be 0", DRAIN_S)
        ordered = self._stages[1]
        changes = Reader(self._broker.bootstrap, ordered.toy.changelog)
        until(lambda: not _open_timers(changes.read_to_end()), "the last timers", DRAIN_S)
        changes.close()
        for group in offsets:
            group.close()
        log.info("drained in %.1f s; exits %s", time.monotonic() - began_s, dict(self._exits))
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        for worker in self._workers:
            assert worker.exit_status() in EXPECTED

    def _verdict(self) -> list[str]:
        wrong = []
        for stage, judge in zip(self._stages, (checker.wrong_parallel, checker.wrong_ordered), strict=True):
            inputs, outputs = self._rows(stage.toy.inputs[0]), self._rows(stage.toy.out)
            letters = self._rows(f"{stage.toy.inputs[0]}-dlq")
            log.info("%s: %d inputs, %d outputs, %d dead letters", stage.kind, len(inputs), len(outputs), len(letters))
            assert inputs
            wrong += [f"{stage.kind}: {sentence}" for sentence in judge(inputs, outputs, letters)]
        states = [worker.state_dir for worker in self._workers if worker.kind == "ordered"]
        return wrong + checker.wrong_stores(self._rows(self._stages[1].toy.changelog), states)

    def _rows(self, topic: str) -> list[Row]:
        reader = Reader(self._broker.bootstrap, topic)
        try:
            return reader.read_to_end()
        finally:
            reader.close()


def _open_timers(changelog: list[Row]) -> int:
    """How many rows of the timers' table the changelog leaves."""
    rows = {(row.partition, row.key): row.value for row in changelog if (row.key or b"").startswith(b"t")}
    return sum(value is not None for value in rows.values())
