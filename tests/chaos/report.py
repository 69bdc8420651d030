"""What a run has done and what came of it, as a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.ledger import Row
from tests.chaos.plan import Kind
from tests.chaos.points import Action


@dataclass
class StageReport:
    """What came of one stage.

    Attributes:
        inputs: records that it was sent.
        outputs: records that it has published.
        letters: dead letters, by reason.
        samples: how often its committed offsets were looked at, by partition.
        standstill_s: longest time in which one of its output partitions got nothing.
        exits: status → how often a worker ended so.
    """

    inputs: int = 0
    outputs: int = 0
    letters: Counter[str] = field(default_factory=Counter)
    samples: int = 0
    standstill_s: float = 0.0
    exits: Counter[int] = field(default_factory=Counter)


@dataclass
class Report:
    """What came of a run, or of several; `wrong` is empty where every promise held."""

    disruptions: Counter[Kind] = field(default_factory=Counter)
    points: Counter[tuple[str, Action]] = field(default_factory=Counter)
    stages: defaultdict[str, StageReport] = field(default_factory=lambda: defaultdict(StageReport))
    wrong: list[str] = field(default_factory=list)
    rounds: int = 0

    def add(self, other: Report) -> None:
        """Add what another run has done."""
        self.disruptions.update(other.disruptions)
        self.points.update(other.points)
        self.wrong += other.wrong
        self.rounds += other.rounds
        for name, theirs in other.stages.items():
            mine = self.stages[name]
            mine.inputs += theirs.inputs
            mine.outputs += theirs.outputs
            mine.samples += theirs.samples
            mine.letters.update(theirs.letters)
            mine.exits.update(theirs.exits)
            mine.standstill_s = max(mine.standstill_s, theirs.standstill_s)

    def table(self) -> str:
        """Return it for people to read."""
        total = sum(self.disruptions.values())
        lines = [f"{total} disruptions in {self.rounds} rounds"]
        lines += [f"  {count:6d}  {kind.value}" for kind, count in self.disruptions.most_common()]
        lines.append("faults at points")
        at_points: defaultdict[str, list[str]] = defaultdict(list)
        for (point, action), count in sorted(self.points.items(), key=lambda item: (item[0][0], item[0][1].value)):
            at_points[point].append(f"{action.value} {count}")
        lines += [f"  {point:16s} {', '.join(actions)}" for point, actions in at_points.items()]
        for name, stage in self.stages.items():
            lines.append(name)
            lines.append(f"  {stage.inputs} inputs, {stage.outputs} outputs, dead letters {_listed(stage.letters)}")
            lines.append(f"  exits by status {_listed(stage.exits)}")
            lines.append(f"  committed offsets looked at {stage.samples} times")
            lines.append(f"  longest standstill of a partition {stage.standstill_s:.1f} s")
        lines += [f"wrong: {sentence}" for sentence in self.wrong] or ["0 lost, 0 doubled"]
        return "\n".join(lines)


def standstill_s(outputs: Sequence[Row]) -> float:
    """Longest time between two records of one partition, by their timestamps."""
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for row in outputs:
        by_partition[row.partition].append(row.timestamp_ms)
    gaps_ms = [
        later - earlier
        for moments in by_partition.values()
        for earlier, later in zip(sorted(moments), sorted(moments)[1:], strict=False)
    ]
    return max(gaps_ms, default=0) / 1000


def _listed(counts: Counter) -> str:
    return ", ".join(f"{what}: {count}" for what, count in sorted(counts.items())) or "none"
