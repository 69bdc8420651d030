"""Faults at named points of the delivery core: its classes are wrapped from outside, nothing in them knows of it.

A worker process calls `install(Points(directory, name))` before it makes its worker. Whoever breaks it arms a point by
a file in the directory, while the worker runs or before it starts, and reads there what has happened:

    arm(directory, "a", Armed("before_commit", Action.KILL, passes=3))
    ...
    assert [firing.point for firing in fired(directory)] == ["before_commit"]

A file outlives the process: what was armed and not reached is reached by its successor.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException

from tests.chaos import lines

POLL_S = 0.01
FLUSH_S = 10.0
FIRED = "fired"


class Action(Enum):
    """What a worker does to itself at a point."""

    KILL = "kill"
    """Ends as by a power cut."""
    STOP = "stop"
    """Stops the whole process, until somebody sends SIGCONT."""
    STALL = "stall"
    """Stays there for some seconds; the other threads go on."""
    FAIL = "fail"
    """Raises an error that the product must survive: one that asks for an abort, or for another try."""
    EXPLODE = "explode"
    """Raises an error that nobody expects there: the worker ends with the status of a bug."""
    HOLD = "hold"
    """Stays there until it is disarmed."""


_SILENT = (Action.KILL, Action.STOP, Action.STALL)
_ALL = (*_SILENT, Action.FAIL)

POINTS: dict[str, tuple[Action, ...]] = {
    "before_begin": _SILENT,
    "before_produce": _ALL,
    "after_produce": _ALL,
    "before_offsets": _ALL,
    "after_offsets": _ALL,
    "before_commit": _ALL,
    "after_commit": _SILENT,
    "before_apply": _SILENT,
    "after_apply": _SILENT,
    "revoke": _SILENT,
    "drained": _SILENT,
    "revoked": _SILENT,
    "restore_start": _SILENT,
    "restore_read": _ALL,
    "restore_written": _ALL,
    "restore_end": _SILENT,
    "offsets_read": _SILENT,
    "heartbeat": (),
}
"""Point → the actions that a run may draw for it: after them all promises must hold.

`before_`/`after_` `begin`, `produce`, `offsets`, `commit`: calls of the transactional producer; `apply`: a committed
transaction is written to the store. `revoke`: partitions are called back, or the worker shuts down; `drained`: between
the drain and the last commit; `revoked`: everything is forgotten. `restore_read`: a chunk of the changelog is read,
`restore_written`: it is in the store. `offsets_read`: the stable offsets of an assignment are known and not yet sought.
`heartbeat`: only for HOLD: as long as it is armed the worker sends none and believes that it does.
"""


@dataclass(frozen=True)
class Armed:
    """What shall happen at a point.

    Attributes:
        point: a name in `POINTS`.
        action: what the worker does there.
        passes: it happens when the point is passed for this time, counted from 1 and anew in each process.
        times: how many passes in a row it happens.
        seconds: how long a stall lasts.
        identifier: tells two armings of one point apart.
    """

    point: str
    action: Action
    passes: int = 1
    times: int = 1
    seconds: float = 0.0
    identifier: str = ""

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise ValueError(f"no point is called {self.point!r}")

    def to_row(self) -> dict[str, object]:
        """Return what JSON can hold."""
        return {**asdict(self), "action": self.action.value}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Inverse of `to_row`."""
        return cls(**{**row, "action": Action(row["action"])})


class Firing(NamedTuple):
    """Something happened at a point.

    Attributes:
        worker: to whom.
        point: where.
        action: what.
        identifier: of the arming.
    """

    worker: str
    point: str
    action: Action
    identifier: str


