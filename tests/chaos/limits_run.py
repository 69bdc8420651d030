"""Frontier and fetch on a real broker, before sites that bound how often they are asked, while both are killed.

The sites count: Crawl-delay, windows announced in every style, refusals with a time in both forms and without one, and
a site that refuses everything. `python -m tests.chaos.limits_run --seed 7 --disruptions 24` runs it once and prints
what came of it; exit status 0 only if no request came before its time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pipeline.config import Settings, client_options, load
from pipeline.contracts.codec import Codecs, load_codec
from pipeline.local.kafka import LocalBroker
from pipeline.local.request_log import LoggedRequest, read_log
from pipeline.local.simulated_limits import LIMITS
from pipeline.local.simulated_web import ServedWeb, crawler_options
from pipeline.local.site_judge import (
    ROBOTS,
    Interruption,
    Outcome,
    RobotsRead,
    SiteFindings,
    judge_site,
    killed,
)
from pipeline.local.supervisor import Fleet, WorkerProcess
from pipeline.local.topic_reader import read_all
from pipeline.ops import topics as topic_admin
from pipeline.ops.submission import Submission
from pipeline.topics import FETCHES, Topic
from pipeline.topics import ROBOTS as ROBOTS_TOPIC
from tests.chaos.schedule import Schedule, Steps

log = logging.getLogger(__name__)

CRAWL = "limits"
STAGES = ("frontier", "fetch")
WORKERS = 2
DELAY_S = 0.2
BACKOFF_S = 2.0
SESSION_S = 6.0
BEYOND_SESSION_S = (1.0, 2.0)
BEGIN_S = 5.0
LOOK_S = 0.1
END_S = 30.0


class Act(Enum):
    """What is done to a worker; whichever it is, its partitions move."""

    KILL = "killed"
    WIPE = "killed, its disk lost"
    TERMINATE = "asked to end"
    ZOMBIE = "stopped for longer than the session and continued"


@dataclass(frozen=True)
class LimitsVerdict:
    """How a run went.

    Attributes:
        site: what the sites' log tells.
        done: stage and act -> how often.
        refused: refusals by the number of their site.
        took_s: from the first task to the last page, seconds.
        wrong: everything that is wrong, in plain words; empty where all is well.
    """

    site: SiteFindings
    done: Counter[str]
    refused: Counter[int]
    took_s: float
    wrong: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "ok": not self.wrong,
            "wrong": list(self.wrong),
            "disruptions": dict(self.done),
            "requests": self.site.requests,
            "statuses": dict(self.site.statuses),
            "too close": [each._asdict() for each in self.site.too_close],
            "excused": self.site.excused,
            "site_late": self.site.site_late,
            "refused": dict(self.refused),
            "took_s": round(self.took_s, 1),
        }


class LimitsRun:
    """One run, from its broker to its verdict.

    Args:
        directory: for everything; must be empty.
        seed: of the web and of what is done to whom.
        pages: of each site.
        disruptions: how many.
        gap_s: between two of them, shortest and longest.
        limit_s: until the last page, at most.
    """

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        pages: int,
        disruptions: int,
        gap_s: tuple[float, float],
        limit_s: float,
    ) -> None:
        self._directory = directory
        self._seed = seed
        self._pages = pages
        self._disruptions = disruptions
        self._gap_s = gap_s
        self._limit_s = limit_s
        self._chance = random.Random(seed)
        self._done: Counter[str] = Counter()
        self._stopped: set[str] = set()
        self._interruptions: list[Interruption] = []

    def run(self) -> LimitsVerdict:
        """Run to the end and judge."""
        with contextlib.ExitStack() as stack:
            served = stack.enter_context(
                ServedWeb(self._seed, len(LIMITS), self._pages, self._directory / "requests.jsonl", plan="limits")
            )
            broker = stack.enter_context(LocalBroker(self._directory / "kafka"))
            environ = self._environ(served.port, broker.bootstrap)
            settings, codecs = load(environ=environ).settings, load_codec()
            topic_admin.apply(client_options(settings.broker), settings)
            fleet = Fleet(self._directory, environ, dict.fromkeys(STAGES, WORKERS), own=_own)
            stack.callback(self._end_by_force, fleet)
            fleet.start()
            began_s = time.monotonic()
            self._submit(settings, codecs, served)
            self._disrupt(fleet)
            self._until_fetched(fleet, served)
            took_s = time.monotonic() - began_s
            self._end(fleet)
            requests = read_log(served.log)
            site = judge_site(
                requests,
                served.web.expectation(1),
                DELAY_S,
                backoff_s=BACKOFF_S,
                outcomes=[
                    Outcome(row["url"], row["started_at_ms"], row["ended_at_ms"])
                    for row in _rows(broker, codecs, FETCHES)
                ],
                robots_reads=[
                    RobotsRead(row["origin"], row["fetched_at_ms"]) for row in _rows(broker, codecs, ROBOTS_TOPIC)
                ],
                interruptions=self._interruptions,
            )
            refused = _refusals(requests, served)
            return LimitsVerdict(site, self._done, refused, took_s, list(self._wrong(site, refused, took_s)))

    def _environ(self, port: int, bootstrap: str) -> dict[str, str]:
        return {
            **crawler_options(port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": str(DELAY_S),
            "HEADRACE_POLITENESS__BACKOFF_S": str(BACKOFF_S),
            "HEADRACE_DELIVERY__SESSION_TIMEOUT_S": str(SESSION_S),
            "HEADRACE_DELIVERY__HEARTBEAT_S": "0.5",
            "HEADRACE_DELIVERY__TRANSACTION_TIMEOUT_S": str(SESSION_S),
        }

    def _submit(self, settings: Settings, codecs: Codecs, served: ServedWeb) -> None:
        submission = Submission(client_options(settings.broker), codecs)
        definition = {
            "crawl": CRAWL, "start_urls": served.web.start_urls, "scope": [], "max_depth": 0, "created_at_ms": 0,
            "max_pages": None, "max_pages_per_domain": None, "delay_ms": None,
        }  # fmt: skip
        submission.define(definition)
        urls = [page.url for site in served.web.sites for page in site.articles]
        submission.submit(urls, CRAWL, 3, time.time(), source="limits")
        submission.flush()

    # ---- what goes wrong

    def _disrupt(self, fleet: Fleet) -> None:
        schedule = Schedule()
        at_s = time.monotonic() + BEGIN_S
        acts = list(Act)
        for number in range(self._disruptions):
            worker = self._chance.choice(fleet.by_stage[STAGES[number % len(STAGES)]])
            act = acts[number // len(STAGES) % len(acts)]
            schedule.add(at_s, self._steps(act, worker))
            at_s += self._chance.uniform(*self._gap_s)
        try:
            while len(schedule):
                schedule.run(time.monotonic())
                self._start_those_that_ended(fleet)
                time.sleep(LOOK_S)
        finally:
            schedule.close()

    def _steps(self, act: Act, worker: WorkerProcess) -> Steps:
        while worker.pid is None or worker.label in self._stopped:  # it is being disrupted already
            yield LOOK_S
        self._done[f"{worker.label.partition('-')[0]} {act.value}"] += 1
        log.info("%s: %s", worker.label, act.value)
        match act:
            case Act.KILL | Act.WIPE:
                self._note(killed(time.time_ns(), _agent(worker.label)))
                worker.kill()
                worker.wait(END_S)
                if act is Act.WIPE:
                    shutil.rmtree(self._directory / "state" / worker.label, ignore_errors=True)
            case Act.TERMINATE:
                worker.terminate()
            case Act.ZOMBIE:
                yield from self._stop(worker)

    def _stop(self, worker: WorkerProcess) -> Steps:
        began_ns = time.time_ns()
        self._stopped.add(worker.label)
        worker.send(signal.SIGSTOP)
        try:
            yield SESSION_S + self._chance.uniform(*BEYOND_SESSION_S)
        finally:
            worker.send(signal.SIGCONT)
            self._stopped.discard(worker.label)
            self._note(Interruption(began_ns, time.time_ns(), _agent(worker.label)))

    def _note(self, interruption: Interruption) -> None:
        """Only what fetch was told can be lost: a frontier that is killed excuses nothing."""
        if "fetch" in interruption.agent:
            self._interruptions.append(interruption)

    def _start_those_that_ended(self, fleet: Fleet) -> None:
        for worker in fleet.all:
            if worker.pid is None:
                if worker.exit_status != 0:
                    self._note(killed(time.time_ns(), _agent(worker.label)))
                worker.start()

    # ---- the end

    def _until_fetched(self, fleet: Fleet, served: ServedWeb) -> None:
        wanted = {page.url for site in served.web.sites if not _refuses_all(site) for page in site.articles}
        deadline = time.monotonic() + self._limit_s
        while missing := wanted - {row.url for row in read_log(served.log) if row.status == 200}:
            tails = "\n".join(f"--- {worker.label}\n{worker.tail()[-1_500:]}" for worker in fleet.all)
            assert time.monotonic() < deadline, f"{len(missing)} not fetched, such as {sorted(missing)[:3]}\n{tails}"
            self._start_those_that_ended(fleet)
            time.sleep(5 * LOOK_S)

    def _end(self, fleet: Fleet) -> None:
        left = fleet.stop()
        assert [] == left, f"did not end when asked to: {left}"

    def _end_by_force(self, fleet: Fleet) -> None:
        for worker in fleet.all:
            worker.send(signal.SIGCONT)
            worker.kill()
            worker.wait(END_S)

    def _wrong(self, site: SiteFindings, refused: Counter[int], took_s: float) -> Sequence[str]:
        wrong = [f"too close: {len(site.too_close)}, such as {site.too_close[:5]}"] if site.too_close else []
        if site.before_robots:
            wrong.append(f"before robots.txt: {site.before_robots[:5]}")
        lost = len(self._interruptions)
        for number, limit in enumerate(LIMITS):
            if limit is None or (limit.style == "silent" and limit.requests):
                continue
            # Of what is announced only an answer that died with its process is not known; to a site that refuses
            # everything each pause is twice as long as the one before.
            most = lost if limit.requests else lost + 1 + int(math.log2(took_s / BACKOFF_S + 1))
            if refused[number] > most:
                wrong.append(f"site {number} refused {refused[number]} requests, at most {most} are right")
        return wrong


def _own(label: str) -> dict[str, str]:
    return {"HEADRACE_FETCH__USER_AGENT": _agent(label)}


def _agent(label: str) -> str:
    return f"headrace/0.1 ({label})"


def _refuses_all(site: Any) -> bool:
    return site.limit is not None and site.limit.requests == 0


def _refusals(requests: Sequence[LoggedRequest], served: ServedWeb) -> Counter[int]:
    numbers = {site.domain: number for number, site in enumerate(served.web.sites)}
    return Counter(
        numbers[row.host.partition(":")[0]] for row in requests if row.status in {429, 503} and row.path != ROBOTS
    )


def _rows(broker: LocalBroker, codecs: Codecs, topic: Topic) -> list[dict[str, Any]]:
    decode: Callable[[bytes | None], dict[str, Any]] = codecs.decoder(topic.subject)
    return [decode(record.value) for record in read_all(broker.bootstrap, topic.name) if record.value is not None]


def main() -> int:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.limits_run", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pages", type=int, default=60, help="of each site")
    parser.add_argument("--disruptions", type=int, default=24)
    parser.add_argument("--directory", type=Path, help="where to work; a new one, removed afterwards, by default")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-limits-"))
        )
        run = LimitsRun(
            directory.absolute(),
            options.seed,
            pages=options.pages,
            disruptions=options.disruptions,
            gap_s=(2.0, 5.0),
            limit_s=400.0,
        )
        verdict = run.run()
    sys.stdout.write(json.dumps(verdict.as_json(), indent=1) + "\n")
    return 0 if not verdict.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
