"""What a worker's producer has left open where it writes, and that nobody will end.

A transaction that a broker crash leaves without its markers belongs to the producer id, and this outlives the process:
the next commit that touches the same partition ends it there as committed, so that its records appear beside the same
work done again (KIP-664). Unstable offsets tell of it only where its offsets hang, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from pipeline.config import Broker
from pipeline.delivery.cluster_client import NO_LEADER, ClusterClient, UnknownRequestError
from pipeline.delivery.open_transactions import OpenTransaction, read_coordinated, read_open
from pipeline.errors import BrokerError, ConfigurationError

log = logging.getLogger(__name__)

PAUSE_S = 0.5
SHOWN = 8


class OwnTransactions:
    """Looks for what still hangs of one transactional id.

    Args:
        broker: where the cluster is and how to log in.
        transactional_id: of the worker.
        topics: that it writes to.
    """

    def __init__(self, broker: Broker, transactional_id: str, topics: Collection[str]) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._topics = topics

    async def wait_for_end(self, limit_s: float) -> None:
        """Wait until nothing hangs; to be called after the id was taken over and before its first transaction.

        Taking over ends every transaction that the coordinator knows of, so what is still open hangs, and a person must
        end it. Where the brokers are too old to tell (before Kafka 3.0) or the user may not ask, a warning is all.

        Args:
            limit_s: how long to wait, for an answer too.

        Raises:
            BrokerError: something still hangs, or the cluster did not say.
        """
        deadline, told = time.monotonic() + limit_s, ""
        while trouble := await self._trouble():
            if time.monotonic() > deadline:
                raise BrokerError(trouble)
            if trouble != told:
                log.warning("no transaction is begun yet: %s", trouble)
                told = trouble
            await asyncio.sleep(PAUSE_S)

    async def _trouble(self) -> str:
        """Why no transaction may begin; empty where one may."""
        try:
            hanging = await self._hanging()
        except (UnknownRequestError, ConfigurationError) as exc:
            log.warning("whether an earlier transaction of %s hangs is not known: %s", self._transactional_id, exc)
            return ""
        except BrokerError as exc:
            return f"whether an earlier transaction of {self._transactional_id} hangs can't be found out: {exc}"
        if not hanging:
            return ""
        places = ", ".join("{}/{}".format(*found.place[:2]) for found in hanging[:SHOWN])
        more = f" and {len(hanging) - SHOWN} more" if len(hanging) > SHOWN else ""
        return (
            f"producer {hanging[0].producer_id} ({self._transactional_id}) has an earlier transaction open in "
            f"{places}{more}, and its next commit there would publish it beside the same work done again; `headrace "
            "doctor` tells the command that ends it"
        )

    async def _hanging(self) -> list[OpenTransaction]:
        async with ClusterClient(self._broker) as client:
            led = client.leaders(self._topics)
            if NO_LEADER in led:
                topic, (number, *_) = next(iter(led[NO_LEADER].items()))
                raise BrokerError(f"{topic}/{number}: no broker leads it")
            node = await client.transaction_coordinator(self._transactional_id)
            known = await read_coordinated(client, node, [self._transactional_id])
            return sorted(found for found in await read_open(client, led) if found.producer_id in known)
