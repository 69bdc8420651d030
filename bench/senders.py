"""Clients that send, each under the same load; `bench.clients` compares what they give.

`python -m bench.senders NAME` is the process of one of them: so its CPU time is its own, and no other's event loop or
thread is in its way. What it is to do comes as JSON on its input, what it found goes as JSON to its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import aiokafka
import faust
import psutil
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.latency import Latencies

PARTITIONS = 6
MESSAGE_BYTES = 1024
VALUE = random.Random(1).randbytes(MESSAGE_BYTES)  # noqa: S311  # no secret; it must not compress
LINGER_MS = 1
BATCH_BYTES = 128 << 10
"""Of aiokafka and Faust, whose 16 KB are for other times; librdkafka's default is larger."""
POLL_S = 0.001
CALL_S = 15.0
WARM_UP_S = 1.0
ACKS = "all"
clock = time.perf_counter


class Load(NamedTuple):
    """What a client has to send.

    Attributes:
        seconds: for how long.
        in_flight: most messages sent and not acknowledged.
        rate_per_s: messages due a second; 0 for as fast as the bound lets them go.
    """

    seconds: float
    in_flight: int
    rate_per_s: float = 0.0

    def due_s(self, number: int, begun_s: float, now_s: float) -> float:
        """When a message is due; from then on its latency counts, whether the client took it at once or not."""
        return begun_s + number / self.rate_per_s if self.rate_per_s else now_s


@dataclass
class Seen:
    """Books of one run; times in seconds."""

    sent: int = 0
    in_flight: int = 0
    acknowledged_s: list[float] = field(default_factory=list)
    committed_s: list[float] = field(default_factory=list)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    _uncommitted: list[float] = field(default_factory=list)

    def begin(self, due_s: float) -> None:
        """A message is with the client."""
        self.sent += 1
        self.in_flight += 1
        self._uncommitted.append(due_s)

    def acknowledge(self, due_s: float, error: object = None, message: object = None) -> None:
        """The broker has it."""
        del message
        if error is not None:
            raise RuntimeError(f"not delivered: {error}")
        self.in_flight -= 1
        self.acknowledged_s.append(clock() - due_s)
        self.room.set()

    def acknowledge_future(self, due_s: float, future: asyncio.Future[Any]) -> None:
        """The same as a callback of a future."""
        self.acknowledge(due_s, future.exception())

    def commit(self) -> None:
        """A transaction has ended well: its messages are visible."""
        now_s = clock()
        self.committed_s += [now_s - due_s for due_s in self._uncommitted]
        self._uncommitted.clear()


@dataclass(frozen=True, slots=True)
class Sent:
    """What one run gave.

    Attributes:
        rate_per_s: messages acknowledged a second; of a transactional client, committed.
        asked_per_s: rate that was asked for; 0 for as fast as it goes.
        acknowledged: latencies to the broker's answer.
        committed: latencies to the end of the transaction; None without transactions.
        client_cpu_s: of this process, for 1,000 messages.
        broker_cpu_s: for 1,000 messages.
    """

    rate_per_s: float
    asked_per_s: float
    acknowledged: Latencies
    committed: Latencies | None
    client_cpu_s: float
    broker_cpu_s: float


class LibrdkafkaSender:
    """confluent-kafka: plain, idempotent or transactional.

    Args:
        bootstrap: host:port.
        topic: written to; its partitions in turn.
        interval_s: of transactions, each of which also carries offsets of six partitions; 0 for none.
        batch: messages handed over by one call.
        idempotent: numbered, so that a repeated request writes nothing twice; transactional clients always are.
    """

    def __init__(
        self, bootstrap: str, topic: str, *, interval_s: float = 0.0, batch: int = 1, idempotent: bool = False
    ) -> None:
        base: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 3}
        kind: dict[str, Any] = {"enable.idempotence": idempotent}
        if interval_s:
            kind = {"transactional.id": f"bench-{topic}", "retry.backoff.ms": 10}
        self._producer = Producer({**base, "acks": ACKS, "linger.ms": LINGER_MS, **kind})
        self._topic = topic
        self._interval_s = interval_s
        self._batch = batch
        # No member of a group: the broker takes the offsets all the same, at the same price.
        reader = Consumer({**base, "group.id": f"bench-{topic}"})
        self._member = reader.consumer_group_metadata()
        reader.close()
        if interval_s:
            self._producer.init_transactions(CALL_S)

    async def run(self, load: Load) -> Seen:
        """Send; blocks the loop, in which nothing else runs."""
        seen, begun_s = Seen(), clock()
        end_s = begun_s + load.seconds
        while clock() < end_s:
            if not self._interval_s:
                self._fill(load, seen, begun_s, end_s)
                self._producer.flush(CALL_S)
                break
            self._producer.begin_transaction()
            self._fill(load, seen, begun_s, min(end_s, clock() + self._interval_s))
            positions = [TopicPartition(self._topic, number, seen.sent) for number in range(PARTITIONS)]
            self._producer.send_offsets_to_transaction(positions, self._member, CALL_S)
            self._producer.commit_transaction(CALL_S)
            self._producer.poll(0)
            seen.commit()
        return seen

    def _fill(self, load: Load, seen: Seen, begun_s: float, until_s: float) -> None:
        while (now_s := clock()) < until_s:
            due_s = load.due_s(seen.sent, begun_s, now_s)
            if due_s > now_s or seen.in_flight + self._batch > load.in_flight:
                self._producer.poll(POLL_S)
                continue
            report = partial(seen.acknowledge, due_s)
            partition = seen.sent // self._batch % PARTITIONS
            if self._batch == 1:
                self._producer.produce(self._topic, VALUE, None, partition, report)
                seen.begin(due_s)
            else:
                rows = [{"value": VALUE} for _ in range(self._batch)]
                self._producer.produce_batch(self._topic, rows, partition, report)
                for _ in rows:
                    seen.begin(due_s)


