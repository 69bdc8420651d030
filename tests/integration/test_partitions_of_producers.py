from __future__ import annotations

import pytest
from confluent_kafka import Producer

from pipeline.web.partition import partition_for

PARTITIONS = 12
REACH_S = 10.0
KEYS = [
    *("TT0731", "news.example.com", "a.example", "www.example.org"),
    *("a", "ab", "abc", "xn--e1afmkfd.xn--p1ai", "127.0.0.1", "2001:db8::1", "пример"),
    *(f"host-{n}.example" for n in range(200)),
]


@pytest.fixture
def placed(broker, topic_factory):
    """Partitions that a librdkafka producer, set as ours are, sends records with these keys to."""
    topic = topic_factory(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})

    def send(keys):
        partitions = {}
        for key in keys:
            producer.produce(
                topic, key=key.encode(), on_delivery=lambda _, sent: partitions.update({sent.key(): sent.partition()})
            )
        assert 0 == producer.flush(REACH_S)
        return [partitions[key.encode()] for key in keys]

    return send


def test_producers_place_keys_where_we_say(placed):
    """One domain, one owner: a producer that hashes otherwise splits a site between two workers."""
    assert [partition_for(key.encode(), PARTITIONS) for key in KEYS] == placed(KEYS)
