"""Tasks on a real broker: all of a call or none, and the promise of 202."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import string
from dataclasses import replace

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.api import server
from pipeline.config import Api, Settings, Worker
from pipeline.contracts.codec import load_codec
from pipeline.delivery.transactions import ReplacedError
from pipeline.errors import BrokerError
from pipeline.local.kafka import LocalBroker
from pipeline.ops.task_writer import TaskWriter
from pipeline.tasks import records
from pipeline.tasks.model import Limits, WrittenTask
from pipeline.tasks.records import Defaults, wish_of
from pipeline.topics import TASKS
from pipeline.web.partition import partition_for
from tests.chaos.ledger import Reader

CODECS = load_codec()
PARTITIONS = 4


@pytest.fixture
def writer(broker):
    """Open writers: `writer("id")`."""
    return lambda name: TaskWriter({"bootstrap.servers": broker.bootstrap}, CODECS, name, 10.0)


@pytest.fixture
def topic(topic_factory, monkeypatch):
    """A topic in the place of the one for tasks."""
    name = topic_factory(partitions=PARTITIONS, max_message_bytes=1_200)
    monkeypatch.setattr(records, "TASKS", replace(TASKS, name=name))
    return name


def wishes(*urls):
    """Tasks of the default crawl."""
    return [wish_of(WrittenTask(url=url), Defaults("default", "test"), Limits()) for url in urls]


def urls_in(rows):
    """Return what was written."""
    return sorted(CODECS.decode(TASKS.subject, row.value)["url"] for row in rows)


def test_a_batch_is_there_as_a_whole_where_its_domains_are_read(writer, topic, reader):
    """The key decides who owns a domain; all become visible together."""
    urls = sorted(f"http://www.h{number}.test/" for number in range(50))
    writer(topic).write(wishes(*urls))
    rows = reader(topic).read_to_end()
    assert urls == urls_in(rows)
    assert [partition_for(row.key, PARTITIONS) for row in rows] == [row.partition for row in rows]


def test_of_a_batch_that_the_broker_refuses_in_part_nothing_is_there(writer, topic, reader):
    """Half of it would have to be searched for what is missing; the next batch goes on all the same."""
    made = writer(topic)
    # Six bits a character, so that compression leaves more than the topic takes.
    noise = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=2_000))
    with pytest.raises(BrokerError):
        made.write(wishes(*(f"http://h{number}.test/" for number in range(20)), f"http://large.test/{noise}"))
    assert [] == reader(topic).read_to_end()
    made.write(wishes("http://a.test/"))
    assert ["http://a.test/"] == urls_in(reader(topic).read_to_end())


def test_a_second_writer_of_a_name_ends_the_first(writer, topic, reader):
    """A process that was believed dead must not write into the work of its successor."""
    first, second = writer(topic), writer(topic)
    first.write(wishes("http://a.test/"))
    second.write(wishes("http://b.test/"))
    with pytest.raises(ReplacedError):
        first.write(wishes("http://c.test/"))
    assert ["http://a.test/", "http://b.test/"] == urls_in(reader(topic).read_to_end())


class Nobody:
    """Explains nothing."""

    def url(self, url, crawl=None):
        raise BrokerError("nobody")

    domain = url


@contextlib.asynccontextmanager
async def served(writer, **api):
    """Serve the API for one user; yields a client with the token."""
    users = {"vera": {"rate": "vip", "tokens": ["env:VERA"]}}
    settings = Settings(api=Api(port=0, users=users, **api), worker=Worker(metrics_port=0))
    ports = asyncio.Queue()
    running = asyncio.create_task(server.run(settings, writer, Nobody(), ports.put_nowait))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{await ports.get()}", timeout=20) as client:
        client.headers["Authorization"] = "Bearer the-token-of-vera"
        yield client
    running.cancel()
    await asyncio.wait([running])


async def test_what_the_api_has_accepted_is_on_the_broker(writer, topic, reader, monkeypatch):
    """202 is a promise, of every request of many at once."""
    monkeypatch.setenv("VERA", "the-token-of-vera")
    urls = sorted(f"http://h{number}.test/" for number in range(60))
    async with served(writer(topic)) as client:
        answers = await asyncio.gather(*(client.post("/v1/tasks", json={"url": url}) for url in urls))
        found = urls_in(await asyncio.to_thread(reader(topic).read_to_end))
    assert [202] * 60 == [answer.status_code for answer in answers]
    assert urls == found


@pytest.mark.chaos
async def test_while_the_broker_does_not_answer_nothing_is_accepted(tmp_path, monkeypatch):
    """The sender is told when to come back; afterwards tasks are accepted again without anybody's help."""
    monkeypatch.setenv("VERA", "the-token-of-vera")
    with LocalBroker(tmp_path) as broker:
        options = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(options)
        await asyncio.to_thread(admin.create_topics([NewTopic(TASKS.name, PARTITIONS, 1)])[TASKS.name].result, 10)
        writer = TaskWriter(options, CODECS, "headrace-api-0", 10.0)
        await asyncio.to_thread(writer.open)
        async with served(writer, request_s=1.0) as client:
            os.kill(broker.pid, signal.SIGSTOP)
            refused = await client.post("/v1/tasks", json={"url": "http://a.test/"})
            os.kill(broker.pid, signal.SIGCONT)
            tries = 0
            while (await client.post("/v1/tasks", json={"url": "http://b.test/"})).status_code != 202:
                tries += 1
                assert tries < 15
            reader = Reader(broker.bootstrap, TASKS.name, "read_committed")
            found = urls_in(await asyncio.to_thread(reader.read_to_end))
            reader.close()
    assert (503, "5") == (refused.status_code, refused.headers["retry-after"])
    assert "http://b.test/" in found
