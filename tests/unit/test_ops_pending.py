from __future__ import annotations

import pytest

from pipeline.delivery.offsets import OffsetMap
from pipeline.ops.control import place_of
from pipeline.ops.lag import PartitionLag
from pipeline.ops.pending import combine
from pipeline.topics import INPUTS

TOPICS = {topic.name: topic for topic in INPUTS["fetch"]}


def lag(partition, offset_map):
    """What the broker knows of a partition."""
    return PartitionLag("group", "in", partition, 0, 100, 100, offset_map, 5)


def at_hand(partition):
    """What a worker answers of it."""
    return {"topic": "in", "partition": partition, "fetched": 9, "queued": 2, "paused": "", "records": []}


def test_each_partition_has_the_answer_of_its_owner():
    """One that nobody answered for has none: it has no worker, or one that hangs, and that is what to see."""
    answers = [
        {"worker": "fetch-0", "partitions": [at_hand(0)]},
        {"worker": "fetch-1", "partitions": [at_hand(2)]},
    ]
    rows = combine([lag(number, OffsetMap(1, 1)) for number in range(3)], answers, {("in", 1): 5})
    assert ["fetch-0", None, "fetch-1"] == [row.owner for row in rows]
    assert [None, 5, None] == [row.oldest_ms for row in rows]


@pytest.mark.parametrize(
    ("offset_map", "characters"),
    [(None, 0), (OffsetMap(4, 4), 0), (OffsetMap(4, 4, (), readable=False), 0), (OffsetMap(4, 9, (4,)), 12)],
)
def test_the_size_of_the_offset_map_is_told(offset_map, characters):
    """It has a limit, and one that comes near it is a record that has been stuck for long."""
    (row,) = combine([lag(0, offset_map)], [], {})
    assert characters == row.map_characters


def test_a_place_is_read():
    """With or without an offset."""
    name = next(iter(TOPICS))
    assert (name, 3, 8914) == place_of(f"{name}/3/8914", TOPICS, with_offset=True)
    assert (name, 3, 0) == place_of(f"{name}/3", TOPICS, with_offset=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing/3/1",
        "{}",
        "{}/3",
        "{}/x/1",
        "{}/3/-1",
        "{}/3/1/2",
        "{}/3/²",
        "{}/3/٣",
        "{}/3/" + "9" * 20,
        "{}/9999999999/1",
    ],
)
def test_a_place_that_can_not_be_is_refused_with_the_form_and_the_topics(text):
    """An order to the wrong record would be obeyed."""
    name = next(iter(TOPICS))
    with pytest.raises(ValueError, match=f"TOPIC/PARTITION/OFFSET; the topics are {name}"):
        place_of(text.format(name), TOPICS, with_offset=True)
