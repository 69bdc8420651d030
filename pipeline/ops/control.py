"""Questions and orders of people to running workers, by way of the broker: whoever may use its topics may ask.

A question is one record on `crawl.control.v1`; every worker of the stage answers with one on
`crawl.control.answers.v1`. Neither costs anything while nobody asks, and a worker that does not answer tells
something by that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from faust.types import TP

from pipeline.contracts.codec import Codecs
from pipeline.delivery.open_transactions import MAX_OFFSET, MAX_PARTITION, read_number
from pipeline.delivery.ordered import OrderedRunner
from pipeline.delivery.pending import PendingPartition
from pipeline.delivery.runner import Runner
from pipeline.errors import BrokerError, InputError
from pipeline.topics import CONTROL, CONTROL_ANSWERS, Topic

log = logging.getLogger(__name__)

T = TypeVar("T")
Question = Callable[[Any, Mapping[str, Any], float], Mapping[str, Any]]
"""(logic of a partition, argument, seconds since the epoch) → answer, as JSON takes it."""

GROUP = "headrace-control"
POLL_S = 0.5
CALL_TIMEOUT_S = 5.0
LOOP_LIMIT_S = 2.0
ASK_LIMIT_S = 5.0
"""A question waits for the round that is under way."""
VALID_MS = 60_000
"""An order that is older is not obeyed: its asker has long gone."""
ORDERS = {"RELEASE": "begun anew", "GIVE_UP": "made a dead letter", "RESUME": "resumed"}


class ControlListener:
    """Answers for one worker, from a thread of its own.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        stage: name of the stage.
        name: of the worker, the stage's included.
        runner: whose work is asked for; it need not have started.
        questions: command → what an ordered stage's partition answers to its argument, at a time.
        control: topic of the questions.
        answers: topic of the answers.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        codecs: Codecs,
        *,
        stage: str,
        name: str,
        runner: Runner,
        questions: Mapping[str, Question] | None = None,
        control: str = CONTROL.name,
        answers: str = CONTROL_ANSWERS.name,
    ) -> None:
        self._options = dict(options)
        self._decode = codecs.decoder(CONTROL.subject)
        self._encode = codecs.encoder(CONTROL_ANSWERS.subject)
        self._stage = stage
        self._name = name
        self._runner = runner
        self._questions = questions or {}
        self._control = control
        self._answers = answers
        self._thread = threading.Thread(target=self._follow, name="control", daemon=True)

    def start(self) -> None:
        """Begin to listen; ends with the process."""
        self._thread.start()

    def _follow(self) -> None:
        consumer = Consumer(
            {**self._options, "group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "latest"}
        )
        consumer.assign([TopicPartition(self._control, 0, OFFSET_END)])
        while True:
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                log.warning("control: %s", message.error())
                continue
            try:
                question = self._decode(message.value())
            except InputError as exc:
                log.warning("control: a record that can't be read: %s", exc)
                continue
            if question["stage"] == self._stage and question["asked_at_ms"] > time.time() * 1000 - VALID_MS:
                self._answer(question)

    def _answer(self, question: Mapping[str, Any]) -> None:
        command = question["command"]
        done, complaint = False, self._runner.complaint()
        partitions: list[PendingPartition] = []
        told: dict[int, Mapping[str, Any]] = {}
        if self._runner.started:
            try:
                if command in self._questions:
                    told = self._in_loop(self._ask(question), ASK_LIMIT_S)
                else:
                    work = self._pending() if command == "PENDING" else self._obey(question)
                    done, partitions = self._in_loop(work, LOOP_LIMIT_S)
            except concurrent.futures.TimeoutError:
                complaint = complaint or "the event loop or its thread is busy"
            except Exception as exc:  # a question must not end a worker
                log.exception("control: %s", command)
                complaint = f"it could not answer: {exc!r}"
        else:
            complaint = complaint or "it has not started yet"
        if done:
            log.warning(
                "by order: %s/%d/%d is %s",
                question["topic"], question["partition"], question["offset"], ORDERS[command],
            )  # fmt: skip
        now_ms = int(time.time() * 1000)
        answer = {
            "id": question["id"], "worker": self._name, "answered_at_ms": now_ms, "done": done,
            "complaint": complaint, "partitions": [_row(partition, now_ms) for partition in partitions],
            "told": [{"partition": number, "answer": json.dumps(answer)} for number, answer in sorted(told.items())],
        }  # fmt: skip
        try:
            _write(self._options, self._answers, self._encode(answer))
        except BrokerError as exc:
            log.warning("control: %s", exc)

    def _in_loop(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """Run in the worker's event loop what must not meet the work that is under way."""
        return asyncio.run_coroutine_threadsafe(work, self._runner.loop).result(limit_s)

    async def _ask(self, question: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        runner = self._runner
        if not isinstance(runner, OrderedRunner):
            return {}
        argument = json.loads(question["argument"])
        ask = self._questions[question["command"]]
        # Of all partitions only TOP is asked for.
        partition = None if question["command"] == "TOP" else question["partition"]
        return await runner.ask(lambda logic: ask(logic, argument, time.time()), partition)

    async def _pending(self) -> tuple[bool, list[PendingPartition]]:
        return False, self._runner.pending()

    async def _obey(self, question: Mapping[str, Any]) -> tuple[bool, list[PendingPartition]]:
        tp = TP(question["topic"], question["partition"])
        if question["command"] == "RESUME":
            return self._runner.resume(tp), []
        if question["command"] in {"RELEASE", "GIVE_UP"}:
            return self._runner.release(tp, question["offset"], give_up=question["command"] == "GIVE_UP"), []
        return False, []


def _row(partition: PendingPartition, now_ms: int) -> dict[str, Any]:
    records = [
        {"offset": record.offset, "since_ms": now_ms - int(record.since_s * 1000), "attempts": record.attempts}
        for record in partition.records
    ]
    return {**partition._asdict(), "records": records}


class ControlClient:
    """Asks the workers of a stage.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        control: topic of the questions.
        answers: topic of the answers.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        codecs: Codecs,
        *,
        control: str = CONTROL.name,
        answers: str = CONTROL_ANSWERS.name,
    ) -> None:
        self._options = dict(options)
        self._encode = codecs.encoder(CONTROL.subject)
        self._decode: Callable[[bytes | None], Mapping[str, Any]] = codecs.decoder(CONTROL_ANSWERS.subject)
        self._control = control
        self._answers = answers

    def ask(
        self, command: str, stage: str, place: tuple[str, int, int], wait_s: float, argument: str = ""
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the answers as they come, for `wait_s`; whoever has heard enough stops listening.

        Args:
            command: of the contract.
            stage: whose workers are asked.
            place: topic, partition and offset that are meant; ("", 0, 0) for none.
            wait_s: how long answers are waited for.
            argument: JSON, of commands that have one.

        Raises:
            BrokerError: the question could not be written.
        """
        topic, partition, offset = place
        question = {
            "id": str(uuid.uuid4()), "command": command, "stage": stage, "topic": topic, "partition": partition,
            "offset": offset, "asked_at_ms": int(time.time() * 1000), "argument": argument,
        }  # fmt: skip
        consumer = Consumer({**self._options, "group.id": GROUP, "enable.auto.commit": False})
        try:
            try:
                _, end = consumer.get_watermark_offsets(TopicPartition(self._answers, 0), timeout=CALL_TIMEOUT_S)
            except KafkaException as exc:
                raise BrokerError(f"{self._answers}: {exc.args[0]}") from exc
            consumer.assign([TopicPartition(self._answers, 0, end)])
            _write(self._options, self._control, self._encode(question))
            deadline = time.monotonic() + wait_s
            while (left_s := deadline - time.monotonic()) > 0:
                message = consumer.poll(min(left_s, POLL_S))
                if message is None or message.error() is not None:
                    continue
                try:
                    answer = self._decode(message.value())
                except InputError as exc:
                    log.warning("%s/0/%s is no answer: %s", self._answers, message.offset(), exc)
                    continue
                if answer["id"] == question["id"]:
                    yield answer
        finally:
            consumer.close()


def _write(options: Mapping[str, str], topic: str, value: bytes) -> None:
    """Write one record to partition 0.

    Raises:
        BrokerError: it is not there.
    """
    refused: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            refused.append(error)

    # No idempotence: to be given a producer id takes half a second. No retries either, so that an order is given once
    # at most; whoever hears nothing asks again.
    producer = Producer({**options, "enable.idempotence": False, "retries": 0, "linger.ms": 0})
    producer.produce(topic, value, partition=0, on_delivery=report)
    if producer.flush(CALL_TIMEOUT_S) or refused:
        raise BrokerError(f"{topic} could not be written: {refused or 'no answer'}")


def place_of(text: str, topics: Mapping[str, Topic], *, with_offset: bool) -> tuple[str, int, int]:
    """Read TOPIC/PARTITION or TOPIC/PARTITION/OFFSET.

    Raises:
        ValueError: it is not of that form, or no such topic; says what is right.
    """
    form = "TOPIC/PARTITION/OFFSET" if with_offset else "TOPIC/PARTITION"
    parts = text.split("/") if with_offset else [*text.split("/"), "0"]
    if len(parts) == 3 and parts[0] in topics:
        partition, offset = read_number(parts[1], MAX_PARTITION), read_number(parts[2], MAX_OFFSET)
        if partition is not None and offset is not None:
            return parts[0], partition, offset
    raise ValueError(f"{text!r} is not {form}; the topics are {', '.join(topics)}")
