"""The benchmark of failover measures pauses where they are."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import pytest
from confluent_kafka import Producer

from bench.arrivals import Arrival, Arrivals
from bench.failover import Plan, measure, table_of
from bench.latency import Latencies
from bench.pauses import GOALS_S, Pauses
from bench.stage_feed import recipes
from pipeline.contracts.codec import load_codec
from pipeline.topics import STAGES
from pipeline.web.partition import partition_for
from tests.chaos.process import until


@pytest.mark.broker
@pytest.mark.timeout(120)
def test_a_killed_worker_of_a_real_stage_is_timed(tmp_path):
    """From the kill to an output of each of its partitions; the other worker's go on meanwhile."""
    (pauses,) = measure(["parse"], Plan(restarts=1, without=0, deploys=0, rate_per_s=20, delivery={}), tmp_path)
    assert ("parse", "restarted", 1) == (pauses.stage, pauses.what, pauses.times)
    assert 1 <= pauses.partitions <= 5
    assert 0 < pauses.pause.p50 <= pauses.pause.most
    assert 0 < pauses.others_s
    json.dumps(asdict(pauses))
    assert 1 == table_of([pauses]).row_count


@pytest.mark.parametrize("stage", STAGES)
def test_inputs_fit_their_contract_and_their_partition(stage):
    """A stage that refuses its input, or hands it to another partition, would never show the output waited for."""
    codecs = load_codec()
    recipe = recipes(6, 8080)[stage]
    for partition in range(6):
        for number in range(3):
            domain, record = recipe.make(partition, number)
            assert partition == partition_for(domain.encode(), 6)
            assert codecs.encode(recipe.source.subject, record)
            assert domain in record["url"]


def test_arrivals_tell_what_was_written_when(broker, topic_factory):
    """A record that was under way at the kill is no sign of life, however late it arrives."""
    topic = topic_factory()
    with Arrivals(broker.bootstrap, topic, 1) as arrivals:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

        def write() -> float:
            at_s = int(time.time() * 1000) / 1000
            producer.produce(topic, b"", timestamp=round(at_s * 1000))
            producer.flush(10)
            return at_s

        # The reader begins at the end, which it has to find first.
        until(lambda: write() and arrivals.last_written_s(0), "a first record")
        before_s = time.time()
        assert arrivals.first_written_after(0, before_s) is None
        written_s = write()
        until(lambda: arrivals.last_written_s(0) == written_s, "the last record")
        first = arrivals.first_written_after(0, before_s - 0.001)
        assert first is not None
        assert before_s <= first.at_s


def test_gaps_count_where_they_overlap_the_time_looked_at(broker, topic_factory):
    """The gap that a kill falls into begins before it."""
    arrivals = Arrivals(broker.bootstrap, topic_factory(), 1)
    arrivals._seen[0] = [Arrival(at_s, at_s) for at_s in (1.0, 4.0, 4.5, 7.0, 20.0)]
    assert 3.0 == arrivals.longest_gap_s(0, 3.9, 5.0)
    assert 2.5 == arrivals.longest_gap_s(0, 4.2, 5.0)
    assert 13.0 == arrivals.longest_gap_s(0, 0.0, 30.0)
    assert 0.0 == arrivals.longest_gap_s(0, 21.0, 30.0)
    arrivals._consumer.close()


def test_goals_are_those_of_the_kind():
    """What is good without the worker is not good with it."""
    late = Latencies.of([GOALS_S["restarted"] + 1])
    assert not Pauses("fetch", "restarted", 1, 1, late, 0.1).good
    assert Pauses("fetch", "without", 1, 1, late, 0.1).good
    assert Pauses("fetch", "deploy", 1, 1, Latencies.of([60.0]), 0.0).good
