"""Toy stages on the real delivery core, as worker processes: what goes wrong here is the core's fault.

`python -m tests.chaos.toy KIND` with a `Toy` as JSON in TOY and the configuration in HEADRACE_*.
Parallel: passes each record on after a random pause. Ordered: passes the first record of each key on at once, with its
number in the partition, and once more by a timer. Both note what they do in a journal, and both obey what a record's
value asks for: a verb, and after colons the name of a gate and anything that tells two records apart.

A gate is a file: a record waits until it is there. In the same folder the points of `points.py` are armed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import random
import signal
import struct
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pipeline.config import load
from pipeline.contracts.codec import load_codec
from pipeline.delivery.api import Change, Output, Result
from pipeline.delivery.broker_wait import wait_for_broker
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.transport import Consumer
from pipeline.delivery.worker import Layout, Worker
from pipeline.errors import ConfigurationError, InputError
from pipeline.ops.control import ControlListener
from pipeline.ops.endpoint import serve
from pipeline.ops.worker_health import worker_health
from pipeline.process import outlive_output
from tests.chaos import clock
from tests.chaos.lines import Lines
from tests.chaos.points import Action, Armed, Points, install

GATE_POLL_S = 0.01
LARGE_BYTES = 2 << 20
REFUSED_BYTES = 300 << 10


@dataclass(frozen=True)
class Faults:
    """What goes wrong in a worker, on purpose.

    Attributes:
        aborts: so many transactions, from the first on, end with an error that asks for an abort.
        explode: the transaction of this number, counted from 1, raises an error that nobody expects of a producer.
        drop_batch: the batch of this number never reaches the runner.
        agent_ends: the agent ends at the batch of this number, and nobody takes what follows.
        deaf: the partition of this number is never fetched.
        hang_stop: the shutdown never ends.
        window_s: random pause, up to this, between offsets and commit and before the store is written.
    """

    aborts: int = 0
    explode: int = 0
    drop_batch: int = 0
    agent_ends: int = 0
    deaf: int = -1
    hang_stop: bool = False
    window_s: float = 0.0

    def armed(self) -> list[Armed]:
        """Return those that happen at a point."""
        armed = []
        if self.aborts:
            armed.append(Armed("before_commit", Action.FAIL, times=self.aborts))
        if self.explode:
            armed.append(Armed("before_begin", Action.EXPLODE, passes=self.explode))
        return armed


@dataclass(frozen=True)
class Toy:
    """What a worker does.

    Attributes:
        group: consumer group.
        inputs: topics read.
        out: topic of the outputs.
        journal: file in which each handling leaves a line.
        gates: directory; a record waits until the file with its gate's name is there.
        changelog: topic of the state; needed by the ordered kind.
        pause_s: longest pause of an ordinary record (parallel).
        slow_share: share of records that take up to two seconds (parallel).
        timer_s: from a key's first record to its timer (ordered).
        slots: records in flight for each input topic (parallel).
        forgiving: every record is an ordinary one, whatever it asks for.
        served: whether it has an endpoint, and answers on the topics GROUP-control and GROUP-answers.
        faults: what goes wrong.
    """

    group: str
    inputs: list[str]
    out: str
    journal: str
    gates: str
    changelog: str = ""
    pause_s: float = 0.0
    slow_share: float = 0.0
    timer_s: float = 0.2
    slots: int = 200
    forgiving: bool = False
    served: bool = False
    faults: Faults = field(default_factory=Faults)

    def to_json(self) -> str:
        """Return the text for the environment."""
        return json.dumps(asdict(self))

    def without_faults(self) -> Toy:
        """Return the same toy in good order."""
        return replace(self, faults=Faults())

    @classmethod
    def from_json(cls, text: str) -> Toy:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "faults": Faults(**fields["faults"])})


class Gates:
    """Places where a worker waits for the test."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    async def wait(self, name: str) -> None:
        """Wait in the loop until the gate is open."""
        while not (self._directory / name).exists():  # noqa: ASYNC110  # the event comes from another process
            await asyncio.sleep(GATE_POLL_S)

    def wait_blocking(self, name: str) -> None:
        """Wait in a thread until the gate is open."""
        while not (self._directory / name).exists():
            time.sleep(GATE_POLL_S)


