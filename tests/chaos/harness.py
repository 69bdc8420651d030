"""A run in which toy workers and their broker are killed, stopped, cut off and robbed while records come in."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.local.kafka import LocalBroker
from tests.chaos import checker
from tests.chaos.disruptions import Disruptions
from tests.chaos.feeder import Feeder
from tests.chaos.ledger import Offsets, Reader, Row
from tests.chaos.places import Place
from tests.chaos.plan import plan
from tests.chaos.process import SESSION_S, Stage, until
from tests.chaos.proxy import Proxy
from tests.chaos.report import Report, standstill_s
from tests.chaos.samples import Sampler, wrong_samples
from tests.chaos.schedule import Schedule
from tests.chaos.settings import STAGES, ChaosSettings
from tests.chaos.toy import Faults, Toy

log = logging.getLogger(__name__)

PARTITIONS = 6
WINDOW_S = 0.1
LOOK_S = 0.05
DRAIN_S = 120.0
REACH_S = 20.0


class ChaosRun:
    """One run, from its topics to its verdict.

    Args:
        directory: for everything.
        settings: what it is made of.
    """

    def __init__(self, directory: Path, settings: ChaosSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._proxies = [[Proxy() for _ in range(settings.workers)] for _ in settings.stages]
        ports = [proxy.port for proxies in self._proxies for proxy in proxies]
        self._broker = LocalBroker(directory / "kafka", advertised_ports=ports)
        self._stages: dict[str, Stage] = {}
        self._places: dict[str, list[Place]] = {}
        self._samplers: dict[str, Sampler] = {}

    def run(self) -> Report:
        """Run to the end."""
        settings = self._settings
        with contextlib.ExitStack() as at_end:
            for proxies in self._proxies:
                for proxy in proxies:
                    at_end.callback(proxy.stop)
            self._broker.start()
            at_end.callback(self._broker.stop)
            at_end.callback(self._end_workers)
            self._start_workers()
            disruptions = Disruptions(self._broker, list(self._places.values()), settings.seed, log.info)
            feeder = self._feeder()
            for sampler in self._samplers.values():
                at_end.callback(sampler.stop)
                sampler.start()
            feeder.start()
            try:
                self._break_things(disruptions)
            finally:
                self._broker.start()
                feeder.stop()
            self._drain(disruptions.furthest_clock_s)
            report = Report(disruptions.done, disruptions.points, rounds=1)
            self._judge(report)
            return report

    # ---- what there is

    def _start_workers(self) -> None:
        addresses = iter(self._broker.proxied_addresses)
        for name, proxies in zip(self._settings.stages, self._proxies, strict=True):
            stage = self._stages[name] = self._stage(name)
            self._places[name] = []
            for number, proxy in enumerate(proxies):
                proxy.start(next(addresses))
                worker = stage.worker(f"w{number}", broker__bootstrap=proxy.address)
                self._places[name].append(Place(name, worker.start(), proxy, Path(stage.toy.gates)))
            toy = stage.toy
            written = (toy.out, f"{toy.inputs[0]}-dlq")
            self._samplers[name] = Sampler(self._broker.bootstrap, toy.group, toy.inputs[0], written, PARTITIONS)
        for name, places in self._places.items():
            for place in places:
                self._stages[name].assigned_to(place.worker.name, REACH_S * len(self._stages))

    def _stage(self, name: str) -> Stage:
        kind, with_state = STAGES[name]
        topics = {part: f"chaos-{name}-{part}" for part in ("in", "in-dlq", "out", "changelog")}
        made = [
            NewTopic(topic, PARTITIONS, 1, config={"cleanup.policy": "compact"} if part == "changelog" else {})
            for part, topic in topics.items()
        ]
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        for done in admin.create_topics(made).values():
            done.result(REACH_S)
        directory = self._directory / name
        toy = Toy(
            group=f"chaos-{name}",
            inputs=[topics["in"]],
            out=topics["out"],
            journal=str(directory / "journal"),
            gates=str(directory / "gates"),
            changelog=topics["changelog"] if with_state else "",
            pause_s=0.03,
            slow_share=0.005,
            faults=Faults(window_s=WINDOW_S),
        )
        return Stage(kind, toy, self._broker.bootstrap, directory, PARTITIONS)

    def _feeder(self) -> Feeder:
        settings = self._settings
        topics = [stage.toy.inputs[0] for stage in self._stages.values()]
        return Feeder(self._broker.bootstrap, topics, settings.rate_per_s, settings.seed, settings.bodies)

    def _all_places(self) -> list[Place]:
        return [place for places in self._places.values() for place in places]

    def _end_workers(self) -> None:
        for stage in self._stages.values():
            stage.end()

    # ---- what goes wrong

    def _break_things(self, disruptions: Disruptions) -> None:
        settings = self._settings
        faults = plan(
            settings.seed,
            settings.duration_s,
            stages=len(settings.stages),
            workers=settings.workers,
            session_s=SESSION_S,
            weights=settings.weights,
            gap_s=settings.gap_s,
            without_state=[number for number, name in enumerate(settings.stages) if not STAGES[name][1]],
        )
        log.info("chaos with seed %d: %d faults in %.0f s", settings.seed, len(faults), settings.duration_s)
        began_s = time.monotonic()
        schedule = Schedule()
        for fault in faults:
            schedule.add(began_s + fault.at_s, disruptions.steps(fault))
        try:
            while len(schedule) and time.monotonic() < began_s + settings.duration_s:
                schedule.run(time.monotonic())
                self._start_those_that_ended()
                time.sleep(LOOK_S)
        finally:
            schedule.close()

    def _start_those_that_ended(self) -> None:
        for place in self._all_places():
            place.start_if_ended()

    # ---- what comes of it

    def _drain(self, clock_s: float) -> None:
        """Wait until the groups have nothing left to do, workers that end being started again."""
        began_s = time.monotonic()
        for place in self._all_places():
            place.worker.shift_clock(clock_s)  # what a clock that was ahead has put off comes due
        groups = {name: Offsets(self._broker.bootstrap, stage.toy.group) for name, stage in self._stages.items()}

        def drained() -> bool:
            self._start_those_that_ended()
            try:
                return not any(
                    any(group.lag(self._stages[name].toy.inputs[0], PARTITIONS).values())
                    for name, group in groups.items()
                )
            except KafkaException:  # a transaction that somebody left open, until the broker ends it
                return False

        try:
            until(drained, "the groups' lag to be 0", DRAIN_S)
            for stage in self._stages.values():
                if stage.kind == "ordered":
                    self._wait_for_timers(stage)
        except AssertionError:
            for place in self._all_places():
                place.worker.tell_stacks()
            raise
        finally:
            for group in groups.values():
                group.close()
        log.info("drained in %.1f s", time.monotonic() - began_s)
        for sampler in self._samplers.values():
            sampler.stop()
        for place in self._all_places():
            place.worker.send(signal.SIGTERM)
        for place in self._all_places():
            place.note_exit()

    def _wait_for_timers(self, stage: Stage) -> None:
        changes = Reader(self._broker.bootstrap, stage.toy.changelog)
        until(lambda: not _open_timers(changes.read_to_end()), "the last timers", DRAIN_S)
        changes.close()

    def _judge(self, report: Report) -> None:
        for name, stage in self._stages.items():
            toy = stage.toy
            dead = f"{toy.inputs[0]}-dlq"
            inputs, outputs, letters = (self._rows(topic) for topic in (toy.inputs[0], toy.out, dead))
            samples = self._samplers[name].samples
            wrong = [] if inputs else ["nothing was sent"]
            if stage.kind == "parallel":
                crashes = checker.crashes_by_record(stage.journal())
                wrong += checker.wrong_parallel(inputs, outputs, letters, crashes)
            else:
                wrong += checker.wrong_ordered(inputs, outputs, letters)
            evidence = checker.evidence_of(stage.kind, (toy.out, dead), inputs, outputs, letters)
            wrong += wrong_samples(inputs, evidence, samples)
            if toy.changelog:
                changelog = self._rows(toy.changelog)
                states = [place.worker.state_dir for place in self._places[name]]
                wrong += checker.wrong_state(stage.kind, inputs, letters, changelog)
                wrong += checker.wrong_stores(changelog, states, checker.TABLES[stage.kind])
            report.wrong += [f"{name}: {sentence}" for sentence in wrong]
            part = report.stages[name]
            part.inputs, part.outputs, part.samples = len(inputs), len(outputs), len(samples)
            part.letters.update(row.headers["dlq-reason"].decode() for row in letters)
            part.standstill_s = standstill_s(outputs)
            for place in self._places[name]:
                part.exits.update(place.exits)

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
