from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from pipeline.delivery.exits import ExitCode
from pipeline.local.site_judge import SiteFindings
from pipeline.local.topic_judge import TopicFindings
from tests.chaos import pipeline_worker
from tests.chaos.pipeline_verdict import Happened, Verdict
from tests.chaos.pipeline_worker import PipelinePlace, Trouble
from tests.chaos.plan import Kind
from tests.chaos.proxy import Mode

SESSION_S = 6.0
SECOND_NS = 10**9


@pytest.fixture
def clock(monkeypatch):
    """The wall clock of the places: `clock.at_s = 3.0`."""
    made = SimpleNamespace(at_s=0.0)
    monkeypatch.setattr(pipeline_worker.time, "time_ns", lambda: int(made.at_s * SECOND_NS))
    return made


class Process:
    """A worker that ends as it is told."""

    name = "fetch-0"
    has_full_disk = False
    status = 0

    def exit_status(self):
        return self.status

    def send(self, number):
        pass


@pytest.fixture
def place(clock, tmp_path):
    """The place of a fetch worker, and its process, proxy and broker."""
    broker = SimpleNamespace(trouble=Trouble())
    proxy = SimpleNamespace(changed=None)
    return PipelinePlace(
        "fetch", Process(), proxy, tmp_path, broker=broker, agent="headrace/0.1 (fetch-0)", session_s=SESSION_S
    )


def spans(place):
    """The interruptions of a place, seconds."""
    return [(one.began_ns / SECOND_NS, one.ended_ns / SECOND_NS) for one in place.interruptions]


def test_a_worker_that_was_killed_has_an_excuse_and_one_that_ended_in_order_has_none(place, clock):
    """What a worker hands over at its end is committed: whoever comes next is held to it."""
    clock.at_s = 3.0
    place.note_exit()
    assert [] == place.interruptions
    place.worker.status = int(ExitCode.REPLACED)
    place.note_exit()
    assert [(3.0, 3.0)] == spans(place)
    assert "headrace/0.1 (fetch-0)" == place.interruptions[0].agent


def test_a_worker_that_could_not_reach_the_broker_before_its_end_is_excused_from_then_on(place, clock):
    """It may have been told things for all the time in which it could not commit them."""
    clock.at_s = 2.0
    place.proxy.changed(Mode.STALL)
    clock.at_s = 4.0
    place.proxy.changed(Mode.PASS)
    clock.at_s = 8.0
    place.note_exit()
    clock.at_s = 40.0
    place.note_exit()
    assert [(2.0, 8.0)] == spans(place)


def test_a_pause_within_the_session_is_no_excuse_and_a_longer_one_is(place, clock):
    """After a short one the worker goes on and commits; after a long one its partitions are others'."""
    for began_s, ended_s in ((1.0, 4.0), (20.0, 28.0)):
        clock.at_s = began_s
        place.stop()
        clock.at_s = ended_s
        place.go_on()
    assert [(20.0, 28.0)] == spans(place)


def test_a_verdict_is_shown_to_people_and_to_programs():
    """A run that found something must say what."""
    happened = Happened(
        7, 60.0, 3.21, {Kind.KILL.value: 2}, {"before_commit, kill": 1}, {"fetch": Counter({-9: 2})}, {}
    )
    findings = TopicFindings({"crawl.pages.v1": 5}, {"crawl.pages.v1-dlq": {"crash_loop": 1}}, {})
    site = SiteFindings(12, {200: 12}, (), 3, 1, (), (), (), None)
    row = Verdict(happened, findings, site, {}, ["pages without parsed records: 1"]).as_json()
    assert (False, 7, {"fetch, status -9": 2}) == (row["ok"], row["seed"], row["exits"])
    assert {"crawl.pages.v1-dlq, crash_loop": 1} == row["dead_letters"]
    assert (12, 3, 1) == tuple(row["requests"][name] for name in ("all", "site_late", "excused"))