class LoopSender:
    """aiokafka, and Faust above it: `send` returns a future that the acknowledgement resolves.

    Args:
        send: hands a value for a partition over.
    """

    def __init__(self, send: Callable[[int], Awaitable[Any]]) -> None:
        self._send = send

    async def run(self, load: Load) -> Seen:
        """Send until the time is up, then wait for what is under way."""
        seen, begun_s = Seen(), clock()
        while (now_s := clock()) < begun_s + load.seconds:
            due_s = load.due_s(seen.sent, begun_s, now_s)
            if seen.in_flight >= load.in_flight:
                await self._wait(seen)
            elif due_s > now_s:
                await asyncio.sleep(POLL_S)
            else:
                future = await self._send(seen.sent % PARTITIONS)
                seen.begin(due_s)
                future.add_done_callback(partial(seen.acknowledge_future, due_s))
        while seen.in_flight:
            await self._wait(seen)
        return seen

    @staticmethod
    async def _wait(seen: Seen) -> None:
        seen.room.clear()
        await asyncio.wait_for(seen.room.wait(), CALL_S)


Sender = LibrdkafkaSender | LoopSender


@contextlib.asynccontextmanager
async def _librdkafka(bootstrap: str, topic: str, **options: Any) -> AsyncIterator[Sender]:
    yield LibrdkafkaSender(bootstrap, topic, **options)


@contextlib.asynccontextmanager
async def _aiokafka(bootstrap: str, topic: str, *, idempotent: bool = False) -> AsyncIterator[Sender]:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks=ACKS,
        enable_idempotence=idempotent,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    await producer.start()
    try:
        yield LoopSender(lambda partition: producer.send(topic, VALUE, partition=partition))
    finally:
        await producer.stop()


@contextlib.asynccontextmanager
async def _faust(bootstrap: str, topic: str) -> AsyncIterator[Sender]:
    app = faust.App(
        f"bench-{topic}",
        broker=f"kafka://{bootstrap}",
        producer_acks=-1,
        producer_linger=LINGER_MS / 1000,
        producer_max_batch_size=BATCH_BYTES,
        topic_allow_declare=False,
    )
    channel = app.topic(topic, value_type=bytes, value_serializer="raw")
    try:
        yield LoopSender(lambda partition: channel.send(value=VALUE, partition=partition))
    finally:
        await app.producer.stop()


def _clients() -> Iterator[tuple[str, Callable[[str, str], contextlib.AbstractAsyncContextManager[Sender]]]]:
    yield "Faust's send", _faust
    yield "aiokafka", _aiokafka
    yield "aiokafka, idempotent", partial(_aiokafka, idempotent=True)
    yield "confluent-kafka", _librdkafka
    yield "confluent-kafka, idempotent", partial(_librdkafka, idempotent=True)
    for interval_ms in (10, 50, 100, 250, 500):
        name = f"confluent-kafka, transactional, {interval_ms} ms"
        yield name, partial(_librdkafka, interval_s=interval_ms / 1000)
    yield "the same, 250 ms, batches of 100", partial(_librdkafka, interval_s=0.25, batch=100)


CLIENTS = dict(_clients())
BASELINE = next(iter(CLIENTS))


async def measure(
    name: str, *, bootstrap: str, topic: str, broker_pid: int, load: Load, goal_per_s: float
) -> list[Sent]:
    """Run a client twice: as fast as the bound on what is in flight lets it go, and at a fixed rate.

    The fixed rate is the goal, or half of what the client reached where that is less.

    Args:
        name: one of `CLIENTS`.
        bootstrap: host:port.
        topic: with `PARTITIONS` partitions.
        broker_pid: its CPU time is counted.
        load: seconds and bound of each run.
        goal_per_s: messages a second.
    """
    broker = psutil.Process(broker_pid)
    async with CLIENTS[name](bootstrap, topic) as sender:
        await sender.run(load._replace(seconds=min(WARM_UP_S, load.seconds)))
        fastest = await _timed(sender, load, broker)
        fixed = load._replace(rate_per_s=min(goal_per_s, fastest.rate_per_s / 2))
        return [fastest, await _timed(sender, fixed, broker)]


async def _timed(sender: Sender, load: Load, broker: psutil.Process) -> Sent:
    broker_s, cpu_s, begun_s = sum(broker.cpu_times()[:2]), time.process_time(), clock()
    seen = await sender.run(load)
    seconds = clock() - begun_s
    cpu_s, broker_s = time.process_time() - cpu_s, sum(broker.cpu_times()[:2]) - broker_s
    return Sent(
        rate_per_s=seen.sent / seconds,
        asked_per_s=load.rate_per_s,
        acknowledged=Latencies.of(seen.acknowledged_s),
        committed=Latencies.of(seen.committed_s) if seen.committed_s else None,
        client_cpu_s=1000 * cpu_s / seen.sent,
        broker_cpu_s=1000 * broker_s / seen.sent,
    )


def main() -> None:
    """Be the process of one client."""
    told = json.load(sys.stdin)
    load = Load(*told.pop("load"))
    json.dump([asdict(row) for row in uvloop.run(measure(sys.argv[1], load=load, **told))], sys.stdout)


if __name__ == "__main__":
    main()
