"""What a transaction of the delivery core costs, by the number of output partitions it touches.

Its identity is that of a real member of a group, so that the broker checks it as in a worker. Spaced transactions show
the latency of one; back to back the next one meets the markers of the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # re-exported without saying so
from faust.types import TP

from bench.latency import Latencies
from pipeline.delivery.api import Output
from pipeline.delivery.identity import Identity, check_layout
from pipeline.delivery.offsets import OffsetMap
from pipeline.delivery.transactions import TransactionalProducer, Verdict, Work

TOUCHED = (1, 4, 12, 48)
RECORDS = 100
RECORD_BYTES = 1_024
INPUT_PARTITIONS = 12
SPACE_S = 0.02
SESSION_S = 30.0
TIMEOUT_S = 30.0
REACH_S = 10.0
WARM_UP = 10


@dataclass(frozen=True, slots=True)
class CommitCost:
    """Transactions of one kind.

    Attributes:
        touched: output partitions of each.
        spaced: latencies from begin to committed, with a pause between them, seconds.
        broker_cpu_s: of the broker, for each of those.
        back_to_back: latencies without a pause.
        per_s: transactions a second without a pause.
        broker_cores: CPU seconds of the broker a second, without a pause.
    """

    touched: int
    spaced: Latencies
    broker_cpu_s: float
    back_to_back: Latencies
    per_s: float
    broker_cores: float


async def measure(bootstrap: str, broker_pid: int, transactions: int, touched: Sequence[int]) -> list[CommitCost]:
    """Run so many transactions spaced, and as many back to back, for each number of partitions.

    Args:
        bootstrap: host:port.
        broker_pid: its CPU time is counted.
        transactions: of each kind.
        touched: numbers of output partitions.
    """
    check_layout()
    source, out = "bench-commit-in", "bench-commit-out"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(source, INPUT_PARTITIONS, 1), NewTopic(out, max(touched), 1)]
    for made in admin.create_topics(topics).values():
        made.result(REACH_S)
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id="bench-commit", enable_auto_commit=False,
        session_timeout_ms=int(SESSION_S * 1000),
    )  # fmt: skip
    await consumer.start()
    try:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        coordinator = consumer._coordinator  # noqa: SLF001  # nothing public tells the generation
        identity = Identity("bench-commit", coordinator.generation, coordinator.member_id)
        producer = TransactionalProducer({"bootstrap.servers": bootstrap}, "bench-commit", TIMEOUT_S, "none")
        loop = asyncio.get_running_loop()  # the member's heartbeats go on in it
        await loop.run_in_executor(None, producer.open)
        args = (producer, identity, psutil.Process(broker_pid), transactions)
        return [await loop.run_in_executor(None, _cost, *args, number) for number in touched]
    finally:
        await consumer.stop()
        for gone in admin.delete_topics([source, out]).values():
            gone.result(REACH_S)


def _cost(
    producer: TransactionalProducer, identity: Identity, broker: psutil.Process, transactions: int, touched: int
) -> CommitCost:
    value = bytes(RECORD_BYTES)
    outputs = [Output("bench-commit-out", value, b"k", number % touched) for number in range(RECORDS)]
    number = 0

    def run(count: int, space_s: float) -> tuple[list[float], float, float]:
        """Return latencies, seconds in all and CPU seconds of the broker."""
        nonlocal number
        latencies: list[float] = []
        broker_s, begun_s = sum(broker.cpu_times()[:2]), time.perf_counter()
        for _ in range(count):
            number += 1
            positions = {TP("bench-commit-in", p): OffsetMap(number, number) for p in range(INPUT_PARTITIONS)}
            before_s = time.perf_counter()
            verdict, _ = producer.run(Work(outputs, {}, positions, identity))
            latencies.append(time.perf_counter() - before_s)
            assert verdict is Verdict.COMMITTED
            time.sleep(space_s)
        return latencies, time.perf_counter() - begun_s, sum(broker.cpu_times()[:2]) - broker_s

    run(WARM_UP, SPACE_S)
    spaced, _, broker_s = run(transactions, SPACE_S)
    close, close_s, close_broker_s = run(transactions, 0.0)
    return CommitCost(
        touched, Latencies.of(spaced), broker_s / transactions,
        Latencies.of(close), transactions / close_s, close_broker_s / close_s,
    )  # fmt: skip
