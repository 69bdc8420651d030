"""What a run of the pipeline has come to: judged from its topics, its files, its stores and the sites' own log."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from pipeline import topics
from pipeline.contracts.codec import Codecs
from pipeline.fetch import holds, robots_cache
from pipeline.frontier import records
from pipeline.local.checker import Report, judge, published_documents
from pipeline.local.expectation import Expectation
from pipeline.local.request_log import read_log
from pipeline.local.site_judge import Interruption, Outcome, RobotsRead, SiteFindings, judge_site
from pipeline.local.topic_judge import CommitSeen, TopicFindings, judge_topics
from pipeline.local.topic_reader import ReadRecord, read_all
from pipeline.state.changelog import PlainRows
from pipeline.state.contract_rows import ContractRows
from pipeline.store import segments
from pipeline.web.url import canonical_form
from tests.chaos.checker import wrong_stores

ALLOWED_REASONS = frozenset({"crash_loop", "retries_exhausted"})
"""A record that was in flight in many kills is given up, and a page that fails for ever: nothing poisonous is fed."""
TABLES = {"frontier": records.TABLES, "fetch": (robots_cache.TABLE, holds.TABLE), "store": segments.TABLES}


@dataclass(frozen=True)
class Happened:
    """What was done to a run, and what it did by itself.

    Attributes:
        seed: of the run.
        duration_s: how long things went wrong.
        drained_s: from then to rest.
        disruptions: what was done -> how often.
        points: point and action -> how often.
        exits: stage -> status -> how often.
        standstill_s: stage -> longest time without a commit with work left.
    """

    seed: int
    duration_s: float
    drained_s: float
    disruptions: Mapping[str, int]
    points: Mapping[str, int]
    exits: Mapping[str, Mapping[int, int]]
    standstill_s: Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """How a run went.

    Attributes:
        happened: to it.
        topics: what the topics tell.
        site: what the sites' log tells.
        crawls: crawl -> what became of its documents.
        wrong: everything that is wrong, in plain words; empty where all is well.
    """

    happened: Happened
    topics: TopicFindings
    site: SiteFindings
    crawls: Mapping[str, Report]
    wrong: Sequence[str]

    def table(self) -> Table:
        """Return what happened and what came of it, for people."""
        table = Table(title=f"chaos on the pipeline, seed {self.happened.seed}")
        table.add_column("")
        table.add_column("count", justify="right")
        row = self.as_json()
        for name in (
            "disruptions",
            "points",
            "exits",
            "records",
            "dead_letters",
            "documents",
            "requests",
            "standstill_s",
        ):
            table.add_section()
            for what, count in row[name].items():
                table.add_row(f"{name.removesuffix('_s')}: {what}", str(count))
        table.add_section()
        for sentence in self.wrong:
            table.add_row("WRONG", sentence, style="bold red")
        return table

    def as_json(self) -> dict[str, Any]:
        """Return the same for programs."""
        reports = self.crawls.values()
        closest = self.site.closest
        return {
            "ok": not self.wrong,
            "wrong": list(self.wrong),
            "seed": self.happened.seed,
            "duration_s": self.happened.duration_s,
            "drained_s": round(self.happened.drained_s, 1),
            "disruptions": dict(self.happened.disruptions),
            "points": dict(self.happened.points),
            "exits": {
                f"{stage}, status {status}": count
                for stage, found in self.happened.exits.items()
                for status, count in sorted(found.items())
            },
            "records": dict(self.topics.records),
            "dead_letters": {
                f"{topic}, {reason}": count
                for topic, reasons in self.topics.dead_letters.items()
                for reason, count in reasons.items()
            },
            "documents": {
                "crawls": len(self.crawls),
                "expected": sum(report.expected for report in reports),
                "found": sum(report.published for report in reports),
                "missing": sum(len(report.missing) for report in reports),
                "doubled": sum(len(report.doubled) for report in reports),
                "unexpected": sum(len(report.unexpected) for report in reports),
            },
            "requests": {
                "all": self.site.requests,
                "too close": len(self.site.too_close),
                "disallowed": len(self.site.disallowed),
                "before robots.txt": len(self.site.before_robots),
                "excused": self.site.excused,
                "site_late": self.site.site_late,
                "closest pair": closest and f"{closest.pause_s:.4f} s of {closest.allowed_s:.1f} s",
            },
            "standstill_s": {stage: round(stood_s, 1) for stage, stood_s in self.happened.standstill_s.items()},
        }


@dataclass(frozen=True)
class Evidence:
    """Where the judges look.

    Attributes:
        bootstrap: of the broker.
        directory: of the run; every worker has ended.
        documents: directory of the finished files.
        site_log: of the simulated web.
        delay_s: pause that every domain is granted.
        expected: crawl -> what it must bring.
        expected_without: what it must bring at least, where some of its URLs became dead letters.
        failing: URLs that fail for ever.
        commits: what was seen committed on the way.
        interruptions: of fetch processes.
    """

    bootstrap: str
    directory: Path
    documents: Path
    site_log: Path
    delay_s: float
    expected: Mapping[str, Expectation]
    expected_without: Callable[[str, Collection[str]], Expectation]
    failing: frozenset[str]
    commits: Sequence[CommitSeen]
    interruptions: Sequence[Interruption]


def reach_verdict(evidence: Evidence, codecs: Codecs, happened: Happened) -> Verdict:
    """Judge a run in which nothing is left to do."""
    held = {name: read_all(evidence.bootstrap, name) for name, _ in topics.all_names()}
    findings = judge_topics(held, codecs, evidence.commits, reasons=ALLOWED_REASONS)
    web = next(iter(evidence.expected.values()))
    site = judge_site(
        read_log(evidence.site_log),
        web,
        evidence.delay_s,
        outcomes=[
            Outcome(row["url"], row["started_at_ms"], row["ended_at_ms"])
            for row in _decoded(held, codecs, topics.FETCHES)
        ],
        robots_reads=[RobotsRead(row["origin"], row["fetched_at_ms"]) for row in _decoded(held, codecs, topics.ROBOTS)],
        interruptions=evidence.interruptions,
    )
    dead = _dead_urls(held, codecs)
    crawls = {}
    for crawl, expectation in evidence.expected.items():
        documents = published_documents(held, codecs, crawl)[0]
        report = judge(expectation, documents, site, findings.dead_letters)
        least = evidence.expected_without(crawl, dead[crawl])
        crawls[crawl] = replace(report, missing=tuple(url for url in report.missing if url in least.documents))
    wrong = [
        *(f"{rule}: {count}, such as {examples}" for rule, (count, examples) in findings.faults.items()),
        *_wrong_requests(site),
        *_wrong_tasks(held, codecs, evidence.failing),
        *(f"{crawl}: {sentence}" for crawl, report in crawls.items() for sentence in _wrong_documents(report)),
        *_wrong_files(evidence.documents, _decoded(held, codecs, topics.DOCUMENTS)),
        *_wrong_stores(evidence.directory, held, codecs),
    ]
    return Verdict(happened, findings, site, crawls, wrong)


def _decoded(held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs, topic: topics.Topic) -> list[dict[str, Any]]:
    decode = codecs.decoder(topic.subject)
    return [decode(record.value) for record in held[topic.name] if record.value is not None]


def _dead_urls(held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs) -> defaultdict[str, set[str]]:
    """Return the URLs of each crawl whose lane record or page became a dead letter."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for topic in (*topics.LANES.values(), topics.PAGES):
        decode = codecs.decoder(topic.subject)
        for row in (decode(record.value) for record in held[topic.dlq]):
            found[row["crawl"]].add(canonical_form(row["url"]))
    return found


