"""A small world around the frontier: sites, fetch and parse in memory, time that jumps, faults at any point."""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline import topics
from pipeline.config import Frontier, Politeness
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.delivery.api import Output
from pipeline.frontier import politeness
from pipeline.frontier.ending import CrawlEnd
from pipeline.frontier.partition import FrontierPartition
from pipeline.frontier.records import TABLES
from pipeline.frontier.stage import FrontierStage
from pipeline.web.domains import PSL_VERSION, registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import canonical_form, canonicalize, url_key
from tests.fakes import FakeRecord, MemoryView

CODECS: Codecs = load_codec()
INPUTS = [topic.name for topic in topics.INPUTS["frontier"]]
LANES = [topic.name for topic in topics.LANES.values()]
START = 1_700_000_000.0


def make_task(url: str, crawl: str = "default", **fields: Any) -> dict[str, Any]:
    """A task as a person sends it."""
    task = {
        "crawl": crawl, "url": url, "priority": 3, "depth": 0, "source": "", "submitted_at_ms": int(START * 1000),
        "not_before_ms": 0, "timeout_ms": 0, "redirects": [], "replay": False, "parser": "", "concurrency": 0,
        "max_depth": None, "interval_ms": 0, "poll": 0, "render": False, "headers_ref": "",
        "withdraw": False,
    }  # fmt: skip
    return {**task, **fields}


def make_crawl(crawl: str, **fields: Any) -> dict[str, Any]:
    """A crawl's definition."""
    definition = {
        "crawl": crawl, "start_urls": [], "scope": [], "max_pages": None, "max_depth": None,
        "max_pages_per_domain": None, "delay_ms": None, "created_at_ms": 0,
    }  # fmt: skip
    return {**definition, **fields}


def make_outcome(lane: Mapping[str, Any], outcome: str, now: float, **fields: Any) -> dict[str, Any]:
    """What fetch says of a lane record; by default one request that ended now."""
    now_ms = politeness.milliseconds(now)
    record = {
        "crawl": lane["crawl"], "url": lane["url"], "url_key": lane["url_key"], "delivery": lane["delivery"],
        "outcome": outcome, "status": 200 if outcome == "FETCHED" else None, "reason": "", "location": None,
        "address": None, "retry_after_ms": None, "not_before_ms": 0, "crawl_delay_ms": None, "requests": 1,
        "started_at_ms": now_ms, "ended_at_ms": now_ms, "bytes_wire": 0, "bytes_decoded": 0, "etag": None,
        "last_modified": None, "worker": "w",
    }  # fmt: skip
    return {**record, **fields}


def make_parsed(lane: Mapping[str, Any], targets: list[int], **fields: Any) -> dict[str, Any]:
    """What parse says of a page."""
    parsed = {
        "crawl": lane["crawl"], "url": lane["url"], "url_key": lane["url_key"], "delivery": lane["delivery"],
        "kind": "HTML", "document_id": None, "content_hash": None, "links_found": 0, "links_refused": {},
        "link_records": targets, "parsed_at_ms": 0, "poll": lane.get("poll", 0),
    }  # fmt: skip
    return {**parsed, **fields}


def make_links(urls: list[str], crawl: str = "default", depth: int = 1, **fields: Any) -> dict[str, Any]:
    """The links of a page."""
    batch = {
        "crawl": crawl, "page": "http://page.example/", "depth": depth, "found_at_ms": int(START * 1000),
        "psl_version": PSL_VERSION, "urls": urls,
    }  # fmt: skip
    return {**batch, **fields}


def task_dead_letter(
    value: bytes, *, key: bytes, reason: str, message: str, attempts: int, replays: int, cause: FakeRecord
) -> Output:
    """Stands for the delivery core's function of this name."""
    said = {"reason": reason, "message": message, "attempts": str(attempts), "replays": str(replays)}
    headers = tuple((f"dlq-{name}", text.encode()) for name, text in said.items())
    return Output(topics.TASKS.dlq, value, key, cause.partition, headers)


