"""Which cluster this is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException

from pipeline.errors import BrokerError

CALL_TIMEOUT_S = 10.0
MARK_BYTES = 4


def cluster_mark(options: Mapping[str, str]) -> str:
    """Return eight hex digits that stand for the cluster's id.

    Offsets are unique within a cluster; with the mark they are unique among all that write to the same place.

    Args:
        options: librdkafka options of the cluster.

    Raises:
        BrokerError: the cluster does not answer.
    """
    consumer = Consumer({**options, "group.id": "headrace-cluster"})
    try:
        cluster_id: str = consumer.list_topics(timeout=CALL_TIMEOUT_S).cluster_id or ""
    except KafkaException as exc:
        raise BrokerError(f"the cluster's id can't be read: {exc.args[0]}") from exc
    finally:
        consumer.close()
    return hashlib.blake2b(cluster_id.encode(), digest_size=MARK_BYTES).hexdigest()
