"""The whole pipeline on a real broker, crawling a simulated web while everything around it goes wrong.

`python -m tests.chaos.pipeline_run --seed 7 --seconds 60` runs it once and prints what happened and what came of it;
with `--json` as JSON. Exit status 0 only if every promise was kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.local.simulated_web import ServedWeb, crawler_options
from pipeline.local.supervisor import Fleet, WorkerProcess
from pipeline.ops import topics
from pipeline.topics import STAGES
from tests.chaos.disruptions import Disruptions
from tests.chaos.pipeline_feed import PipelineFeed
from tests.chaos.pipeline_verdict import Evidence, Happened, Verdict, reach_verdict
from tests.chaos.pipeline_watch import PipelineWatch
from tests.chaos.pipeline_worker import PipelinePlace, PipelineWorker, WatchedBroker, WatchedProxy
from tests.chaos.plan import WEIGHTS, Fault, Kind, plan
from tests.chaos.process import until
from tests.chaos.schedule import Schedule, Steps

log = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
WORKERS = 3
HOSTS = 50
PAGES = 8
DELAY_S = 0.2
BACKOFF_S = 2.0
SESSION_S = 6.0
RETRY_PAUSES_S = [0.5, 1.0]
"""Short: pages that fail for ever are tried three times before a crawl ends."""
GAP_S = (0.8, 4.0)
SITE_GAP_S = (6.0, 18.0)
FROZEN_S = (0.5, 4.0)
CLOCK_JUMPS_S = (-15.0, -2.0, 2.0, 15.0)
"""Shorter than for toys: a task that is put off by a clock that is hours ahead waits for hours."""
LOOK_S = 0.05
START_S = 90.0
DRAIN_S = 240.0
END_S = 30.0


class PipelineRun:
    """One run, from its broker to its verdict.

    Args:
        directory: for everything; must be empty.
        seed: of the web, of what goes wrong and of what is fed.
        duration_s: how long things go wrong.
        weights: how often each kind of fault is drawn, against the others.
    """

    def __init__(self, directory: Path, seed: int, duration_s: float, weights: Mapping[Kind, int] = WEIGHTS) -> None:
        self._directory = directory
        self._seed = seed
        self._duration_s = duration_s
        self._weights = weights
        self._chance = random.Random(seed)
        self._proxies = {stage: [WatchedProxy() for _ in range(WORKERS)] for stage in STAGES}
        self._broker = WatchedBroker(
            directory / "kafka",
            advertised_ports=[proxy.port for proxies in self._proxies.values() for proxy in proxies],
        )
        self._places: dict[str, list[PipelinePlace]] = {}
        self._site_disruptions: Counter[str] = Counter()

    def run(self) -> Verdict:
        """Run to the end and judge."""
        log.info("chaos on the pipeline with seed %d, for %.0f s", self._seed, self._duration_s)
        with contextlib.ExitStack() as stack:
            served = stack.enter_context(ServedWeb(self._seed, HOSTS, PAGES, self._directory / "requests.jsonl"))
            stack.enter_context(self._broker)
            self._start_proxies(stack)
            environ = self._environ(served.port)
            settings = load(environ=environ).settings
            topics.apply(client_options(settings.broker), settings)
            codecs = load_codec()
            self._make_places(environ, stack)
            feed = PipelineFeed(settings, codecs, served.web, self._seed)
            stack.callback(feed.close)
            watch = PipelineWatch(client_options(settings.broker), settings.topics.partitions)
            stack.callback(watch.close)
            feed.start()
            watch.start()
            until(lambda: all(watch.commits_of(stage) for stage in STAGES), "the first commits of all stages", START_S)
            disruptions = Disruptions(self._broker, list(self._places.values()), self._seed, log.info)
            self._break_things(disruptions, served)
            began_s = time.monotonic()
            self._drain(feed)
            drained_s = time.monotonic() - began_s
            watch.close()
            self._end_workers()
            happened = Happened(
                self._seed,
                self._duration_s,
                drained_s,
                {**{kind.value: count for kind, count in disruptions.done.items()}, **self._site_disruptions},
                {f"{point}, {action.value}": count for (point, action), count in disruptions.points.items()},
                {stage: sum((place.exits for place in places), Counter()) for stage, places in self._places.items()},
                dict(watch.longest_standstill_s),
            )
            evidence = Evidence(
                self._broker.bootstrap,
                self._directory,
                settings.store.directory,
                served.log,
                DELAY_S,
                feed.expected,
                feed.expected_without,
                frozenset(served.web.failing),
                watch.commits,
                [one for place in self._places["fetch"] for one in place.interruptions],
            )
            return reach_verdict(evidence, codecs, happened)

    # ---- what runs

    def _start_proxies(self, stack: contextlib.ExitStack) -> None:
        proxies = [proxy for proxies in self._proxies.values() for proxy in proxies]
        for proxy, address in zip(proxies, self._broker.proxied_addresses, strict=True):
            stack.enter_context(proxy)
            proxy.start(address)

    def _environ(self, port: int) -> dict[str, str]:
        return {
            **crawler_options(port),
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self._broker.bootstrap,
            "HEADRACE_POLITENESS__DELAY_S": str(DELAY_S),
            "HEADRACE_POLITENESS__BACKOFF_S": str(BACKOFF_S),
            "HEADRACE_FRONTIER__RETRY_PAUSES_S": str(RETRY_PAUSES_S),
            "HEADRACE_DELIVERY__SESSION_TIMEOUT_S": str(SESSION_S),
            "HEADRACE_DELIVERY__HEARTBEAT_S": "0.5",
            "HEADRACE_DELIVERY__TRANSACTION_TIMEOUT_S": str(SESSION_S),
            "HEADRACE_STORE__DIRECTORY": str(self._directory / "documents"),
            "HEADRACE_STORE__SEGMENT_S": "1",
            "CHAOS_POINTS": str(self._directory / "points"),
            "PYTHONPATH": str(ROOT),
        }

    def _make_places(self, environ: dict[str, str], stack: contextlib.ExitStack) -> None:
        clocks = self._directory / "clocks"
        proxies = {f"{stage}-{n}": proxy for stage, found in self._proxies.items() for n, proxy in enumerate(found)}

        def own(label: str) -> dict[str, str]:
            return {
                "HEADRACE_BROKER__BOOTSTRAP": proxies[label].address,
                "HEADRACE_FETCH__USER_AGENT": f"headrace/0.1 ({label})",
                "CHAOS_NAME": label,
                "CHAOS_CLOCK": str(clocks / label),
            }

        fleet = Fleet(
            self._directory,
            environ,
            dict.fromkeys(STAGES, WORKERS),
            command=("-m", "tests.chaos.faulty_worker"),
            own=own,
        )
        stack.callback(self._end_by_force, fleet)
        self._places = {
            stage: [self._place(stage, process, proxies[process.label], clocks) for process in processes]
            for stage, processes in fleet.by_stage.items()
        }
        self._broker.came_back = self._tell_fetchers
        for places in self._places.values():
            for place in places:
                place.worker.start()

    def _place(self, stage: str, process: WorkerProcess, proxy: WatchedProxy, clocks: Path) -> PipelinePlace:
        label = process.label
        worker = PipelineWorker(process, self._directory / "state" / label, clocks / label)
        points = self._directory / "points"
        agent = f"headrace/0.1 ({label})"
        return PipelinePlace(stage, worker, proxy, points, broker=self._broker, agent=agent, session_s=SESSION_S)

    def _tell_fetchers(self, away_ns: int) -> None:
        for place in self._places.get("fetch", ()):
            place.silent(away_ns)

    # ---- what goes wrong

    def _break_things(self, disruptions: Disruptions, served: ServedWeb) -> None:
        schedule = Schedule()
        began_s = time.monotonic()
        for fault in self._faults():
            schedule.add(began_s + fault.at_s, disruptions.steps(fault))
        schedule.add(began_s, self._spoil_site(served, began_s + self._duration_s))
        try:
            while len(schedule) or time.monotonic() < began_s + self._duration_s:
                schedule.run(time.monotonic())
                self._start_those_that_ended()
                time.sleep(LOOK_S)
        finally:
            schedule.close()

    def _faults(self) -> list[Fault]:
        if not any(self._weights.values()):
            return []
        faults = plan(
            self._seed,
            self._duration_s,
            stages=len(STAGES),
            workers=WORKERS,
            session_s=SESSION_S,
            weights=self._weights,
            gap_s=GAP_S,
        )
        return [
            fault._replace(detail=self._chance.choice(CLOCK_JUMPS_S)) if fault.kind is Kind.CLOCK else fault
            for fault in faults
        ]

    def _spoil_site(self, served: ServedWeb, until_s: float) -> Steps:
        yield self._chance.uniform(*SITE_GAP_S)
        while time.monotonic() < until_s:
            if self._chance.random() < 1 / 2:
                self._site_disruptions["the sites answer 503 with Retry-After"] += 1
                served.overload()
            else:
                self._site_disruptions["the sites hang"] += 1
                os.kill(served.pid, signal.SIGSTOP)
                try:
                    yield self._chance.uniform(*FROZEN_S)
                finally:
                    os.kill(served.pid, signal.SIGCONT)
            yield self._chance.uniform(*SITE_GAP_S)

    def _start_those_that_ended(self) -> None:
        for places in self._places.values():
            for place in places:
                place.start_if_ended()

    # ---- the end

    def _drain(self, feed: PipelineFeed) -> None:
        """Wait until the crawls have ended and their documents are in files, workers that end being started again."""
        feed.enough()

        def at_rest() -> bool:
            self._start_those_that_ended()
            time.sleep(LOOK_S)
            return not feed.left() and not feed.documents_left()

        try:
            until(at_rest, "the ends of the crawls", DRAIN_S)
        except AssertionError:
            log.info("not ended: %s, documents left: %d", feed.left(), feed.documents_left())
            for sentence in feed.where():
                log.info("%s", sentence)
            for places in self._places.values():
                for place in places:
                    place.worker.tell_stacks()
            raise

    def _end_workers(self) -> None:
        places = [place for places in self._places.values() for place in places]
        for place in places:
            place.worker.send(signal.SIGTERM)
        for place in places:
            place.note_exit()

    def _end_by_force(self, fleet: Fleet) -> None:
        for worker in fleet.all:
            worker.send(signal.SIGCONT)
            worker.kill()
            worker.wait(END_S)


def main() -> int:
    """Run once."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.pipeline_run", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long things go wrong")
    parser.add_argument("--kinds", nargs="*", choices=[kind.name for kind in Kind], help="of faults; all by default")
    parser.add_argument("--directory", type=Path, help="where to work; a new one, removed if all is well, by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    kinds = [kind.name for kind in Kind] if options.kinds is None else options.kinds
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind.name in kinds}
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-chaos-"))
        )
        verdict = PipelineRun(directory.absolute(), options.seed, options.seconds, weights).run()
    if options.json:
        sys.stdout.write(json.dumps(verdict.as_json()) + "\n")
    else:
        Console().print(verdict.table())
    return 0 if not verdict.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