def make_stage(
    definitions: Mapping[str, Any] | None = None, partitions: int = 1, delay_s: float = 1.0, **frontier: Any
) -> FrontierStage:
    """A stage with settings of one's own."""
    lost = frontier.pop("lane_record_is_lost", lambda _: False)
    return FrontierStage(
        frontier=Frontier(**frontier),
        politeness=Politeness(delay_s=delay_s),
        codecs=CODECS,
        partitions=partitions,
        crawls=({} if definitions is None else definitions).get,
        task_dead_letter=task_dead_letter,
        lane_record_is_lost=lost,
    )


class Bench:
    """One partition under a test's hands: records in by topic, time set by the test, outputs decoded."""

    def __init__(self, stage: FrontierStage, view: Any = None, partition: int = 0) -> None:
        self.stage = stage
        self.view = view if view is not None else MemoryView(TABLES)
        self.partition = partition
        self.now = START
        self.frontier: FrontierPartition = stage.open(partition, self.view, self.now)

    def reopen(self) -> None:
        """Throw memory away."""
        self.frontier = self.stage.open(self.partition, self.view, self.now)

    def send(self, topic: topics.Topic, record: Mapping[str, Any] | bytes | None, **fields: Any) -> list[Output]:
        """Hand in a record. Return the outputs."""
        value = CODECS.encode(topic.subject, record) if isinstance(record, Mapping) else record
        return self.frontier.handle(FakeRecord(topic.name, value, partition=self.partition, **fields), self.now)

    def task(self, url: str, crawl: str = "default", **fields: Any) -> list[Output]:
        """Hand in a task."""
        return self.send(topics.TASKS, make_task(url, crawl, **fields))

    def links(self, urls: list[str], crawl: str = "default", depth: int = 1, **fields: Any) -> list[Output]:
        """Hand in a link record."""
        return self.send(topics.LINKS, make_links(urls, crawl, depth, **fields))

    def outcome(self, lane: Mapping[str, Any], outcome: str, **fields: Any) -> list[Output]:
        """Hand in how a lane record ended."""
        return self.send(topics.FETCHES, make_outcome(lane, outcome, self.now, **fields))

    def tick(self, after_s: float = 0.0) -> list[Output]:
        """Let time pass and do what is due."""
        self.now += after_s
        return self.frontier.tick(self.now)

    def emitted(self, after_s: float = 0.0) -> list[dict[str, Any]]:
        """Let time pass. Return the lane records given out."""
        return [decode(output) for output in self.tick(after_s) if output.topic in LANES]

    def urls(self, after_s: float = 0.0) -> list[str]:
        """Let time pass. Return the URLs given out."""
        return [lane["url"] for lane in self.emitted(after_s)]

    def progress(self, crawl: str = "default") -> dict[str, Any]:
        """The counters of a crawl at this moment."""
        state = self.frontier._crawls.get(crawl)
        assert state is not None
        return state.progress(self.partition, politeness.milliseconds(self.now))


def decode(output: Output) -> dict[str, Any]:
    """The record inside an output."""
    topic = next(topic for topic in topics.TABLE if topic.name == output.topic)
    return CODECS.decode(topic.subject, output.value)


@dataclass
class Page:
    """How a page of the simulated site answers.

    Attributes:
        links: as they stand on the page, relative or not.
        first: outcomes before the last, such as a failure: (outcome, fields).
        ends: the outcome at last.
        target: for a redirect.
        says: content hash at a time, s since the epoch; None for a page that is no document.
        is_validated: whether the server has validators: it is that hash, too.
    """

    links: list[str] = field(default_factory=list)
    first: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    ends: str = "FETCHED"
    target: str | None = None
    says: Callable[[float], bytes] | None = None
    is_validated: bool = True


