"""The records as they travel in memory: what a decoder returns and an encoder takes.

One class a schema, of the newest version, with the same names; docs and units of the fields are in the schema. A
decoded record has every field; an encoder fills in what has a default. 16- and 32-byte `fixed` types are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

Outcome = Literal[
    "UNKNOWN",
    "FETCHED",
    "NOT_MODIFIED",
    "REDIRECTED",
    "HTTP_ERROR",
    "RATE_LIMITED",
    "NETWORK_ERROR",
    "ROBOTS_DENIED",
    "ROBOTS_UNREACHABLE",
    "DEFERRED",
    "TOO_LARGE",
    "REFUSED",
    "DEAD_LETTER",
]
BodyEncoding = Literal["UNKNOWN", "IDENTITY", "ZSTD"]
PageKind = Literal["UNKNOWN", "HTML", "FEED", "SITEMAP", "LIST", "OTHER", "DEAD_LETTER"]
ScopeAction = Literal["UNKNOWN", "ALLOW", "DENY"]
GrantKind = Literal["UNKNOWN", "ASK", "GIVE", "RETURN"]
ControlCommand = Literal["UNKNOWN", "PENDING", "RELEASE", "GIVE_UP", "RESUME", "EXPLAIN", "TOP"]
RobotsState = Literal["UNKNOWN", "RULES", "OPEN", "CLOSED"]


class Task(TypedDict):
    """A wish to fetch one URL, from a person, the API or a redirect. Also on crawl.tasks.urgent.v1."""

    crawl: str
    url: str
    priority: int
    depth: int
    source: str
    submitted_at_ms: int
    not_before_ms: int
    timeout_ms: int
    parser: str
    concurrency: int
    max_depth: int | None
    interval_ms: int
    poll: int
    render: bool
    headers_ref: str
    redirects: list[str]
    replay: bool
    withdraw: bool


class FrontierTask(TypedDict):
    """A task that may run now. On the three lane topics crawl.frontier.{urgent,normal,bulk}.v1."""

    crawl: str
    url: str
    url_key: bytes
    delivery: int
    attempt: int
    priority: int
    depth: int
    source: str
    submitted_at_ms: int
    emitted_at_ms: int
    not_before_ms: int
    delay_ms: int
    timeout_ms: int
    parser: str
    concurrency: int
    max_depth: int | None
    interval_ms: int
    poll: int
    render: bool
    known_content_hashes: list[bytes]
    headers_ref: str
    redirects: list[str]
    etag: str | None
    last_modified: str | None


class FetchOutcome(TypedDict):
    """How one lane record ended; exactly one for each."""

    crawl: str
    url: str
    url_key: bytes
    delivery: int
    outcome: Outcome
    status: int | None
    reason: str
    location: str | None
    address: str | None
    retry_after_ms: int | None
    rate_limit_reset_ms: int | None
    rate_limit_remaining: int | None
    not_before_ms: int
    crawl_delay_ms: int | None
    requests: int
    started_at_ms: int
    ended_at_ms: int
    bytes_wire: int
    bytes_decoded: int
    etag: str | None
    last_modified: str | None
    worker: str


class Page(TypedDict):
    """A fetched page with its body."""

    crawl: str
    url: str
    url_key: bytes
    delivery: int
    depth: int
    priority: int
    source: str
    parser: str
    max_depth: int | None
    poll: int
    render: bool
    known_content_hashes: list[bytes]
    status: int
    content_type: str
    robots_header: str
    body_encoding: BodyEncoding
    body: bytes | None
    body_ref: str | None
    body_bytes: int
    body_sha256: bytes
    truncated: str | None
    redirects: list[str]
    submitted_at_ms: int
    fetched_at_ms: int


class Parsed(TypedDict):
    """What parsing one page gave; one for each page record, also when nothing was found."""

    crawl: str
    url: str
    url_key: bytes
    delivery: int
    kind: PageKind
    document_id: bytes | None
    content_hash: bytes | None
    links_found: int
    poll: int
    items_found: int
    links_refused: dict[str, int]
    link_records: list[int]
    parsed_at_ms: int


class Document(TypedDict):
    """A document: what a reader of the output sees, once."""

    id: bytes
    crawl: str
    url: str
    domain: str
    source: str
    depth: int
    title: str
    text: str
    language: str | None
    authors: list[str]
    published: str | None
    published_evidence: str | None
    modified: str | None
    canonical: str | None
    encoding: str
    content_hash: bytes
    links: int
    redirects: list[str]
    submitted_at_ms: int
    fetched_at_ms: int
    parsed_at_ms: int


class LinkBatch(TypedDict):
    """All links of one page that belong to one partition; null key, partition by number."""

    crawl: str
    page: str
    depth: int
    source: str
    priority: int
    max_depth: int | None
    poll: int
    found_at_ms: int
    psl_version: str
    urls: list[str]


class ScopeRule(TypedDict):
    """One rule; the first rule that matches decides."""

    action: ScopeAction
    pattern: str
    source: str


class Crawl(TypedDict):
    """Definition of a crawl: start points, scope, budgets."""

    crawl: str
    start_urls: list[str]
    scope: list[ScopeRule]
    max_pages: int | None
    max_depth: int | None
    max_pages_per_domain: int | None
    max_bytes: int | None
    max_bytes_per_domain: int | None
    max_pages_per_day: int | None
    max_pages_per_domain_per_day: int | None
    delay_ms: int | None
    created_at_ms: int


class Grant(TypedDict):
    """Shares of a crawl's budgets between frontier partitions; partition by number."""

    crawl: str
    kind: GrantKind
    partition: int
    pages: int
    bytes: int
    day: int


