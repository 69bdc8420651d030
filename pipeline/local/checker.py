"""Check a crawl of the simulated web from outside: by what readers of the topics see, and by the site's own log.

It shares nothing with the stages but the contracts: a plain consumer of committed records, and no stage's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from pipeline import topics
from pipeline.contracts import Codecs, load_codec
from pipeline.errors import InputError
from pipeline.local.expectation import Expectation
from pipeline.local.request_log import read_log
from pipeline.local.site_judge import Interruption, Outcome, RobotsRead, SiteFindings, TooClose, judge_site
from pipeline.local.topic_reader import ReadRecord, read_all

__all__ = ["PublishedDocument", "Report", "TooClose", "check", "judge", "read_all"]

EXAMPLES = 3
LISTED = 20


class PublishedDocument(NamedTuple):
    """A document record as a reader sees it.

    Attributes:
        url: canonical.
        title: as published.
        submitted_at_ms: when the task was submitted or its link found, milliseconds since the epoch.
        written_at_ms: timestamp of the record, milliseconds since the epoch.
    """

    url: str
    title: str
    submitted_at_ms: int
    written_at_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """What was found; everything from `missing` to `before_robots` is a fault.

    Attributes:
        expected: documents that a right crawl publishes.
        published: different URLs that were published.
        missing: expected URLs that were not.
        doubled: URL -> how often, where more than once.
        unexpected: URLs that were published and shouldn't be.
        mistitled: URLs under which another page's title was published.
        too_close: requests before their time.
        disallowed: URLs that robots.txt forbids and that were asked.
        before_robots: URLs that were asked before robots.txt of their host.
        requests: requests that the site saw.
        site_late: requests that only the log makes too close: the site's own process stood still.
        excused: requests against a Retry-After that died with a killed process.
        asked_twice: canonical URLs that were answered with 200 more than once.
        dead_letters: topic -> reason -> how many.
        undecodable: records of documents, outcomes and robots that no reader can decode.
        latency_p50_s: from submission to the document's record; None without documents.
        latency_p99_s: the same.
    """

    expected: int
    published: int
    missing: tuple[str, ...]
    doubled: Mapping[str, int]
    unexpected: tuple[str, ...]
    mistitled: tuple[str, ...]
    too_close: tuple[TooClose, ...]
    disallowed: tuple[str, ...]
    before_robots: tuple[str, ...]
    requests: int
    site_late: int
    excused: int
    asked_twice: tuple[str, ...]
    dead_letters: Mapping[str, Mapping[str, int]]
    undecodable: int
    latency_p50_s: float | None
    latency_p99_s: float | None

    @property
    def ok(self) -> bool:
        """Whether the crawl was right."""
        return not any(faults for _, faults in self._faults())

    def _faults(self) -> list[tuple[str, Sequence[str]]]:
        return [
            ("missing", self.missing),
            ("doubled", [f"{url} ({times} times)" for url, times in self.doubled.items()]),
            ("unexpected", self.unexpected),
            ("with another page's title", self.mistitled),
            ("requests too close", [f"{r.url} ({r.why}, {r.early_s:.3f} s early)" for r in self.too_close]),
            ("disallowed requests", self.disallowed),
            ("requests before robots.txt", self.before_robots),
        ]

    def table(self) -> Table:
        """Return the report for people: a line each, with examples of faults."""
        table = Table(title="What was promised, and what was found")
        table.add_column("")
        table.add_column("count", justify="right")
        table.add_column("for example", overflow="fold")
        table.add_row("documents expected", str(self.expected))
        table.add_row("documents published", str(self.published))
        for name, found in self._faults():
            table.add_row(name, str(len(found)), "\n".join(found[:EXAMPLES]), style="bold red" if found else "green")
        table.add_section()
        table.add_row("requests at the sites", str(self.requests))
        table.add_row("excused (the site's process stood still)", str(self.site_late))
        table.add_row("excused (told to a killed process)", str(self.excused))
        table.add_row("pages asked twice", str(len(self.asked_twice)), "\n".join(self.asked_twice[:EXAMPLES]))
        for topic, reasons in self.dead_letters.items():
            for reason, count in reasons.items():
                table.add_row(f"dead letters, {topic}", str(count), reason)
        if self.undecodable:
            table.add_row("undecodable records", str(self.undecodable))
        for name, latency_s in (("p50", self.latency_p50_s), ("p99", self.latency_p99_s)):
            table.add_row(f"submitted to document, {name}", "-" if latency_s is None else f"{latency_s:.3f} s")
        return table

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs: counts, and at most the first twenty of each list."""
        faults: dict[str, Sequence[Any]] = {
            "missing": self.missing,
            "doubled": [{"url": url, "times": times} for url, times in self.doubled.items()],
            "unexpected": self.unexpected,
            "mistitled": self.mistitled,
            "too_close": [request._asdict() for request in self.too_close],
            "disallowed": self.disallowed,
            "before_robots": self.before_robots,
        }
        return {
            "ok": self.ok,
            "expected": self.expected,
            "published": self.published,
            **{name: len(found) for name, found in faults.items()},
            "requests": self.requests,
            "site_late": self.site_late,
            "excused": self.excused,
            "asked_twice": len(self.asked_twice),
            "dead_letters": {topic: dict(reasons) for topic, reasons in self.dead_letters.items()},
            "undecodable": self.undecodable,
            "latency_p50_s": self.latency_p50_s,
            "latency_p99_s": self.latency_p99_s,
            "examples": {name: list(found[:LISTED]) for name, found in faults.items()},
        }