class World:
    """Frontier partitions over in-memory topics, with fetch and parse that do what `site` says.

    Faults: with `fault_rate` a handled record is undone and handled again, a round is undone, or memory is thrown away.

    Args:
        site: canonical URL → how it answers; what it doesn't know is a 404.
        page_bytes: body bytes of each answer.
        parse_pauses_s: how long parsing a page may take.
    """

    def __init__(
        self,
        site: Callable[[str], Page],
        *,
        partitions: int = 3,
        seed: int = 0,
        fault_rate: float = 0.0,
        definitions: dict[str, Any] | None = None,
        delay_s: float = 1.0,
        views: list[Any] | None = None,
        page_bytes: int = 0,
        parse_pauses_s: tuple[float, ...] = (0.0, 0.2, 2.0),
        **frontier: Any,
    ) -> None:
        self.site = site
        self.page_bytes = page_bytes
        self.partitions = partitions
        self.random = random.Random(seed)
        self.fault_rate = fault_rate
        self.definitions = {} if definitions is None else definitions
        self.delay_s = delay_s
        self.parse_pauses_s = parse_pauses_s
        self.stage = make_stage(self.definitions, partitions, delay_s, **frontier)
        self.settings = Frontier(**frontier)
        self.now = START
        self.views = [MemoryView(TABLES) for _ in range(partitions)] if views is None else views
        self.parts = [self.stage.open(p, view, self.now) for p, view in enumerate(self.views)]
        self.log: dict[tuple[str, int], list[FakeRecord]] = defaultdict(list)
        self.position: Counter[tuple[str, int]] = Counter()
        self.work: list[tuple[float, int, Callable[[], None]]] = []
        self.answered: Counter[str] = Counter()
        self.out: dict[tuple[str, str], dict[str, Any]] = {}
        self.delivered: Counter[tuple[str, str]] = Counter()
        self.gate: dict[str, float] = {}
        self.told: dict[str, dict[str, int]] = defaultdict(lambda: {"end": 0, "hold": 0})
        self.fetched: list[tuple[str, str]] = []
        self.polls: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        self.documents: list[tuple[str, str, bytes]] = []
        self.dead: list[Output] = []
        self.progress: dict[tuple[str, int], dict[str, Any]] = {}
        self.submitted: Counter[str] = Counter()

    # ---- topics

    def write(self, output: Output) -> None:
        partition = output.partition
        if partition < 0:
            assert output.key is not None
            partition = partition_for(output.key, self.partitions)
        records = self.log[output.topic, partition]
        records.append(FakeRecord(output.topic, output.value, output.key, partition, len(records), 0, output.headers))

    def submit(self, *urls: str, crawl: str = "default", **fields: Any) -> None:
        for url in urls:
            # A sender that gets the key wrong must not break anything.
            key = url.encode() if self.random.random() < 0.3 else registrable_domain(canonicalize(url).host).encode()
            self.submitted[crawl] += 1
            self.write(
                Output(topics.TASKS.name, CODECS.encode(topics.TASKS.subject, make_task(url, crawl, **fields)), key)
            )

    # ---- frontier

    def has_input(self, partition: int) -> bool:
        return any(self.position[topic, partition] < len(self.log[topic, partition]) for topic in INPUTS)

    def is_due(self, partition: int) -> bool:
        due = self.parts[partition].due()
        return due is not None and due <= self.now

    def fault(self) -> bool:
        return self.random.random() < self.fault_rate

    def reopen(self, partition: int) -> None:
        self.parts[partition] = self.stage.open(partition, self.views[partition], self.now)

    def round(self, partition: int) -> None:
        """One transaction of one partition: some records in order, what is due, commit or abort."""
        view, before = self.views[partition], self.position.copy()
        outputs: list[Output] = []
        taken: list[FakeRecord] = []
        for topic in INPUTS:
            records = self.log[topic, partition]
            for _ in range(self.random.randint(0, 8)):
                at = self.position[topic, partition]
                if at >= len(records):
                    break
                outputs += self.handle(partition, records[at])
                taken.append(records[at])
                self.position[topic, partition] += 1
        if self.is_due(partition):
            outputs += self.parts[partition].tick(self.now)
        outputs += self.parts[partition].before_commit({}, self.now)
        if self.fault():
            view.abort()
            self.position = before
            self.parts[partition].aborted()
            self.reopen(partition)
            return
        view.commit()
        self.parts[partition].committed()
        for record in taken:
            self.note_told(record)
        for output in outputs:
            self.publish(output)
        if self.fault():
            self.reopen(partition)

    def handle(self, partition: int, record: FakeRecord) -> list[Output]:
        view = self.views[partition]
        mark = view.savepoint()
        outputs = self.parts[partition].handle(record, self.now)
        while self.fault():
            view.rollback(mark)
            self.reopen(partition)
            outputs = self.parts[partition].handle(record, self.now)
        return outputs

    def note_told(self, record: FakeRecord) -> None:
        """Remember what the frontier has been told of a domain's pace."""
        if record.topic != topics.FETCHES.name:
            return
        outcome = CODECS.decode(topics.FETCHES.subject, record.value)
        told = self.told[registrable_domain(canonicalize(outcome["url"]).host)]
        if outcome["requests"]:
            told["end"] = max(told["end"], outcome["ended_at_ms"])
        told["hold"] = max(told["hold"], outcome["retry_after_ms"] or 0)
        if outcome["rate_limit_remaining"] == 0:
            told["hold"] = max(told["hold"], outcome["rate_limit_reset_ms"])

    def publish(self, output: Output) -> None:
        self.write(output)
        if output.topic in LANES:
            self.given_out(decode(output), output)
        elif output.topic == topics.PROGRESS.name:
            progress = decode(output)
            self.progress[progress["crawl"], progress["partition"]] = progress
        elif output.topic == topics.TASKS.dlq:
            self.dead.append(output)

    # ---- fetch and parse

    def given_out(self, lane: dict[str, Any], output: Output) -> None:
        """Check what the frontier promises of a lane record, and plan its fetch."""
        url = canonical_form(lane["url"])
        name = lane["crawl"], url
        domain = registrable_domain(canonicalize(url).host)
        assert domain.encode() == output.key
        assert partition_for(domain.encode(), self.partitions) == output.partition
        assert url_key(url) == lane["url_key"]
        assert name not in self.out, "given out twice"
        self.out[name] = lane
        assert lane["delivery"] == self.delivered[name] + 1
        self.delivered[name] += 1
        if lane["poll"]:
            self.polls[name].append((lane["poll"], lane["emitted_at_ms"]))
        told = self.told[domain]
        is_urgent = lane["priority"] == 1
        ahead_ms = self.settings.window_s * 1000 if is_urgent else 0
        assert lane["emitted_at_ms"] >= lane["not_before_ms"] - ahead_ms
        starts_ms = max(lane["emitted_at_ms"], lane["not_before_ms"])
        assert lane["emitted_at_ms"] >= told["hold"], "sooner than the site wished"
        assert told["end"] == 0 or starts_ms >= told["end"] + lane["delay_ms"], "too close"
        assert lane["delay_ms"] >= self.delay_s * 1000
        out_of_domain = sum(
            1 for other in self.out.values() if registrable_domain(canonicalize(other["url"]).host) == domain
        )
        window = politeness.window(lane["delay_ms"], int(self.settings.window_s * 1000), self.settings.window_max)
        assert out_of_domain <= window + is_urgent
        begin = max(self.now, self.gate.get(domain, 0.0), lane["not_before_ms"] / 1000)
        end = begin + self.random.choice([0.01, 0.1, 0.4])
        self.gate[domain] = end + lane["delay_ms"] / 1000
        self.plan(end, lambda: self.fetch(lane, begin, end))

    def plan(self, at: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.work, (at, self.random.getrandbits(60), what))

    def fetch(self, lane: dict[str, Any], begin: float, end: float) -> None:
        url, crawl = canonical_form(lane["url"]), lane["crawl"]
        page = self.site(url)
        step = self.answered[crawl + url]
        self.answered[crawl + url] += 1
        kind, fields = page.first[step] if step < len(page.first) else (page.ends, {})
        fields = dict(fields)
        says = page.says(end) if page.says is not None and kind == "FETCHED" else None
        if says is not None and page.is_validated:
            fields |= {"etag": says.hex()}
            kind = "NOT_MODIFIED" if lane["etag"] == says.hex() else kind
        for name in ("retry_after", "rate_limit_reset"):
            if f"{name}_s" in fields:
                fields[f"{name}_ms"] = int((end + fields.pop(f"{name}_s")) * 1000)
        fields.setdefault("bytes_wire", self.page_bytes)
        outcome = make_outcome(lane, kind, end, started_at_ms=int(begin * 1000), **fields)
        key = registrable_domain(canonicalize(url).host).encode()
        del self.out[crawl, url]
        self.write(Output(topics.FETCHES.name, CODECS.encode(topics.FETCHES.subject, outcome), key))
        if kind == "FETCHED":
            self.fetched.append((crawl, url))
            self.plan(end + self.random.choice(self.parse_pauses_s), lambda: self.parse(lane, page, says))
        elif kind == "REDIRECTED" and page.target is not None:
            target = canonicalize(page.target, url)
            task = make_task(
                target.wire, crawl, depth=lane["depth"], priority=lane["priority"],
                redirects=[*lane["redirects"], lane["url"]], interval_ms=lane["interval_ms"], poll=lane["poll"],
            )  # fmt: skip
            domain = registrable_domain(target.host).encode()
            self.write(Output(topics.TASKS.name, CODECS.encode(topics.TASKS.subject, task), domain))

    def parse(self, lane: dict[str, Any], page: Page, says: bytes | None) -> None:
        if says is not None and says not in lane["known_content_hashes"]:
            self.documents.append((lane["crawl"], canonical_form(lane["url"]), says))
        by_partition: dict[int, list[str]] = defaultdict(list)
        for number, link in enumerate(page.links):
            canonical = canonicalize(link, lane["url"])
            owner = partition_for(registrable_domain(canonical.host).encode(), self.partitions)
            # Parse may have another list of public suffixes.
            target = owner if self.random.random() > 0.05 else self.random.randrange(self.partitions)
            tracked = f"{canonical.wire}{'&' if '?' in canonical.wire else '?'}utm_term={lane['depth']}"
            by_partition[target].append(tracked if number % 3 == 2 else canonical.wire)
        key = registrable_domain(canonicalize(lane["url"]).host).encode()
        answer = make_parsed(lane, list(by_partition), content_hash=says)
        outputs = [Output(topics.PARSED.name, CODECS.encode(topics.PARSED.subject, answer), key)]
        for target, urls in by_partition.items():
            batch = make_links(urls, lane["crawl"], lane["depth"] + 1, poll=lane["poll"])
            outputs.append(Output(topics.LINKS.name, CODECS.encode(topics.LINKS.subject, batch), partition=target))
        self.random.shuffle(outputs)
        for output in outputs:
            self.write(output)

    # ---- time

    def step(self) -> bool:
        """Do one thing; False when there is nothing left but waiting."""
        ready = [p for p in range(self.partitions) if self.has_input(p) or self.is_due(p)]
        if self.work and self.work[0][0] <= self.now and (not ready or self.random.random() < 0.5):
            heapq.heappop(self.work)[2]()
            return True
        if ready:
            self.round(self.random.choice(ready))
            return True
        return False

    def next_moment(self) -> float | None:
        moments = [due for part in self.parts if (due := part.due()) is not None]
        if self.work:
            moments.append(self.work[0][0])
        return min(moments, default=None)

    def run_until(self, moment: float, steps: int = 200_000) -> None:
        """Run until a moment, whether anything has ended or not.

        Raises:
            AssertionError: the moment does not come: something is due again and again.
        """
        for _ in range(steps):
            if self.step():
                continue
            following = self.next_moment()
            if following is None or following > moment:
                self.now = max(self.now, moment)
                return
            self.now = max(self.now, following)
        raise AssertionError("time does not pass")

    def run(self, crawl: str = "default", limit_s: float = 1_000_000, steps: int = 200_000) -> None:
        """Run until the crawl has ended.

        Raises:
            AssertionError: it does not end.
        """
        definition = self.definitions.get(crawl) or {}
        end = CrawlEnd(self.partitions, definition.get("max_pages"), definition.get("max_bytes"))
        next_look = self.now
        for _ in range(steps):
            if self.now >= next_look:
                rows = [row for (name, _), row in self.progress.items() if name == crawl]
                if end.observe(rows, self.submitted[crawl]):
                    return
                next_look = self.now + 1.5
            if self.step():
                continue
            moment = self.next_moment()
            self.now = max(self.now, min(next_look, moment) if moment is not None else next_look)
            assert self.now < START + limit_s, f"the crawl does not end: {self.progress}"
        raise AssertionError(f"the crawl does not end: {self.progress}")