class Journal:
    """Lines that outlive the process: side effects, as requests to a site would be."""

    def __init__(self, path: str, worker: str) -> None:
        self._lines = Lines(Path(path))
        self._worker = worker

    def note(self, event: str, **fields: object) -> None:
        """Append one line."""
        self._lines.append({"worker": self._worker, "event": event, "at_s": time.time(), **fields})

    def record(self, event: str, record) -> None:
        """Append one line about a record."""
        value = (record.value or b"")[:100].decode(errors="replace")
        self.note(event, topic=record.topic, partition=record.partition, offset=record.offset, value=value)


def fail(verb: str) -> None:
    """Raise what the record asks for."""
    if verb == "poison":
        raise InputError("invalid_task", "poison", "value")
    if verb == "undecodable":
        raise InputError("undecodable", "not a record of ours")
    if verb == "bug":
        raise ZeroDivisionError("nobody foresaw this")
    if verb == "leak":
        raise asyncio.CancelledError
    if verb == "crash":
        os.kill(os.getpid(), signal.SIGKILL)


def verb_and_name(value: bytes) -> tuple[str, str]:
    """Split what a record asks for."""
    verb, name = (*value.decode(errors="replace").split(":"), "")[:2]
    return verb, name


def body(verb: str, name: str) -> bytes | None:
    """Return the body that a record asks to be passed on as, None where it is passed on as it is."""
    if verb == "large":
        return bytes(LARGE_BYTES)
    if verb == "random":  # hardly to be compressed
        return random.Random(name).randbytes(int(name))
    if verb == "letters":
        return b"a" * int(name)
    return None


class ToyParallel:
    """Passes records on out of order."""

    def __init__(self, toy: Toy, gates: Gates, journal: Journal) -> None:
        self._toy = toy
        self._gates = gates
        self._journal = journal
        self._random = random.Random()

    async def start(self):
        pass

    async def stop(self):
        if self._toy.faults.hang_stop:
            await asyncio.Event().wait()

    def opened(self, partition, view):
        pass

    def closed(self, partition):
        pass

    async def handle(self, record, *, backlog):
        self._journal.record("begin", record)
        if record.value is None:
            return Result()
        verb, name = ("v", "") if self._toy.forgiving else verb_and_name(record.value)
        await self._pause(record, verb, name)
        fail(verb)
        self._journal.record("end", record)
        value = body(verb, name) or record.value
        return Result([Output(self._toy.out, value, record.key)], self._changes(record), verb == "urgent")

    def _changes(self, record):
        return [Change("s", record.key or b"", record.value)] if self._toy.changelog else []

    async def _pause(self, record, verb, name):
        if verb == "gate":
            await self._gates.wait(name)
        elif verb == "block":
            self._gates.wait_blocking(name)
        elif verb == "stubborn":
            try:
                await self._gates.wait(name)
            except asyncio.CancelledError:
                self._journal.record("cancelled", record)
                await self._gates.wait(f"{name}.after")
        elif self._random.random() < self._toy.slow_share:
            await asyncio.sleep(self._random.uniform(0.3, 2.0))
        elif self._toy.pause_s:
            await asyncio.sleep(self._random.uniform(0.0, self._toy.pause_s))

    async def dead_letter_outputs(self, record, reason):
        return [Output(self._toy.out, b"beside:" + (record.value or b""), record.key)]


class ToyPartition:
    """Table s: keys seen; table t: due time and key of what the timer passes on."""

    refused = 0
    """How many records too large for the broker were tried in this process."""

    def __init__(self, partition: int, view, toy: Toy, gates: Gates, journal: Journal) -> None:
        self._partition = partition
        self._view = view
        self._toy = toy
        self._gates = gates
        self._journal = journal
        self._seen = sum(1 for _ in view.items("s"))  # memory derived from the view: wrong if it outlives an abort

    def handle(self, record, now):
        self._journal.record("begin", record)
        if record.value is None or record.key is None:
            return []
        verb, name = ("v", "") if self._toy.forgiving else verb_and_name(record.value)
        if verb == "gate":
            self._gates.wait_blocking(name)
        known = self._view.get("s", record.key) is not None
        self._seen += 1
        self._view.put("s", record.key, b"1")
        fail(verb)  # half-way: what was written and counted is undone
        if known:
            self._seen -= 1
            return []
        self._view.put("t", struct.pack(">d", now + self._toy.timer_s) + record.key, record.value)
        first = body(verb, name) or b"first:%d:%s" % (self._seen, record.value)
        if verb == "refused" and not ToyPartition.refused:
            ToyPartition.refused += 1
            first = random.Random(0).randbytes(REFUSED_BYTES)
        return [Output(self._toy.out, first, record.key)]

    def due(self):
        for key, _ in self._view.items("t"):
            return struct.unpack(">d", key[:8])[0]
        return None

    def tick(self, now):
        self._journal.note("tick", partition=self._partition)
        ripe = []
        for key, value in self._view.items("t"):
            if struct.unpack(">d", key[:8])[0] > now:
                break
            ripe.append((key, value))
        for key, _ in ripe:
            self._view.delete("t", key)
        return [Output(self._toy.out, b"timer:" + value, key[8:]) for key, value in ripe]

    def before_commit(self, positions, now):
        return []

    def committed(self):
        self._journal.note("committed", partition=self._partition)

    def aborted(self):
        self._journal.note("aborted", partition=self._partition)

    def close(self):
        pass


