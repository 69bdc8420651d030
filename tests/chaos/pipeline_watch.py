"""What the groups of the pipeline have committed, looked at all the time, and how long each stood still."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from pipeline.errors import BrokerError
from pipeline.local.topic_judge import CommitSeen
from pipeline.ops.lag import LagReader, PartitionLag
from pipeline.topics import FETCHES, INPUTS, PAGES, PARSED, STAGES, group_id

LOOK_S = 0.5
END_S = 20.0
ANSWERS = {**{lane.name: FETCHES.name for lane in INPUTS["fetch"]}, PAGES.name: PARSED.name}


class PipelineWatch:
    """Looks in a thread of its own.

    Args:
        options: librdkafka options of the cluster.
        partitions: of every topic.
    """

    def __init__(self, options: Mapping[str, str], partitions: int) -> None:
        self.commits: list[CommitSeen] = []
        self.longest_standstill_s = dict.fromkeys(STAGES, 0.0)
        """Stage → longest time between commits with work left, seconds; times without a broker included."""
        self._lag = LagReader(options)
        self._partitions = partitions
        self._since_s: dict[str, float] = {}
        self._reached: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def commits_of(self, stage: str) -> int:
        """Return how much a stage has committed, when last looked at."""
        return self._reached.get(stage, 0)

    def close(self) -> None:
        """End the thread and its clients."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        self._lag.close()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            seen: dict[str, list[PartitionLag]] = {}
            # The frontier last: the ends of its inputs are those of the answers, to be read after the commits.
            for stage in ("fetch", "parse", "store", "frontier"):
                try:
                    names = [topic.name for topic in INPUTS[stage]]
                    seen[stage] = self._lag.read(group_id(stage), names, self._partitions)
                except BrokerError:
                    continue
                self._note_progress(stage, seen[stage])
            if "frontier" in seen:
                ends = {(lag.topic, lag.partition): lag.high_watermark for lag in seen["frontier"]}
                self._note_commits([*seen.get("fetch", []), *seen.get("parse", [])], ends)

    def _note_progress(self, stage: str, lags: list[PartitionLag]) -> None:
        now_s = time.monotonic()
        # Counted before it is looked whether it has ended: while the broker is away nobody can look.
        stood_s = now_s - self._since_s.get(stage, now_s)
        self.longest_standstill_s[stage] = max(self.longest_standstill_s[stage], stood_s)
        reached = sum((lag.committed or 0) + lag.finished_ahead for lag in lags)
        if not any(lag.lag for lag in lags):
            self._since_s.pop(stage, None)
        elif reached != self._reached.get(stage):
            self._since_s[stage] = now_s
        self._reached[stage] = reached

    def _note_commits(self, lags: list[PartitionLag], ends: Mapping[tuple[str, int], int]) -> None:
        for lag in lags:
            found = lag.offset_map
            if found is not None:
                answers_end = ends[ANSWERS[lag.topic], lag.partition]
                seen = CommitSeen(lag.topic, lag.partition, found.base, found.end, found.unfinished, answers_end)
                if not self.commits or seen != self.commits[-1]:
                    self.commits.append(seen)