class Progress(TypedDict):
    """Counters of one crawl in one frontier partition, for its end and for people. Compacted."""

    crawl: str
    partition: int
    waiting: int
    parked: int
    out: int
    recurring: int
    tasks_received: int
    redirects_received: int
    redirects_sent: int
    pages_fetched: int
    bytes_received: int
    pages_parsed: int
    pages_polled: int
    links_sent: list[int]
    links_received: int
    seen: int
    done: int
    failed: int
    refused: dict[str, int]
    at_ms: int


class FrontierChange(TypedDict):
    """A change of the frontier's state; the key is the table letter and the row key, a null value deletes."""

    row: bytes


class RobotsEntry(TypedDict):
    """What a robots.txt fetch said; key is the table letter and the origin."""

    origin: str
    state: RobotsState
    status: int | None
    body: bytes
    fetched_at_ms: int
    expires_at_ms: int


class Segment(TypedDict):
    """Manifest entry: a file of documents that is committed; key is the table letter and the name."""

    name: str
    partition: int
    first_offset: int
    end_offset: int
    documents: int
    bytes: int
    sha256: bytes
    written_at_ms: int


class Control(TypedDict):
    """A question or an order of a person to the workers of a stage; who owns the partition obeys."""

    id: str
    command: ControlCommand
    stage: str
    topic: str
    partition: int
    offset: int
    asked_at_ms: int
    argument: str


class RecordInHand(TypedDict):
    """A record that is being handled."""

    offset: int
    since_ms: int
    attempts: int


class PartitionAtHand(TypedDict):
    """What a worker has at hand of one input partition."""

    topic: str
    partition: int
    fetched: int
    queued: int
    paused: str
    records: list[RecordInHand]


class PartitionTold(TypedDict):
    """What the state of one partition says."""

    partition: int
    answer: str


class ControlAnswer(TypedDict):
    """What one worker answers to a question or an order."""

    id: str
    worker: str
    answered_at_ms: int
    done: bool
    complaint: str
    partitions: list[PartitionAtHand]
    told: list[PartitionTold]


RECORDS: Mapping[str, type] = {
    "crawl.tasks.v1-value": Task,
    "crawl.frontier.v1-value": FrontierTask,
    "crawl.fetches.v1-value": FetchOutcome,
    "crawl.pages.v1-value": Page,
    "crawl.parsed.v1-value": Parsed,
    "crawl.documents.v1-value": Document,
    "crawl.links.v1-value": LinkBatch,
    "crawl.crawls.v1-value": Crawl,
    "crawl.grants.v1-value": Grant,
    "crawl.progress.v1-value": Progress,
    "crawl.frontier.state.v1-value": FrontierChange,
    "crawl.robots.v1-value": RobotsEntry,
    "crawl.segments.v1-value": Segment,
    "crawl.control.v1-value": Control,
    "crawl.control.answers.v1-value": ControlAnswer,
}
"""The class of each subject's records."""