def _wrong_requests(site: SiteFindings) -> Iterable[str]:
    for name, found in (
        ("requests too close", site.too_close),
        ("disallowed requests", site.disallowed),
        ("requests before robots.txt", site.before_robots),
    ):
        if found:
            yield f"{name}: {len(found)}, such as {found[:5]}"


def _wrong_tasks(held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs, failing: frozenset[str]) -> Iterable[str]:
    """Only what fails for ever is given up."""
    decode = codecs.decoder(topics.TASKS.subject)
    given_up = {canonical_form(decode(record.value)["url"]) for record in held[topics.TASKS.dlq]}
    if given_up - failing:
        yield f"tasks given up though their sites answer: {sorted(given_up - failing)[:5]}"


def _wrong_documents(report: Report) -> Iterable[str]:
    for name, found in (
        ("missing", report.missing),
        ("doubled", tuple(report.doubled)),
        ("unexpected", report.unexpected),
        ("with another page's title", report.mistitled),
    ):
        if found:
            yield f"{name}: {len(found)}, such as {found[:5]}"


def _wrong_files(directory: Path, documents: list[dict[str, Any]]) -> Iterable[str]:
    """Every document is in one finished file."""
    lines = (line for file in directory.glob("*.jsonl") for line in file.read_bytes().splitlines())
    found = Counter((row["crawl"], row["url"]) for row in map(json.loads, lines))
    expected = Counter((row["crawl"], row["url"]) for row in documents)
    for name, difference in (("in no file", expected - found), ("in files too often", found - expected)):
        if difference:
            yield f"documents {name}: {difference.total()}, such as {list(difference)[:5]}"


def _wrong_stores(directory: Path, held: Mapping[str, Sequence[ReadRecord]], codecs: Codecs) -> Iterable[str]:
    """Each store holds what its changelog says up to the position it stands for."""
    for stage, tables in TABLES.items():
        changelog = topics.CHANGELOGS[stage]
        rows = PlainRows()
        if stage == "frontier":
            rows = ContractRows(codecs.encoder(changelog.subject), codecs.decoder(changelog.subject))
        states = (directory / "state").glob(f"{stage}-*")
        yield from wrong_stores(held[changelog.name], states, tables, rows.unwrap)
