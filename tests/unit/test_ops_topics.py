"""What topics shall look like, and how differences are said."""

from __future__ import annotations

import pytest

from pipeline.config import Broker, Settings
from pipeline.errors import ConfigurationError
from pipeline.ops.topics import Difference, plan, wanted_config
from pipeline.topics import MIB, TABLE, all_names

WITH_DEAD_LETTERS = [topic for topic in TABLE if topic.dead_letters]


@pytest.mark.parametrize("topic", WITH_DEAD_LETTERS, ids=lambda topic: topic.name)
def test_dead_letters_are_kept_for_30_days_and_never_compacted(topic):
    """People look into them weeks later, and compaction would drop all but the last of a domain."""
    config = wanted_config(topic.dlq, topic)
    assert "delete" == config["cleanup.policy"]
    assert str(30 * 24 * 3_600 * 1_000) == config["retention.ms"]


@pytest.mark.parametrize("topic", WITH_DEAD_LETTERS, ids=lambda topic: topic.name)
def test_the_largest_record_fits_into_its_dead_letter_topic_with_its_headers(topic):
    """One that does not fit would stop its partition for ever."""
    size = int(wanted_config(topic.dlq, topic)["max.message.bytes"])
    assert size == int(wanted_config(topic.name, topic)["max.message.bytes"]) + 64 * 1024


def test_pages_take_up_to_a_mebibyte():
    """A page travels inline up to 768 KiB; the rest is for its other fields."""
    (pages,) = [topic for name, topic in all_names() if name == "crawl.pages.v1"]
    assert str(MIB) == wanted_config("crawl.pages.v1", pages)["max.message.bytes"]


@pytest.mark.parametrize(
    ("difference", "line"),
    [
        (Difference("t", "missing", "", None, "6"), "t: missing; 6 partitions are wanted"),
        (
            Difference("t", "partitions", "", "3", "6"),
            "t: has 3 partitions; 6 are configured (topics.partitions)",
        ),
        (Difference("t", "config", "retention.ms", "1", "2"), "t: retention.ms is 1; 2 is wanted"),
    ],
)
def test_a_difference_is_one_line(difference, line):
    """A plan is read by people."""
    assert line == str(difference)


def test_an_option_the_client_does_not_know_is_the_operators():
    """A misspelt security option must not look like a broker that is down."""
    options = {"bootstrap.servers": "127.0.0.1:1", "sasl.mechanizm": "PLAIN"}
    with pytest.raises(ConfigurationError, match=r'broker\.options: .*"sasl\.mechanizm"'):
        plan(options, Settings(broker=Broker(bootstrap="127.0.0.1:1")))
