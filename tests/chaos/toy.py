"""Toy stages on the real delivery core, as worker processes: what goes wrong here is the core's fault.

`python -m tests.chaos.toy KIND` with the topics as JSON in TOY and the configuration in HEADRACE_*.
Parallel: passes each record on after a random pause. Ordered: passes the first record of each key on at once, and
once more by a timer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import struct
import sys

from pipeline.config import load
from pipeline.delivery.api import Output, Result
from pipeline.delivery.worker import Layout, Worker
from pipeline.errors import InputError

TIMER_PAUSE_S = 0.2
POISON = b"poison"


class ToyParallel:
    """Passes records on out of order."""

    def __init__(self, out: str, slow_share: float) -> None:
        self._out = out
        self._slow_share = slow_share
        self._random = random.Random()

    async def start(self):
        pass

    async def stop(self):
        pass

    def opened(self, partition, view):
        pass

    def closed(self, partition):
        pass

    async def handle(self, record, *, backlog):
        slow = self._random.random() < self._slow_share
        await asyncio.sleep(self._random.uniform(0.3, 2.0) if slow else self._random.uniform(0.0, 0.03))
        if record.value == POISON:
            raise InputError("invalid_task", "poison", "value")
        return Result([Output(self._out, record.value, record.key)])

    async def dead_letter_outputs(self, record, reason):
        return []


class ToyPartition:
    """Table s: keys seen; table t: due time and key of what the timer passes on."""

    def __init__(self, view, out: str) -> None:
        self._view = view
        self._out = out

    def handle(self, record, now):
        if record.value == POISON:
            self._view.put("s", b"half-way", b"1")
            raise InputError("invalid_task", "poison", "value")
        if record.value is None or record.key is None or self._view.get("s", record.key) is not None:
            return []
        self._view.put("s", record.key, b"1")
        self._view.put("t", struct.pack(">d", now + TIMER_PAUSE_S) + record.key, record.value)
        return [Output(self._out, b"first:" + record.value, record.key)]

    def due(self):
        for key, _ in self._view.items("t"):
            return struct.unpack(">d", key[:8])[0]
        return None

    def tick(self, now):
        ripe = []
        for key, value in self._view.items("t"):
            if struct.unpack(">d", key[:8])[0] > now:
                break
            ripe.append((key, value))
        for key, _ in ripe:
            self._view.delete("t", key)
        return [Output(self._out, b"timer:" + value, key[8:]) for key, value in ripe]

    def before_commit(self, positions, now):
        return []

    def committed(self):
        pass

    def aborted(self):
        pass

    def close(self):
        pass


class ToyOrdered:
    """Opens partitions of the ordered toy."""

    def __init__(self, out: str) -> None:
        self._out = out

    def open(self, partition, view, now):
        return ToyPartition(view, self._out)


def main() -> None:
    """Run one worker until a signal."""
    kind, toy = sys.argv[1], json.loads(os.environ["TOY"])
    settings = load().settings
    logging.basicConfig(level=logging.INFO)
    sizes = dict.fromkeys([toy["out"], *(f"{name}-dlq" for name in toy["inputs"])], 1 << 20)
    layout = Layout(toy["group"], tuple(toy["inputs"]), toy.get("changelog", ""), sizes)
    worker = Worker(f"toy-{kind}", settings, layout=layout, max_poll_records=500)
    if kind == "parallel":
        worker.run_parallel(ToyParallel(toy["out"], toy.get("slow_share", 0.005)), dict.fromkeys(layout.inputs, 200))
    else:
        worker.run_ordered(ToyOrdered(toy["out"]), ("s", "t"), interval_s=0.1)

    @worker.agent
    async def take(stream):
        async for event in stream.events():
            await worker.submit(event)

    worker.main()


if __name__ == "__main__":
    main()
