"""What each kind of fault does, step by step, and how it is put right."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pipeline.local.kafka import LocalBroker
from tests.chaos.places import Place
from tests.chaos.plan import OF_BROKER, OF_STAGE, AtPoint, Fault, Kind
from tests.chaos.points import Action
from tests.chaos.proxy import Mode
from tests.chaos.schedule import Steps
from tests.chaos.torn import tear

LOOK_S = 0.1
END_S = 30.0
BETWEEN_ROLLS_S = 3.0
POINT_LIMIT_S = 30.0
SIZES = (1, 3, 2)


class Disruptions:
    """Does to places and broker what a plan says, and counts what has really happened.

    Args:
        broker: of all stages.
        places: by stage, by worker.
        seed: of what is drawn while the run goes on: which tails are torn.
        say: told what happens.
    """

    def __init__(
        self, broker: LocalBroker, places: Sequence[Sequence[Place]], seed: int, say: Callable[[str], None]
    ) -> None:
        self.done: Counter[Kind] = Counter()
        """How often each kind has happened; one that met nobody, or a point that was not reached, is not counted."""
        self.points: Counter[tuple[str, Action]] = Counter()
        """What has happened at which point."""
        self.furthest_clock_s = 0.0
        """How far ahead a clock has been at most."""
        self._broker = broker
        self._places = places
        self._chance = random.Random(seed)
        self._say = say
        self._busy: set[int] = set()
        self._broker_away = False

    def steps(self, fault: Fault) -> Steps:
        """Return what a fault does; nothing where what it is meant for is not there."""
        if fault.kind in OF_BROKER:
            yield from self._of_broker(fault)
        elif fault.kind in OF_STAGE:
            yield from self._of_stage(fault)
        else:
            place = self._places[fault.stage][fault.worker]
            if place.untouched:
                yield from self._of_worker(fault, place)

    def _count(self, kind: Kind, what: str) -> None:
        self.done[kind] += 1
        self._say(f"{what}: {kind.value}")

    # ---- one worker

    def _of_worker(self, fault: Fault, place: Place) -> Steps:
        act = {
            Kind.KILL: self._kill,
            Kind.WIPE: self._kill,
            Kind.ABSENCE: self._kill,
            Kind.TERMINATE: self._terminate,
            Kind.PAUSE: self._stop,
            Kind.ZOMBIE: self._stop,
            Kind.POINT: self._at_point,
            Kind.CUT: self._cut,
            Kind.LONG_CUT: self._cut,
            Kind.DISK_FULL: self._fill_disk,
            Kind.CLOCK: self._shift_clock,
        }[fault.kind]
        if fault.kind is not Kind.POINT:  # counted when it is reached
            self._count(fault.kind, f"{place.name}, for {fault.lasts_s:.1f} s")
        yield from act(fault, place)

    def _kill(self, fault: Fault, place: Place) -> Steps:
        place.worker.kill()
        if fault.kind is Kind.WIPE:
            place.worker.lose_disk()
        place.away += 1
        try:
            yield fault.lasts_s
        finally:
            place.away -= 1

    def _terminate(self, fault: Fault, place: Place) -> Steps:
        del fault
        starts = place.worker.starts
        place.worker.send(signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while place.worker.starts == starts and place.worker.running:
            assert time.monotonic() < deadline or place.stopped, (
                f"{place.name} did not end in {END_S} s when asked to:\n{place.worker.log()[-6000:]}"
            )
            yield LOOK_S

    def _stop(self, fault: Fault, place: Place) -> Steps:
        place.stop()
        try:
            yield fault.lasts_s
        finally:
            place.go_on()

    def _at_point(self, fault: Fault, place: Place) -> Steps:
        assert isinstance(fault.detail, AtPoint)
        armed = place.arm(fault.detail.armed)
        try:
            trigger = fault.detail.trigger
            if trigger is Kind.TERMINATE:
                place.worker.send(signal.SIGTERM)
            elif trigger is not None:
                place.worker.kill()
                if trigger is Kind.WIPE:
                    place.worker.lose_disk()
            deadline = time.monotonic() + POINT_LIMIT_S
            while place.is_armed(armed):
                if time.monotonic() > deadline:
                    return
                yield LOOK_S
        finally:
            place.disarm(armed)
        self.points[armed.point, armed.action] += 1
        self._count(fault.kind, f"{place.name}, {armed.action.value} at {armed.point}")
        if armed.action is Action.STOP:
            yield from self._stop(fault, place)

    def _cut(self, fault: Fault, place: Place) -> Steps:
        mode, delay_s = fault.detail
        place.proxy.set(mode, delay_s)
        try:
            yield fault.lasts_s
        finally:
            place.proxy.set(Mode.PASS)

    def _fill_disk(self, fault: Fault, place: Place) -> Steps:
        place.fill_disk(int(fault.detail))
        try:
            yield fault.lasts_s
        finally:
            place.worker.limit_files(None)

    def _shift_clock(self, fault: Fault, place: Place) -> Steps:
        self.furthest_clock_s = max(self.furthest_clock_s, fault.detail)
        place.worker.shift_clock(fault.detail)
        try:
            yield fault.lasts_s
        finally:
            place.worker.shift_clock(0.0)

    # ---- a stage

    def _of_stage(self, fault: Fault) -> Steps:
        if fault.stage in self._busy:
            return
        self._busy.add(fault.stage)
        places = self._places[fault.stage]
        self._count(fault.kind, places[0].stage_name)
        try:
            yield from self._roll(fault, places) if fault.kind is Kind.ROLL else self._scale(fault, places)
        finally:
            self._busy.discard(fault.stage)

    def _roll(self, fault: Fault, places: Sequence[Place]) -> Steps:
        for place in places:
            yield from self._terminate(fault, place)
            yield BETWEEN_ROLLS_S

    def _scale(self, fault: Fault, places: Sequence[Place]) -> Steps:
        away: list[Place] = []
        try:
            for size in SIZES:
                while len(away) > max(0, len(places) - size):
                    away.pop().away -= 1
                for place in places[size : len(places) - len(away)][::-1]:
                    place.away += 1
                    away.append(place)
                    place.worker.send(signal.SIGTERM)
                yield fault.lasts_s
        finally:
            for place in away:
                place.away -= 1

    # ---- the broker

    def _of_broker(self, fault: Fault) -> Steps:
        if self._broker_away:
            return
        self._broker_away = True
        self._count(fault.kind, f"for {fault.lasts_s:.1f} s")
        with ThreadPoolExecutor(1) as thread:  # a start takes seconds, in which other things go wrong
            try:
                yield from _until_done(thread.submit(self._end_broker, fault.kind))
                yield fault.lasts_s
                yield from _until_done(thread.submit(self._broker.start))
            finally:
                thread.submit(self._broker.start).result()
                self._broker_away = False

    def _end_broker(self, kind: Kind) -> None:
        self._broker.stop() if kind is Kind.BROKER_STOP else self._broker.kill()
        if kind is Kind.BROKER_TORN:
            torn = tear(self._broker.directory / "data", self._chance)
            self._say(f"torn: {len(torn)} partitions")


def _until_done(work: Future[object]) -> Steps:
    while not work.done():
        yield LOOK_S
    work.result()
