"""The table of topics: name, key, retention, compaction, size. One place, for `headrace topics` and workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MIB = 1 << 20
DLQ_SUFFIX = "-dlq"
DLQ_EXTRA_BYTES = 64 << 10
"""Room that a dead letter's headers have beyond its origin."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. All have the partition count of the configuration and are co-partitioned by registrable domain.

    Attributes:
        name: as on the broker.
        key: what the record key is.
        owner: the stage that reads it; empty where only people and tools do.
        cleanup: Kafka's cleanup.policy.
        retention_ms: how long records are kept (delete only).
        max_message_bytes: largest batch the broker takes.
        dead_letters: whether a `-dlq` topic belongs to it.
        subject: the subject of its values.
    """

    name: str
    key: str
    owner: str
    subject: str
    cleanup: Literal["delete", "compact"] = "delete"
    retention_ms: int = 7 * DAY_MS
    max_message_bytes: int = MIB
    dead_letters: bool = False

    @property
    def dlq(self) -> str:
        """Name of the topic of its dead letters."""
        return self.name + DLQ_SUFFIX

    def config(self) -> dict[str, str]:
        """Topic configuration as the broker takes it."""
        config = {"cleanup.policy": self.cleanup, "max.message.bytes": str(self.max_message_bytes)}
        if self.cleanup == "delete":
            config["retention.ms"] = str(self.retention_ms)
        else:
            config["delete.retention.ms"] = str(DAY_MS)
        return config


DOMAIN = "registrable domain"

TASKS = Topic("crawl.tasks.v1", DOMAIN, "frontier", "crawl.tasks.v1-value", dead_letters=True)
TASKS_URGENT = Topic("crawl.tasks.urgent.v1", DOMAIN, "frontier", "crawl.tasks.v1-value", dead_letters=True)
LINKS = Topic("crawl.links.v1", "none: partition by number", "frontier", "crawl.links.v1-value", dead_letters=True)
PARSED = Topic("crawl.parsed.v1", DOMAIN, "frontier", "crawl.parsed.v1-value", dead_letters=True)
FETCHES = Topic("crawl.fetches.v1", DOMAIN, "frontier", "crawl.fetches.v1-value", dead_letters=True)
GRANTS = Topic("crawl.grants.v1", "none: partition by number", "frontier", "crawl.grants.v1-value", dead_letters=True)
LANE_URGENT = Topic("crawl.frontier.urgent.v1", DOMAIN, "fetch", "crawl.frontier.v1-value", dead_letters=True)
LANE_NORMAL = Topic("crawl.frontier.normal.v1", DOMAIN, "fetch", "crawl.frontier.v1-value", dead_letters=True)
LANE_BULK = Topic("crawl.frontier.bulk.v1", DOMAIN, "fetch", "crawl.frontier.v1-value", dead_letters=True)
PAGES = Topic("crawl.pages.v1", DOMAIN, "parse", "crawl.pages.v1-value", retention_ms=DAY_MS, dead_letters=True)
DOCUMENTS = Topic(
    "crawl.documents.v1",
    DOMAIN,
    "store",
    "crawl.documents.v1-value",
    retention_ms=30 * DAY_MS,
    max_message_bytes=4 * MIB,
    dead_letters=True,
)
CRAWLS = Topic("crawl.crawls.v1", "crawl id", "", "crawl.crawls.v1-value", cleanup="compact")
PROGRESS = Topic("crawl.progress.v1", "crawl id/partition", "", "crawl.progress.v1-value", cleanup="compact")
FRONTIER_STATE = Topic(
    "crawl.frontier.state.v1", "table and row", "", "crawl.frontier.state.v1-value", cleanup="compact"
)
ROBOTS = Topic("crawl.robots.v1", "table and origin", "", "crawl.robots.v1-value", cleanup="compact")
SEGMENTS = Topic("crawl.segments.v1", "table and name", "", "crawl.segments.v1-value", cleanup="compact")
CONTROL = Topic("crawl.control.v1", "none: partition 0", "", "crawl.control.v1-value", retention_ms=HOUR_MS)
CONTROL_ANSWERS = Topic(
    "crawl.control.answers.v1", "none: partition 0", "", "crawl.control.answers.v1-value", retention_ms=HOUR_MS
)

TABLE: tuple[Topic, ...] = (
    TASKS_URGENT, TASKS, LINKS, PARSED, FETCHES, GRANTS,
    LANE_URGENT, LANE_NORMAL, LANE_BULK,
    PAGES, DOCUMENTS, CRAWLS, PROGRESS, FRONTIER_STATE, ROBOTS, SEGMENTS,
    CONTROL, CONTROL_ANSWERS,
)  # fmt: skip
LANES: dict[str, Topic] = {"urgent": LANE_URGENT, "normal": LANE_NORMAL, "bulk": LANE_BULK}

INPUTS: dict[str, tuple[Topic, ...]] = {
    "frontier": (TASKS_URGENT, FETCHES, PARSED, GRANTS, TASKS, LINKS),
    "fetch": tuple(LANES.values()),
    "parse": (PAGES,),
    "store": (DOCUMENTS,),
}
CHANGELOGS: dict[str, Topic] = {"frontier": FRONTIER_STATE, "fetch": ROBOTS, "store": SEGMENTS}
STAGES: tuple[str, ...] = tuple(INPUTS)


def group_id(stage: str) -> str:
    """Consumer group (and Faust app id) of a stage."""
    return f"headrace-{stage}"


LARGEST_RECORD_BYTES = max(topic.max_message_bytes for topic in TABLE) + DLQ_EXTRA_BYTES
"""What a producer must be able to send: the largest record with the headers of a dead letter."""


def all_names() -> list[tuple[str, Topic]]:
    """Every topic on the broker, dead-letter topics included, with its row."""
    return [(t.name, t) for t in TABLE] + [(t.dlq, t) for t in TABLE if t.dead_letters]
