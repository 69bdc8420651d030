"""What became of a URL: told by the worker that owns it, and by Kafka alone once there is no worker."""

from __future__ import annotations

import json
import os
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from pipeline import topics as table
from pipeline.cli.explain import explain
from pipeline.cli.top import top
from pipeline.config import client_options, load
from pipeline.contracts.codec import load_codec
from pipeline.errors import BrokerError, InputError
from pipeline.local.stack import LocalStack, with_addresses
from pipeline.local.supervisor import Fleet
from pipeline.ops import topics
from pipeline.ops.control import ControlClient
from pipeline.ops.explain import Explainer
from pipeline.ops.recent_outcomes import RecentOutcomes
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import canonicalize, url_key
from tests.chaos.process import until
from tests.frontier_world import make_crawl, make_links, make_outcome, make_task

pytestmark = pytest.mark.broker

PARTITIONS = 2
CRAWL = "c"
A = "http://a.test/"
BAD = "http://bad.test/"
STALE = "http://stale.test/"
"""Nobody waits for its outcomes."""
ANSWER_S = 10.0
GONE_S = 1.0


class FrontierAlone:
    """A broker and one frontier worker; the test writes what the other stages would."""

    def __init__(self, directory):
        self._stack = LocalStack(directory / "local", registry=False)
        self._stack.start()
        self.environ = {
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_BROKER__BOOTSTRAP": self._stack.addresses.bootstrap,
            "HEADRACE_TOPICS__PARTITIONS": str(PARTITIONS),
            "HEADRACE_WORKER__DATA_DIR": str(directory),
        }
        self.settings = with_addresses(load(environ=self.environ).settings, self._stack.addresses)
        self.codecs = load_codec()
        topics.apply(client_options(self.settings.broker), self.settings)
        self.fleet = Fleet(directory, self.environ, {"frontier": 1})
        self._producer = Producer(client_options(self.settings.broker))

    def write(self, topic, record, url):
        domain = registrable_domain(canonicalize(url).host).encode()
        value = self.codecs.encode(topic.subject, record)
        self._producer.produce(topic.name, value, domain, partition_for(domain, PARTITIONS))
        assert 0 == self._producer.flush(10)

    def explainer(self, **options):
        return Explainer(self.settings, self.codecs, **options)

    def listens(self):
        """Whether the worker answers: it hears no question that was asked before its start."""
        try:
            return self.explainer(answer_s=GONE_S, read_s=0).url(A)
        except BrokerError:
            return None

    def command(self, *arguments):
        """Run `headrace explain`."""
        return CliRunner().invoke(explain, arguments, env=self.environ)

    def stop(self):
        self.fleet.stop()
        self._stack.stop()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A frontier whose worker has decided about a few URLs."""
    world = FrontierAlone(tmp_path_factory.mktemp("explain"))
    try:
        scope = [{"action": "DENY", "pattern": "*.pdf", "source": ""}]
        crawl = make_crawl(CRAWL, scope=scope, max_depth=1)
        value = world.codecs.encode(table.CRAWLS.subject, crawl)
        world._producer.produce(table.CRAWLS.name, value, CRAWL.encode())
        world.fleet.start()
        world.write(table.TASKS, make_task(A, CRAWL, source="desk"), A)
        world.write(table.TASKS, make_task(BAD, CRAWL, priority=9), BAD)
        world.write(table.LINKS, make_links([A + "x.pdf", A + "1", A + "2", A + "3"], CRAWL), A)
        world.write(table.LINKS, make_links([A + "deep"], CRAWL, depth=2), A)
        until(world.listens, "the worker's answer")
        asking = world.explainer(answer_s=ANSWER_S, read_s=0)
        until(lambda: "refused" == asking.url(A + "deep", CRAWL)["crawls"][0]["state"], "the links")
        until(lambda: "out" == asking.url(A, CRAWL)["crawls"][0]["state"], "the task that goes out")
        until(lambda: asking.url(BAD)["dead_letters"], "the dead letter")
        yield world
    finally:
        world.stop()


def decided(told):
    """State and what decided in the only crawl."""
    (row,) = told["crawls"]
    return row["state"], row["why"], row["reason"]


EXPECTED = {
    A + "x.pdf": ("refused", "scope", "scope"),
    A + "deep": ("refused", "depth", "depth"),
    A: ("out", "out", ""),
    BAD: ("unknown", "dead_letter", "invalid_task"),
}


def test_the_worker_that_owns_a_url_tells_of_it(alone):
    """At once, and with what only its memory and its whole queue can say."""
    asking = alone.explainer(answer_s=ANSWER_S, read_s=0)
    assert EXPECTED == {url: decided(asking.url(url)) for url in EXPECTED}
    told = asking.url(A + "3")
    (row,) = told["crawls"]
    assert ("frontier-0", "waiting") == (told["answered_by"], row["state"])
    assert 1 <= row["ahead"] <= 2
    assert asking.domain("www.a.test")["domain_state"]["out"] >= 1
    assert not asking.url("http://never.test/")["known"]
    assert not asking.domain("never.test")["known"]


def test_the_command_tells_in_words_and_as_json(alone):
    """The answer first; a status for scripts."""
    said = alone.command(A + "x.pdf")
    assert (0, True) == (said.exit_code, "not fetched: refused by scope: rule 1: DENY *.pdf" in said.output)
    said = alone.command("--json", A)
    assert (0, "frontier-0") == (said.exit_code, json.loads(said.output)["answered_by"])
    said = alone.command(BAD)
    assert "bring it back: headrace dlq replay --id" in said.output
    said = alone.command("a.test")
    assert (0, True) == (said.exit_code, said.output.startswith("domain a.test: waiting: "))
    assert 1 == alone.command("http://never.test/").exit_code
    assert isinstance(alone.command("http://").exception, InputError)


def test_a_question_that_makes_no_sense_is_answered_with_the_complaint(alone):
    """Whoever may write to the topic may be mistaken; the worker goes on."""
    client = ControlClient(client_options(alone.settings.broker), alone.codecs)
    answer = next(client.ask("EXPLAIN", "frontier", ("", 0, 0), ANSWER_S, "no JSON"))
    assert "could not answer" in answer["complaint"]
    assert alone.explainer(answer_s=ANSWER_S, read_s=0).url(A)["known"]


def test_top_shows_what_is_under_way(alone):
    """Asked of the same workers, with the lags of the lanes beside it."""
    said = CliRunner().invoke(top, ["--once", "--json", "--interval", "0.5"], env=alone.environ)
    assert 0 == said.exit_code
    seen = json.loads(said.output)
    assert (["frontier-0"], PARTITIONS) == (seen["workers"], seen["partitions_told"])
    (row,) = seen["domains"]
    assert ("a.test", 4) == (row["domain"], sum(row["waiting"].values()) + row["out"])
    assert row["out"] == seen["totals"]["out"] <= seen["lanes"]["normal"]
    assert (2, 0.0) == (seen["totals"]["refused"], seen["per_s"]["seen"])


def test_outcomes_are_counted_as_they_come(alone):
    """From the end of the topic on: the last minute is what is asked for, not the last week."""
    lane = {"crawl": CRAWL, "url": STALE, "url_key": url_key(STALE), "delivery": 1}

    def counted():
        alone.write(table.FETCHES, make_outcome(lane, "FETCHED", time.time()), STALE)
        return recent.look()[1]

    with RecentOutcomes(client_options(alone.settings.broker), alone.codecs, PARTITIONS) as recent:
        assert {} == recent.look()[1]
        by_domain = until(counted, "an outcome")
    assert ["stale.test"] == list(by_domain)
    assert by_domain["stale.test"].pages == by_domain["stale.test"].outcomes > 0


def test_without_a_worker_the_state_is_read_from_kafka(alone):
    """An operator asks most when everything stands still; nothing that is said may be older than the last commit."""
    alone.fleet.stop()
    notes = []
    reading = alone.explainer(answer_s=GONE_S, note=notes.append)
    before_s = time.time()
    told = reading.url(A + "3")
    assert (None, True) == (told["answered_by"], told["as_of_ms"] >= before_s * 1000)
    (row,) = told["crawls"]
    assert ("waiting", None) == (row["state"], row["ahead"])
    assert ["from its changelog" in note for note in notes] == [True]
    silent = alone.explainer(answer_s=0)
    assert EXPECTED == {url: decided(silent.url(url)) for url in EXPECTED}
    state = silent.domain("a.test")["domain_state"]
    assert 4 == sum(state["waiting"].values()) + state["out"]
    assert not silent.url("http://never.test/")["known"]
