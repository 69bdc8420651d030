from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.partition import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "java_int"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_gives_the_values_that_kafka_tests_itself_by(key, java_int):
    """From UtilsTest of Kafka's own clients: other producers and tools must find our records."""
    assert java_int & 0xFFFFFFFF == murmur2(key)


@pytest.mark.parametrize("key", [b"", None])
def test_a_record_without_a_key_is_refused(key):
    """It would belong to no domain, so two workers could ask one site at once."""
    with pytest.raises(ValueError, match="without a key"):
        partition_for(key, 6)


@pytest.mark.parametrize("partitions", [0, -1])
def test_a_topic_has_at_least_one_partition(partitions):
    """A negative modulus would give a negative partition, which means 'any' to producers."""
    with pytest.raises(ValueError, match="at least 1"):
        partition_for(b"a.example", partitions)


@given(st.binary(min_size=1, max_size=64), st.integers(1, 1_024))
def test_every_key_has_one_partition_of_the_topic(key, partitions):
    """A number outside the topic would be refused by the broker."""
    assert 0 <= partition_for(key, partitions) < partitions
