"""Requests about transactions that no Python client offers, in the form that aiokafka's connections send.

Fields and versions after Kafka's own message definitions (`DescribeProducersRequest.json` and its like, Apache Kafka
4.3.1); what each is for: KIP-664, the markers themselves KIP-98. All are flexible versions (KIP-482): compact strings
and arrays, and tagged fields, of which there are none, at the end of each structure. Kafka 3.0 and later know all four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

NO_TAGS: Mapping[int, bytes] = {}
TAGS = ("tags", TaggedFields)
TEXT = CompactString("utf-8")
PLACES = CompactArray(("name", TEXT), ("partitions", CompactArray(Int32)), TAGS)

Partitions = Mapping[str, Sequence[int]]
"""Topic → partition numbers."""


def _places(partitions: Partitions) -> list[tuple[str, list[int], Mapping[int, bytes]]]:
    return [(topic, list(numbers), NO_TAGS) for topic, numbers in partitions.items()]


class DescribeProducersResponseV0(Response):
    """Producers that wrote to partitions lately, and where their open transaction begins (-1: none is open)."""

    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", TEXT),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                TAGS,
                            ),
                        ),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeProducersRequestV0(RequestStruct):
    """The wire form of `DescribeProducersRequest`."""

    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeProducersResponseV0
    SCHEMA = Schema(("topics", PLACES), TAGS)


class DescribeProducersRequest(Request[DescribeProducersRequestV0]):
    """Ask a broker for the producers of partitions that it leads.

    Args:
        partitions: which.
    """

    API_KEY = 61

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def build(self, request_struct_class: type[DescribeProducersRequestV0]) -> DescribeProducersRequestV0:
        """Return the wire form."""
        return request_struct_class(_places(self._partitions), NO_TAGS)


class ListTransactionsResponseV0(Response):
    """Transactional ids that a coordinator keeps, their producer ids and states."""

    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(TEXT)),
        (
            "transaction_states",
            CompactArray(("transactional_id", TEXT), ("producer_id", Int64), ("transaction_state", TEXT), TAGS),
        ),
        TAGS,
    )


class ListTransactionsRequestV0(RequestStruct):
    """The wire form of `ListTransactionsRequest`."""

    API_KEY = 66
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ListTransactionsResponseV0
    SCHEMA = Schema(("state_filters", CompactArray(TEXT)), ("producer_id_filters", CompactArray(Int64)), TAGS)


class ListTransactionsRequest(Request[ListTransactionsRequestV0]):
    """Ask a broker, as a coordinator, for the transactional ids of producers; it leaves out what the user may not see.

    Args:
        producer_ids: of interest.
    """

    API_KEY = 66

    def __init__(self, producer_ids: Sequence[int]) -> None:
        self._producer_ids = producer_ids

    def build(self, request_struct_class: type[ListTransactionsRequestV0]) -> ListTransactionsRequestV0:
        """Return the wire form."""
        return request_struct_class([], list(self._producer_ids), NO_TAGS)


class DescribeTransactionsResponseV0(Response):
    """What the coordinator knows: while a transaction ends, `topics` are those whose markers are still missing."""

    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", TEXT),
                ("transaction_state", TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", PLACES),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeTransactionsRequestV0(RequestStruct):
    """The wire form of `DescribeTransactionsRequest`."""

    API_KEY = 65
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeTransactionsResponseV0
    SCHEMA = Schema(("transactional_ids", CompactArray(TEXT)), TAGS)


class DescribeTransactionsRequest(Request[DescribeTransactionsRequestV0]):
    """Ask the coordinator of transactional ids for their transactions.

    Args:
        transactional_ids: all of the same coordinator.
    """

    API_KEY = 65

    def __init__(self, transactional_ids: Sequence[str]) -> None:
        self._transactional_ids = transactional_ids

    def build(self, request_struct_class: type[DescribeTransactionsRequestV0]) -> DescribeTransactionsRequestV0:
        """Return the wire form."""
        return request_struct_class(list(self._transactional_ids), NO_TAGS)


class WriteTxnMarkersResponseV1(Response):
    """Whether each marker was written."""

    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", TEXT),
                        ("partitions", CompactArray(("partition", Int32), ("error_code", Int16), TAGS)),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class WriteTxnMarkersRequestV1(RequestStruct):
    """The wire form of `AbortMarkersRequest`."""

    API_KEY = 27
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = WriteTxnMarkersResponseV1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("transaction_result", Boolean),
                ("topics", PLACES),
                ("coordinator_epoch", Int32),
                TAGS,
            ),
        ),
        TAGS,
    )


class AbortMarkersRequest(Request[WriteTxnMarkersRequestV1]):
    """Ask the leader of a partition to end a producer's transaction there, as aborted.

    Args:
        topic: its name.
        partition: number.
        producer_id: of the transaction.
        producer_epoch: that the partition has; an older one is refused.
        coordinator_epoch: that the partition has, not negative; an older one is refused.
    """

    API_KEY = 27

    def __init__(
        self, topic: str, partition: int, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        self._marker: tuple[Any, ...] = (
            producer_id,
            producer_epoch,
            False,
            _places({topic: [partition]}),
            coordinator_epoch,
            NO_TAGS,
        )

    def build(self, request_struct_class: type[WriteTxnMarkersRequestV1]) -> WriteTxnMarkersRequestV1:
        """Return the wire form."""
        return request_struct_class([self._marker], NO_TAGS)
