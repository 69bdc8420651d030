"""What a reader downstream notices of a fault: a toy stage is fed and read all the time, then its topics are judged."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from tests.chaos.ledger import Offsets, Reader, Row
from tests.chaos.process import Stage, until
from tests.fault_traffic import Flow, Watch, source_of

RECOVERY_S = 60.0
STEADY_RECORDS = 10


@dataclass(frozen=True)
class Observed:
    """What came of one fault.

    Attributes:
        records: how many were fed.
        handled_again: of them, how many were begun more than once.
        written_again: outputs that were written and never became visible.
        rolled_back: outputs that were visible and disappeared, finished records that were begun again after the fault,
            and numbers of the state that are missing or there twice.
        read_twice: outputs that a read_committed reader got more than once.
        lost: records without their outputs and without a dead letter.
        pause_s: longest silence of the partitions of the worker that was struck, as the reader noticed it.
        others_pause_s: the same of all other partitions; None where there are none.
        exits: statuses with which workers ended by themselves; they were started again at once.
    """

    records: int
    handled_again: int
    written_again: int
    rolled_back: int
    read_twice: int
    lost: int
    pause_s: float
    others_pause_s: float | None
    exits: list[int]

    def to_row(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


@dataclass
class FaultRun:
    """One fault under observation: fed and watched from `with` to its end.

    Attributes:
        stage: has workers that run.
        bootstrap: address of the broker.
        struck: partitions of the worker that is struck; all until `strike` says otherwise.
        absent: workers that are not to be started again when they have ended.
        observed: the outcome, once it has ended.
    """

    stage: Stage
    bootstrap: str
    struck: set[int] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    observed: Observed | None = None

    def __enter__(self) -> Self:
        toy, partitions = self.stage.toy, self.stage.partitions
        self._given_up: set[bytes] = set()
        self._exits: list[int] = []
        self.tag = uuid.uuid4().hex[:8]
        self._flow = Flow(self.bootstrap, toy.inputs[0], partitions, self.tag)
        self._watch = Watch(self.bootstrap, toy.out, partitions)
        self._flow.start()
        try:  # an earlier fault may have ended workers of this stage, too
            self.until_as_before()
            self.until(
                lambda: all(len(self._arrivals(p)) >= STEADY_RECORDS for p in range(partitions)), "a steady flow"
            )
        except BaseException:
            self._flow.stop()
            self._watch.stop()
            raise
        self._exits.clear()
        self.struck = set(range(partitions))
        self._struck_at_s, self._struck_wall_s = time.monotonic(), time.time()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._flow.stop()
            if error is None:
                self._drain()
        finally:
            self._watch.stop()
        if error is None:
            self.observed = self._observe()

    def strike(self, *workers: str) -> None:
        """The fault begins now, and it strikes these workers: what is theirs may pause."""
        self._struck_at_s, self._struck_wall_s = time.monotonic(), time.time()
        self.struck = {partition for worker in workers for partition in self.stage.assigned_to(worker)}

    def send(self, partition: int, verb: str, name: str = "") -> bytes:
        """Write a record that asks for something; returns its value."""
        return self._flow.send(partition, verb, name)

    def give_up(self, value: bytes) -> None:
        """Expect a dead letter of a record: one, and no output but what stands beside it."""
        self._given_up.add(value)

    def until_recovered(self) -> None:
        """Wait until every partition has outputs of records that were sent from now on."""
        mended_s = time.monotonic()

        def recovered() -> bool:
            fresh = {seen.partition for seen in list(self._watch.seen) if self._sent_s(seen.source) > mended_s}
            return len(fresh) == self.stage.partitions

        self.until(recovered, "outputs of all partitions")

    def until_as_before(self) -> None:
        """Wait until all workers are there, share the partitions evenly and publish."""

        def shared_out() -> bool:
            shares = [len(self.stage.assigned_to(worker.name)) for worker in self.stage.workers]
            return sum(shares) == self.stage.partitions and max(shares) - min(shares) <= 1

        self.until(shared_out, "even shares")
        self.until_recovered()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait as a supervisor does: who ends by itself is started again."""

        def looked_after() -> bool:
            for worker in self.stage.workers:
                if not worker.running and worker.name not in self.absent:
                    self._exits.append(worker.exit_status())
                    worker.start()
            return bool(condition())

        until(looked_after, f"{what}:\n{self.stage._logs()}", RECOVERY_S)

    def _sent_s(self, source: bytes) -> float:
        sent = self._flow.sent.get(source)
        return sent.at_s if sent else float("-inf")

    def _arrivals(self, partition: int) -> list[float]:
        return [seen.at_s for seen in list(self._watch.seen) if seen.partition == partition]

    def _drain(self) -> None:
        group = Offsets(self.bootstrap, self.stage.toy.group)
        until(
            lambda: not any(group.lag(self.stage.toy.inputs[0], self.stage.partitions).values()), "no lag", RECOVERY_S
        )
        group.close()
        if self.stage.kind == "ordered":
            until(
                lambda: len(self._rows(self.stage.toy.out)) >= self._expected_outputs(), "the last timers", RECOVERY_S
            )

    # ---- what came of it

    def _rows(self, topic: str, isolation: str = "read_committed") -> list[Row]:
        reader = Reader(self.bootstrap, topic, isolation)
        try:
            return [row for row in reader.read_to_end() if source_of(row.value or b"") in self._flow.sent]
        finally:
            reader.close()

    def _copies(self, source: bytes) -> int:
        """How many outputs a record has."""
        return 1 if self.stage.kind == "parallel" else 2 * (source not in self._given_up)

    def _expected_outputs(self) -> int:
        return sum(map(self._copies, self._flow.sent))

    def _observe(self) -> Observed:
        rows = self._rows(self.stage.toy.out)
        outputs = Counter(source_of(row.value or b"") for row in rows)
        letters = Counter(row.value or b"" for row in self._rows(f"{self.stage.toy.inputs[0]}-dlq"))
        everything = self._rows(self.stage.toy.out, "read_uncommitted")
        begun: dict[bytes, list[float]] = defaultdict(list)
        for line in self.stage.journal("begin"):
            begun[line["value"].encode()].append(line["at_s"])
        sent = self._flow.sent
        there = {(row.partition, row.offset) for row in rows}
        return Observed(
            records=len(sent),
            handled_again=sum(len(begun[source]) > 1 for source in sent),
            written_again=len(everything) - len(rows),
            rolled_back=sum((seen.partition, seen.offset) not in there for seen in self._watch.seen)
            + self._finished_and_begun_again(begun)
            + self._misnumbered(),
            read_twice=sum((outputs - Counter({source: self._copies(source) for source in sent})).values())
            + self._seen_twice(),
            lost=sum(
                outputs[source] < self._copies(source) or letters[source] != (source in self._given_up)
                for source in sent
            ),
            pause_s=self._longest_pause_s(self.struck) or 0.0,
            others_pause_s=self._longest_pause_s(set(range(self.stage.partitions)) - self.struck),
            exits=self._exits,
        )

    def _finished_and_begun_again(self, begun: dict[bytes, list[float]]) -> int:
        """Records whose outputs could be read before the fault, and which were begun after it."""
        read = Counter(seen.source for seen in self._watch.seen if seen.at_s < self._struck_at_s)
        finished = (source for source, count in read.items() if count >= self._copies(source) > 0)
        return sum(begun[source][-1] > self._struck_wall_s for source in finished)

    def _misnumbered(self) -> int:
        """Numbers of an ordered stage's state, one for each first record of a key, that are missing or there twice."""
        reader = Reader(self.bootstrap, self.stage.toy.out)
        numbers: dict[int, list[int]] = defaultdict(list)
        for row in reader.read_to_end():
            kind, _, rest = (row.value or b"").partition(b":")
            if kind == b"first":
                numbers[row.partition].append(int(rest.partition(b":")[0]))
        reader.close()
        return sum(len(set(range(1, len(found) + 1)) ^ set(found)) for found in numbers.values())

    def _seen_twice(self) -> int:
        places = Counter((seen.partition, seen.offset) for seen in self._watch.seen)
        return sum(count - 1 for count in places.values())

    def _longest_pause_s(self, partitions: set[int]) -> float | None:
        """Longest time between two outputs of a partition, from just before the fault on."""
        gaps = [
            later - earlier
            for partition in partitions
            for earlier, later in itertools.pairwise(self._arrivals(partition))
            if later > self._struck_at_s
        ]
        return round(max(gaps), 2) if gaps else None