def arm(directory: Path, worker: str, armed: Armed) -> Armed:
    """Let something happen at a point of a worker from now on; replaces what was armed there.

    Args:
        directory: of the workers' points; made when missing.
        worker: the name its process gave to `Points`.
        armed: what shall happen.

    Returns:
        The same with an identifier, which its firing will name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    named = replace(armed, identifier=uuid.uuid4().hex)
    path = _path(directory, worker, armed.point)
    unfinished = path.with_name(f"{path.name}.{named.identifier}")
    unfinished.write_text(json.dumps(named.to_row()), encoding="utf-8")
    unfinished.replace(path)  # a worker sees the whole file or none
    return named


def disarm(directory: Path, worker: str, point: str) -> None:
    """Let nothing happen at a point any more; a worker that is held there goes on."""
    _path(directory, worker, point).unlink(missing_ok=True)


def is_armed(directory: Path, worker: str, point: str) -> bool:
    """Whether something is still to happen there."""
    return _path(directory, worker, point).exists()


def fired(directory: Path) -> list[Firing]:
    """Return what has happened so far, in order."""
    rows = lines.read(directory / FIRED)
    return [Firing(row["worker"], row["point"], Action(row["action"]), row["identifier"]) for row in rows]


def _path(directory: Path, worker: str, point: str) -> Path:
    return directory / f"armed-{point}-{worker}"


class Points:
    """The points of one worker process.

    Args:
        directory: where they are armed and where a firing leaves a line.
        worker: its name in there.
        armed: what happens in this process without a file.
        window_s: a random pause up to this stands before and after each commit, so that a fault at a random time finds
            transactions half done.
    """

    def __init__(self, directory: Path, worker: str, armed: Sequence[Armed] = (), window_s: float = 0.0) -> None:
        self._directory = directory
        self._worker = worker
        self._given = {one.point: one for one in armed}
        self._paths = {point: str(_path(directory, worker, point)) for point in POINTS}
        self._passed: Counter[tuple[str, str]] = Counter()
        self._window_s = window_s
        self._random = random.Random()

    def pass_by(self, point: str, before_fail: Callable[[], object] | None = None) -> None:
        """Pass a point in a thread that may block.

        Args:
            point: its name.
            before_fail: called before the error of FAIL is raised.

        Raises:
            KafkaException: FAIL.
            ZeroDivisionError: EXPLODE.
        """
        armed = self._due(point)
        if armed is None:
            return
        if armed.action is Action.STALL:
            time.sleep(armed.seconds)
        elif armed.action is Action.HOLD:
            while self.is_held(point):
                time.sleep(POLL_S)
        else:
            _act(armed.action, before_fail)

    async def pass_by_in_loop(self, point: str) -> None:
        """Pass a point in the event loop, which goes on meanwhile; otherwise as `pass_by`."""
        armed = self._due(point)
        if armed is None:
            return
        if armed.action is Action.STALL:
            await asyncio.sleep(armed.seconds)
        elif armed.action is Action.HOLD:
            while self.is_held(point):  # noqa: ASYNC110  # the event comes from another process
                await asyncio.sleep(POLL_S)
        else:
            _act(armed.action, None)

    def is_held(self, point: str) -> bool:
        """Whether this worker is held at a point."""
        armed = self._armed(point)
        return armed is not None and armed.action is Action.HOLD

    def pause(self) -> None:
        """Make the window around a commit wider."""
        if self._window_s:
            time.sleep(self._random.uniform(0.0, self._window_s))

    def _armed(self, point: str) -> Armed | None:
        if not os.path.exists(self._paths[point]):  # noqa: PTH110  # at each record: a Path costs five times as much
            return self._given.get(point)
        try:
            return Armed.from_row(json.loads(Path(self._paths[point]).read_text(encoding="utf-8")))
        except FileNotFoundError:  # disarmed meanwhile
            return None

    def _due(self, point: str) -> Armed | None:
        """Count one pass; return what shall happen now, which is noted and, if it was the last time, disarmed."""
        armed = self._armed(point)
        if armed is None:
            return None
        key = (point, armed.identifier)
        self._passed[key] += 1
        number = self._passed[key] - armed.passes
        if not 0 <= number < armed.times:
            return None
        if number == armed.times - 1 and armed.action is not Action.HOLD:
            disarm(self._directory, self._worker, point)
        written = lines.Lines(self._directory / FIRED)
        written.append({"worker": self._worker, **armed.to_row()})
        written.close()
        return armed


def _act(action: Action, before_fail: Callable[[], object] | None) -> None:
    if action is Action.KILL:
        signal.pthread_kill(threading.get_ident(), signal.SIGKILL)  # to this thread: no instruction further
    elif action is Action.STOP:
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif action is Action.FAIL:
        if before_fail is not None:
            before_fail()
        raise KafkaException(KafkaError(KafkaError._INCONSISTENT, "asked for", txn_requires_abort=True))
    elif action is Action.EXPLODE:
        raise ZeroDivisionError("nobody foresaw this")


def install(points: Points) -> None:
    """Wrap the product's classes in this process, once, before the worker is made."""
    from tests.chaos import pointed  # noqa: PLC0415  # who arms points needs none of the product

    pointed.wrap_producer(points)
    pointed.wrap_state(points)
    pointed.wrap_runners(points)
    pointed.wrap_group(points)
