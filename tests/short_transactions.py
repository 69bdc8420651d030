"""A cluster on which a transaction is soon overdue, as the pipeline and its commands are told of it."""

from __future__ import annotations

from pipeline.config import Settings, client_options


class ShortTransactions:
    """Settings, client options and environment of one broker.

    Args:
        broker: runs.
        partitions: of every topic.
        timeout_s: of a transaction.
    """

    def __init__(self, broker, partitions, timeout_s):
        self.settings = Settings(
            broker={"bootstrap": broker.bootstrap},
            topics={"partitions": partitions},
            delivery={"transaction_timeout_s": timeout_s},
        )
        self.options = client_options(self.settings.broker)
        self.environment = {
            "HEADRACE_BROKER__BOOTSTRAP": broker.bootstrap,
            "HEADRACE_TOPICS__PARTITIONS": str(partitions),
            "HEADRACE_DELIVERY__TRANSACTION_TIMEOUT_S": str(timeout_s),
        }