def check(
    bootstrap: str,
    expectation: Expectation,
    log: Path,
    delay_s: float,
    *,
    crawl: str | None = None,
    interruptions: Sequence[Interruption] | None = None,
    options: Mapping[str, str] | None = None,
    lock: Path | None = None,
    timeout_s: float = 60.0,
) -> Report:
    """Read the topics and the site's log, and judge them. To be called when the crawl has ended.

    Args:
        bootstrap: host:port of the broker.
        expectation: from the simulated web.
        log: the site's log.
        delay_s: configured pause between requests to a registrable domain, seconds.
        crawl: look at this crawl's documents and outcomes only; None for all.
        interruptions: when processes were killed, or stopped and replaced; see `judge_site`.
        options: further librdkafka options.
        lock: lock file of the schema ids; None for the built-in one.
        timeout_s: for reading one topic.

    Raises:
        BrokerError: a topic can't be read.
        ConfigurationError: the lock file is unusable.
    """
    codecs = load_codec(lock)
    names = [topics.DOCUMENTS.name, topics.FETCHES.name, topics.ROBOTS.name]
    names += [topic.dlq for topic in topics.TABLE if topic.dead_letters]
    held = {name: read_all(bootstrap, name, options=options, timeout_s=timeout_s) for name in names}
    outcomes, lost_outcomes = _decoded(codecs, topics.FETCHES, held)
    robots, lost_robots = _decoded(codecs, topics.ROBOTS, held)
    findings = judge_site(
        read_log(log),
        expectation,
        delay_s,
        outcomes=[
            Outcome(row["url"], row["started_at_ms"], row["ended_at_ms"])
            for row, _ in outcomes
            if crawl in {None, row["crawl"]}
        ],
        robots_reads=[RobotsRead(row["origin"], row["fetched_at_ms"]) for row, _ in robots],
        interruptions=interruptions,
    )
    published, lost_documents = published_documents(held, codecs, crawl)
    dead_letters = {
        name: Counter(_reason(record) for record in records if not record.is_marker)
        for name, records in held.items()
        if name.endswith("-dlq")
    }
    return judge(
        expectation,
        published,
        findings,
        {topic: reasons for topic, reasons in dead_letters.items() if reasons},
        lost_documents + lost_outcomes + lost_robots,
    )


def published_documents(
    held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs, crawl: str | None
) -> tuple[list[PublishedDocument], int]:
    """Return the documents of a crawl.

    Args:
        held: topic -> its committed records.
        codecs: of the contracts.
        crawl: its id; None for all.

    Returns:
        The documents, and how many records of the topic can't be read.
    """
    documents, lost = _decoded(codecs, topics.DOCUMENTS, held)
    return [
        PublishedDocument(row["url"], row["title"], row["submitted_at_ms"], record.timestamp)
        for row, record in documents
        if crawl in {None, row["crawl"]}
    ], lost


def judge(
    expectation: Expectation,
    documents: Sequence[PublishedDocument],
    site: SiteFindings,
    dead_letters: Mapping[str, Mapping[str, int]],
    undecodable: int = 0,
) -> Report:
    """Compare what was published with what was expected.

    Args:
        expectation: from the simulated web.
        documents: every record of the documents topic.
        site: what the site's log tells.
        dead_letters: topic -> reason -> how many.
        undecodable: records that could not be read.
    """
    times = Counter(document.url for document in documents)
    titles = {url: title for url, title in expectation.documents.items() if title is not None}
    mistitled = {d.url for d in documents if d.url in titles and " ".join(d.title.split()) != titles[d.url]}
    latencies_s = sorted((document.written_at_ms - document.submitted_at_ms) / 1000 for document in documents)
    return Report(
        expected=len(expectation.documents),
        published=len(times),
        missing=tuple(url for url in expectation.documents if url not in times),
        doubled={url: count for url, count in times.items() if count > 1},
        unexpected=tuple(url for url in times if url not in expectation.documents),
        mistitled=tuple(sorted(mistitled)),
        too_close=site.too_close,
        disallowed=site.disallowed,
        before_robots=site.before_robots,
        requests=site.requests,
        site_late=site.site_late,
        excused=site.excused,
        asked_twice=site.asked_twice,
        dead_letters=dead_letters,
        undecodable=undecodable,
        latency_p50_s=_percentile(latencies_s, 0.50),
        latency_p99_s=_percentile(latencies_s, 0.99),
    )


def _decoded(
    codecs: Codecs, topic: topics.Topic, held: Mapping[str, Sequence[ReadRecord]]
) -> tuple[list[tuple[dict[str, Any], ReadRecord]], int]:
    """Decode records; also returns how many can't be. A deletion (null value) in a compacted topic is no record."""
    decode = codecs.decoder(topic.subject)
    rows = []
    undecodable = 0
    for record in held[topic.name]:
        if record.value is None and topic.cleanup == "compact":
            continue
        try:
            rows.append((decode(record.value), record))
        except InputError:
            undecodable += 1
    return rows, undecodable


def _reason(record: ReadRecord) -> str:
    return dict(record.headers).get("dlq-reason", b"no reason given").decode("utf-8", "replace")


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value that `share` of the sorted values don't exceed (nearest rank); None without values."""
    return values[max(0, -(-len(values) * round(share * 100) // 100) - 1)] if values else None