class ToyOrdered:
    """Opens partitions of the ordered toy."""

    def __init__(self, toy: Toy, gates: Gates, journal: Journal) -> None:
        self._rest = (toy, gates, journal)

    def open(self, partition, view, now):
        self._rest[-1].note("opened", partition=partition)
        return ToyPartition(partition, view, *self._rest)


def go_deaf(number: int) -> None:
    """Fetch nothing of a partition, as a consumer that has lost sight of it."""
    fetch = Consumer._getmany

    async def deaf(self, active_partitions, timeout):  # noqa: ASYNC109  # as in the base class
        return await fetch(self, {tp for tp in active_partitions if tp.partition != number}, timeout)

    Consumer._getmany = deaf


def watch(worker: Worker, journal: Journal) -> None:
    """Note what the group does with the worker."""

    async def assigned(app, assigned, **kwargs):
        journal.note("assigned", partitions=sorted([tp.topic, tp.partition] for tp in assigned))

    drain = worker.runner._drain

    async def drained():
        if worker.runner._assignment is None:  # called back before the first assignment, too
            return
        journal.note("drain")
        await drain()
        journal.note("drained")

    worker.runner._drain = drained
    worker.app.on_partitions_assigned.connect(assigned, weak=False)


def make_worker(kind: str, toy: Toy) -> Worker:
    """Build the worker of one process."""
    settings = load().settings
    gates, journal = Gates(toy.gates), Journal(toy.journal, settings.worker.name)
    install(Points(Path(toy.gates), settings.worker.name, toy.faults.armed(), toy.faults.window_s))
    sizes = dict.fromkeys([toy.out, *(f"{name}-dlq" for name in toy.inputs)], 1 << 20)
    worker = Worker(
        f"toy-{kind}", settings, layout=Layout(toy.group, tuple(toy.inputs), toy.changelog, sizes), max_poll_records=500
    )
    if kind == "parallel":
        tables = ("s",) if toy.changelog else ()
        worker.run_parallel(ToyParallel(toy, gates, journal), dict.fromkeys(toy.inputs, toy.slots), tables)
    else:
        worker.run_ordered(ToyOrdered(toy, gates, journal), ("s", "t"), interval_s=0.1)
    watch(worker, journal)
    if toy.faults.deaf >= 0:
        go_deaf(toy.faults.deaf)
    if toy.served:
        journal.note("served", port=serve("127.0.0.1", 0, worker.registry, worker_health(worker)))
        ControlListener(
            worker.options,
            load_codec(),
            stage=worker.stage_name,
            name=worker.name,
            runner=worker.runner,
            control=f"{toy.group}-control",
            answers=f"{toy.group}-answers",
        ).start()
    journal.note("made")

    @worker.agent
    async def take(stream):
        number = 0
        async for event in stream.events():
            number += 1
            if number == toy.faults.agent_ends:
                journal.note("agent ended")
                return
            if number == toy.faults.drop_batch:
                journal.note("dropped")
            else:
                await worker.submit(event)

    return worker


def main() -> None:
    """Run one worker until a signal."""
    outlive_output()  # as the command does it
    faulthandler.register(signal.SIGQUIT)  # a test that waited in vain asks where the threads are
    logging.basicConfig(level=logging.INFO)
    toy = Toy.from_json(os.environ["TOY"])
    clock.install(Path(os.environ["TOY_CLOCK"]))
    wait_for_broker(load().settings.broker.bootstrap)
    try:
        worker = make_worker(sys.argv[1], toy)
    except ConfigurationError as exc:  # as the command does it: a full disk, a directory in use
        print(f"headrace: {exc}", file=sys.stderr)  # noqa: T201
        raise SystemExit(int(ExitCode.CONFIGURATION)) from exc
    worker.main()


if __name__ == "__main__":
    main()
