from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from pipeline.api import server
from pipeline.api.app import ApiApp
from pipeline.api.bucket import Buckets
from pipeline.api.idempotency import IdempotencyKeys
from pipeline.api.messages import ProblemDocument
from pipeline.api.metrics import ApiMetrics
from pipeline.api.problems import KINDS
from pipeline.api.tokens import Tokens
from pipeline.config import Api, Settings, Worker
from pipeline.delivery.transactions import ReplacedError
from pipeline.errors import BrokerError, ConfigurationError, InputError
from pipeline.tasks.model import FIELDS, Limits
from pipeline.tasks.records import task_id

HOST = "127.0.0.1"
SECRET = "the-token-of-"
USERS = {
    name: {"rate": rate, "tokens": [f"env:{name.upper()}"]}
    for name, rate in (("gina", "guest"), ("mona", "member"), ("vera", "vip"))
}
ENVIRON = {name.upper(): f"{SECRET}{name}" for name in USERS}


class Acceptor:
    """Accepts at once, later, or never."""

    def __init__(self):
        self.accepted = []
        self.error = None
        self.held = None
        self.asked = asyncio.Event()

    def accept(self, wishes):
        future = Future()
        if self.held is not None:
            self.held.append(future)
            self.asked.set()
        elif self.error is not None:
            future.set_exception(self.error)
        else:
            self.accepted.append([wish.url for wish in wishes])
            future.set_result(None)
        return future


class Explains:
    """Knows one URL."""

    def __init__(self):
        self.error = None
        self.asked = []

    def url(self, url, crawl=None):
        self.asked.append((url, crawl))
        if self.error:
            raise self.error
        crawls = [{"crawl": "default", "state": "refused", "why": "scope", "reason": "scope", "facts": {"rule": 3}}]
        return {"url": url, "domain": "a.test", "known": True, "crawls": crawls if url == "http://a.test/" else []}

    def domain(self, name):
        if "/" in name:
            raise InputError("invalid_task", "no host", "url")
        return {"domain": name, "known": False}


class World:
    """The API on a port of the loopback, with a clock that stands still."""

    def __init__(self, **settings):
        self.settings = Api(users=USERS, **settings)
        self.acceptor = Acceptor()
        self.explains = Explains()
        self.registry = CollectorRegistry()
        self.now_s = 0.0
        self.client = None

    @contextlib.asynccontextmanager
    async def served(self):
        """Serve it."""
        clock = lambda: self.now_s  # noqa: E731
        with ThreadPoolExecutor(1) as threads:
            app = ApiApp(
                settings=self.settings,
                limits=Limits(),
                crawl="default",
                tokens=Tokens(self.settings.users, ENVIRON),
                buckets=Buckets(self.settings.classes, clock),
                keys=IdempotencyKeys(10_000, 60.0, clock),
                acceptor=self.acceptor,
                explains=self.explains,
                threads=threads,
                metrics=ApiMetrics(self.registry),
                pages=server._pages(self.settings),
            )
            runner = web.AppRunner(app.app, access_log=None, auto_decompress=False, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, HOST, 0).start()
            port = runner.addresses[0][1]
            async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=10) as self.client:
                yield self
            await runner.cleanup()

    async def submit(self, tasks, user="vera", **headers):
        """Send tasks: what is not bytes is written as JSON."""
        content = tasks if isinstance(tasks, bytes) else json.dumps(tasks).encode()
        fields = {"Authorization": f"Bearer {SECRET}{user}", "Content-Type": "application/json"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post("/v1/tasks", content=content, headers=fields)

    async def ask(self, path, user="vera", **query):
        """Ask with a user's token."""
        return await self.client.get(path, params=query or None, headers={"Authorization": f"Bearer {SECRET}{user}"})


@pytest.fixture
async def world():
    """The API with the defaults."""
    async with World().served() as made:
        yield made


def problem(answer, kind):
    """Check the form of a refusal and return it."""
    status, title = KINDS[kind]
    assert (status, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    document = ProblemDocument.model_validate_json(answer.content)
    assert (f"/docs#{kind}", title, status) == (document.type, document.title, document.status)
    return document


async def test_one_task_is_accepted_and_says_where_its_status_is(world):
    """202 with the id that the same wish will always have."""
    answer = await world.submit({"url": "HTTP://A.test/#top"})
    assert 202 == answer.status_code
    [task] = answer.json()["tasks"]
    assert (task_id("default", "http://a.test/"), "http://a.test/", "default") == (
        task["id"], task["url"], task["crawl"],
    )  # fmt: skip
    assert task["status"] == answer.headers["location"]
    assert [["http://a.test/"]] == world.acceptor.accepted
    status = await world.ask(task["status"])
    assert {
        "id": task["id"], "crawl": "default", "url": "http://a.test/",
        "state": "refused", "why": "scope", "reason": "scope",
    } == status.json()  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b'[{"url": "http://a.test/"}, {"url": "http://b.test/", "crawl": "c"}, {"url": "http://a.test"}]',
        b'{"url": "http://a.test/"}\n{"url": "http://b.test/", "crawl": "c"}\n{"url": "http://a.test"}\n',
    ],
)
async def test_many_tasks_are_one_batch(world, body):
    """As an array, or as JSON lines; the same task twice is one."""
    answer = await world.submit(body)
    assert 202 == answer.status_code
    assert [["http://a.test/", "http://b.test/"]] == world.acceptor.accepted
    assert (["default", "c"], 1) == ([task["crawl"] for task in answer.json()["tasks"]], answer.json()["repeated"])


async def test_a_task_is_taken_back(world):
    """Recurring work would go on for ever."""
    wishes = []
    accept = world.acceptor.accept
    world.acceptor.accept = lambda given: wishes.extend(given) or accept(given)
    headers = {"Authorization": f"Bearer {SECRET}gina"}
    answer = await world.client.delete("/v1/tasks", params={"url": "HTTP://a.test", "crawl": "c"}, headers=headers)
    assert (202, "http://a.test/") == (answer.status_code, answer.json()["tasks"][0]["url"])
    assert [("http://a.test/", "c", True)] == [
        (wish.url, wish.record["crawl"], wish.record["withdraw"]) for wish in wishes
    ]
    problem(await world.client.delete("/v1/tasks", headers=headers), "bad-request")
    problem(await world.client.delete("/v1/tasks", params={"url": "http://a.test/"}), "unauthorized")


async def test_everything_that_is_wrong_is_told_and_nothing_is_accepted(world):
    """By task, line and field, as in a file."""
    document = problem(
        await world.submit(
            b'[{"url": "http://a.test/", "priority": 9, "depht": 1},\n {"url": "ftp://b.test/"}, 7, {}]'
        ),
        "invalid-tasks",
    )
    assert [
        (0, 1, "depht", "depth"), (0, 1, "priority", None), (1, 2, "url", None), (2, 2, "", None), (3, 2, "url", None),
    ] == [(error.task, error.line, error.field, error.nearest) for error in document.errors]  # fmt: skip
    assert [] == world.acceptor.accepted


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"nonsense", b"\xff", b'"\x00"', b"[" * 100_000, b'{"url": "http://a.test/"']
)
async def test_a_body_that_is_no_task_is_refused(world, body):
    """Whatever the bytes are."""
    problem(await world.submit(body), "invalid-tasks")


async def test_a_refusal_is_not_larger_than_its_reader_can_bear(world):
    """A small body can hold a hundred thousand errors."""
    fields = {f"x{number}": 1 for number in range(2_000)}
    document = problem(await world.submit({"url": "http://a.test/"} | fields), "invalid-tasks")
    assert 1_000 == len(document.errors)
    assert "2000 errors" in document.detail


async def test_tasks_have_their_senders_name_as_source(world):
    """Unless they name another."""
    wishes = []
    accept = world.acceptor.accept
    world.acceptor.accept = lambda given: wishes.extend(given) or accept(given)
    await world.submit([{"url": "http://a.test/"}, {"url": "http://b.test/", "source": "news.b"}], "mona")
    assert ["mona", "news.b"] == [wish.record["source"] for wish in wishes]


@pytest.mark.parametrize(("user", "burst"), [("gina", 5), ("mona", 30), ("vera", 100)])
async def test_who_asks_more_than_its_class_may_is_told_when_to_come_back(world, user, burst):
    """In whole seconds, upwards: a client that comes back then is served."""
    for number in range(burst):
        assert 202 == (await world.submit({"url": f"http://a.test/{number}"}, user)).status_code
    refused = await world.submit({"url": "http://a.test/more"}, user)
    problem(refused, "rate-limited")
    assert "1" == refused.headers["retry-after"]
    assert burst == len(world.acceptor.accepted)
    problem(await world.ask("/v1/status", user, url="http://a.test/"), "rate-limited")
    world.now_s += 1
    assert 202 == (await world.submit({"url": "http://a.test/more"}, user)).status_code


async def test_a_task_of_a_batch_counts_like_a_request(world):
    """Or a batch would be the way around the class."""
    batch = [{"url": f"http://a.test/{number}"} for number in range(4)]
    assert 202 == (await world.submit(batch, "gina")).status_code
    refused = await world.submit(batch, "gina")
    problem(refused, "rate-limited")
    assert "3" == refused.headers["retry-after"]
    assert 202 == (await world.submit(batch[0], "gina")).status_code
    world.now_s += 5
    document = problem(await world.submit([*batch, *batch], "gina"), "too-many-tasks")
    assert "up to 5 tasks at once" in document.detail


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer of-something-else"}, {"Authorization": f"Basic {SECRET}vera"}]
)
async def test_without_a_token_there_is_nothing(world, header):
    """On any route that does something."""
    for answer in (
        await world.client.post("/v1/tasks", content=b"[]", headers=header),
        await world.client.get("/v1/status", params={"url": "http://a.test/"}, headers=header),
        await world.client.get("/v1/explain", params={"domain": "a.test"}, headers=header),
    ):
        problem(answer, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert [] == world.acceptor.accepted


async def test_an_idempotency_key_has_one_answer(world):
    """Also for a user who has nothing left but one request."""
    tasks = [{"url": "http://a.test/"}, {"url": "http://b.test/"}]
    first = await world.submit(tasks, "gina", Idempotency_Key="k")
    again = await world.submit(tasks, "gina", Idempotency_Key="k")
    assert (202, 202, first.content) == (first.status_code, again.status_code, again.content)
    assert "true" == again.headers["idempotency-replayed"]
    assert 1 == len(world.acceptor.accepted)
    problem(await world.submit(tasks[:1], "gina", Idempotency_Key="k"), "key-reused")
    assert 202 == (await world.submit(tasks[:1], "mona", Idempotency_Key="k")).status_code


async def test_an_idempotency_key_under_way_is_refused(world):
    """Both would be carried out."""
    world.acceptor.held = []
    first = asyncio.create_task(world.submit({"url": "http://a.test/"}, Idempotency_Key="k"))
    await world.acceptor.asked.wait()
    problem(await world.submit({"url": "http://a.test/"}, Idempotency_Key="k"), "key-in-use")
    world.acceptor.held[0].set_result(None)
    assert 202 == (await first).status_code


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\tb"])
async def test_an_idempotency_key_is_plain_and_bounded(world, key):
    """It is kept in memory."""
    problem(await world.submit({"url": "http://a.test/"}, Idempotency_Key=key.encode()), "bad-request")


@pytest.mark.parametrize("error", [BrokerError("no broker answers at 10.1.2.3"), ReplacedError("fenced")])
async def test_without_the_broker_nothing_is_accepted(world, error):
    """And the answer says when to try again, not where the broker is."""
    world.acceptor.error = error
    answer = await world.submit({"url": "http://a.test/"}, Idempotency_Key="k")
    assert str(error) not in problem(answer, "unavailable").detail
    assert 1 <= int(answer.headers["retry-after"])
    world.acceptor.error = None
    assert 202 == (await world.submit({"url": "http://a.test/"}, Idempotency_Key="k")).status_code


async def test_a_fault_of_ours_shows_nothing(world, caplog):
    """Traces are for the log."""
    world.acceptor.error = RuntimeError("an address of memory")
    answer = await world.submit({"url": "http://a.test/"})
    problem(answer, "internal")
    assert "memory" not in answer.text
    assert "an address of memory" in caplog.text


async def test_a_request_has_a_limit_of_time():
    """A broker that says nothing must not hold connections for ever."""
    async with World(request_s=0.05).served() as world:
        world.acceptor.held = []
        problem(await world.submit({"url": "http://a.test/"}), "unavailable")
        assert world.acceptor.held[0].cancelled()


async def begin_slow_body(world, user):
    """Send a head that promises more than comes. Return where its answer will be read, and the connection."""
    reader, writer = await asyncio.open_connection(world.client.base_url.host, world.client.base_url.port)
    head = f"Authorization: Bearer {SECRET}{user}\r\nContent-Type: application/json\r\nContent-Length: 5\r\n"
    writer.write(f"POST /v1/tasks HTTP/1.1\r\nHost: x\r\n{head}\r\n[".encode())
    await writer.drain()
    return reader, writer


async def test_a_body_that_does_not_come_is_not_waited_for():
    """A client that sends a byte a minute holds nothing for long."""
    async with World(request_s=0.05).served() as world:
        reader, writer = await begin_slow_body(world, "vera")
        async with asyncio.timeout(10):
            assert b"HTTP/1.1 408 " in await reader.readline()
        writer.close()


async def test_slow_bodies_of_one_user_leave_room_for_the_others():
    """One stolen guest token must not close the API: a user has a quarter of the places, and pays for each."""
    async with World(max_requests=8).served() as world:
        slow = [await begin_slow_body(world, "vera") for _ in range(3)]
        async with asyncio.timeout(10):
            assert b"HTTP/1.1 429 " in await _answered_first(slow)
        problem(await world.ask("/v1/status", url="http://a.test/"), "rate-limited")
        assert 202 == (await world.submit({"url": "http://a.test/"}, "mona")).status_code
        for _, writer in slow:
            writer.close()


async def _answered_first(connections):
    """Return the first line of the connection that is answered first."""
    reads = [asyncio.ensure_future(reader.readline()) for reader, _ in connections]
    done, waiting = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
    for read in waiting:
        read.cancel()
    return done.pop().result()


async def test_a_body_is_paid_before_it_comes():
    """A class of one request a second has no more slow bodies than that."""
    async with World(request_s=0.05).served() as world:
        for expected in [b"408"] * 5 + [b"429"]:
            reader, writer = await begin_slow_body(world, "gina")
            async with asyncio.timeout(10):
                assert b"HTTP/1.1 " + expected in await reader.readline()
            writer.close()


async def test_a_batch_that_waits_as_long_as_it_is_told_is_served(world):
    """What its request costs before the body is part of the batch, not one more."""
    batch = [{"url": f"http://a.test/{number}"} for number in range(5)]
    assert 202 == (await world.submit(batch, "gina")).status_code
    problem(await world.submit(batch, "gina"), "rate-limited")
    world.now_s += 2
    refused = await world.submit(batch, "gina")
    problem(refused, "rate-limited")
    assert "3" == refused.headers["retry-after"]
    world.now_s += 3
    assert 202 == (await world.submit(batch, "gina")).status_code


async def test_nobody_is_told_so_however_busy_the_api_is():
    """Who has no token holds no place, and learns nothing of those who do."""
    async with World(max_requests=1).served() as world:
        world.acceptor.held = []
        first = asyncio.create_task(world.submit({"url": "http://a.test/"}))
        await world.acceptor.asked.wait()
        problem(await world.client.post("/v1/tasks", content=b"[]"), "unauthorized")
        world.acceptor.held[0].set_result(None)
        assert 202 == (await first).status_code


async def test_bodies_are_bounded():
    """The limit holds for one whose length nobody tells, too."""
    async with World(max_body_bytes=1_000).served() as world:
        problem(await world.submit(b" " * 1_001), "too-large")

        async def chunks():
            for _ in range(20):
                yield b" " * 100

        fields = {"Authorization": f"Bearer {SECRET}vera", "Content-Type": "application/json"}
        problem(await world.client.post("/v1/tasks", content=chunks(), headers=fields), "too-large")
        assert 202 == (await world.submit({"url": "http://a.test/"})).status_code


async def test_requests_at_once_are_bounded():
    """Memory is, too."""
    async with World(max_requests=1).served() as world:
        world.acceptor.held = []
        first = asyncio.create_task(world.submit({"url": "http://a.test/"}))
        await world.acceptor.asked.wait()
        refused = await world.ask("/v1/status", url="http://a.test/")
        problem(refused, "unavailable")
        assert "1" == refused.headers["retry-after"]
        world.acceptor.held[0].set_result(None)
        assert 202 == (await first).status_code


@pytest.mark.parametrize(
    "headers", [{"Content_Type": "text/plain"}, {"Content_Type": ""}, {"Content_Encoding": "gzip"}], ids=str
)
async def test_other_bodies_than_plain_json_are_refused(world, headers):
    """A packed one could be a bomb."""
    problem(await world.submit({"url": "http://a.test/"}, **headers), "unsupported-media-type")


async def test_places_and_methods_that_there_are_not(world):
    """In the same form as every refusal."""
    problem(await world.client.get("/nowhere"), "not-found")
    answer = await world.client.get("/v1/tasks")
    problem(answer, "method-not-allowed")
    assert "DELETE,POST" == answer.headers["allow"]


async def test_the_status_of_what_nobody_knows_is_unknown(world):
    """A task that was accepted a moment ago has not been read yet."""
    answer = await world.ask("/v1/status", url="HTTP://b.test", crawl="c")
    assert ("unknown", "c", "http://b.test/") == tuple(answer.json()[name] for name in ("state", "crawl", "url"))
    assert [("http://b.test/", "c")] == world.explains.asked


async def test_explain_says_what_the_command_says(world):
    """For a URL in all crawls or in one, and for a domain."""
    answer = await world.ask("/v1/explain", url="http://a.test/")
    assert {"rule": 3} == answer.json()["crawls"][0]["facts"]
    assert ("http://a.test/", None) == world.explains.asked[-1]
    await world.ask("/v1/explain", url="http://a.test/", crawl="c")
    assert ("http://a.test/", "c") == world.explains.asked[-1]
    assert {"domain": "b.test", "known": False} == (await world.ask("/v1/explain", domain="b.test")).json()


@pytest.mark.parametrize(
    ("path", "query", "kind"),
    [
        ("/v1/status", {}, "bad-request"),
        ("/v1/status", {"url": "http://a.test/", "x": "1"}, "bad-request"),
        ("/v1/status", {"url": ["http://a.test/", "http://b.test/"]}, "bad-request"),
        ("/v1/status", {"url": "mailto:x@a.test"}, "invalid-tasks"),
        ("/v1/status", {"url": "http://a.test/", "crawl": "a b"}, "invalid-tasks"),
        ("/v1/explain", {}, "bad-request"),
        ("/v1/explain", {"url": "http://a.test/", "domain": "a.test"}, "bad-request"),
        ("/v1/explain", {"domain": "a/b"}, "bad-request"),
    ],
)
async def test_a_wrong_question_is_refused(world, path, query, kind):
    """With what is wrong, before anybody is asked."""
    problem(await world.ask(path, **query), kind)
    assert [] == world.explains.asked


async def test_workers_that_do_not_answer_are_told(world):
    """It is no fault of the question."""
    world.explains.error = BrokerError("nobody answered")
    answer = await world.ask("/v1/status", url="http://a.test/")
    problem(answer, "unavailable")
    assert "retry-after" in answer.headers


async def test_no_token_and_no_url_is_logged(world, caplog):
    """Logs are read by others than tokens are meant for, and a query may hold a password."""
    caplog.set_level(logging.DEBUG)
    await world.submit({"url": "http://a.test/?password=hunter2"}, Idempotency_Key="k")
    await world.submit({"url": "http://a.test/?password=hunter2", "headers": "Bearer hunter2"})
    world.acceptor.error = BrokerError("no answer")
    await world.submit({"url": "http://a.test/?password=hunter2"})
    logged = "\n".join(
        record.getMessage() for record in caplog.records if not record.name.startswith(("http", "asyncio"))
    )
    assert "vera submitted 1 tasks" in logged
    assert SECRET not in logged
    assert "hunter2" not in logged


async def test_what_is_counted(world):
    """By route, status and class; paths that there are not are one route."""
    await world.submit([{"url": "http://a.test/"}, {"url": "http://b.test/"}], "gina")
    for _ in range(4):
        await world.submit({"url": "http://a.test/"}, "gina")
    await world.client.get("/nowhere/1")
    value = world.registry.get_sample_value
    assert 4.0 == value("headrace_api_requests_total", {"route": "/v1/tasks", "status": "202"})
    assert 1.0 == value("headrace_api_requests_total", {"route": "/v1/tasks", "status": "429"})
    assert 1.0 == value("headrace_api_requests_total", {"route": "none", "status": "404"})
    assert 5.0 == value("headrace_api_tasks_total")
    assert 1.0 == value("headrace_api_limited_total", {"rate": "guest"})
    assert 5.0 == value("headrace_api_seconds_count", {"route": "/v1/tasks"})


def references(node):
    """Yield every reference of a document."""
    if isinstance(node, dict):
        yield from ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
        for child in node.values():
            yield from references(child)
    elif isinstance(node, list):
        for child in node:
            yield from references(child)


async def test_the_description_is_whole_and_that_of_this_api(world):
    """Clients are generated from it."""
    answer = await world.client.get("/openapi.json")
    assert "application/json" == answer.headers["content-type"]
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    for reference in references(document):
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    assert set(FIELDS) == set(document["components"]["schemas"]["WrittenTask"]["properties"])
    assert ["url"] == document["components"]["schemas"]["WrittenTask"]["required"]
    operations = [(path, method) for path, row in document["paths"].items() for method in row]
    assert [("/v1/tasks", "post"), ("/v1/tasks", "delete"), ("/v1/status", "get"), ("/v1/explain", "get")] == operations
    described = {status for row in document["paths"].values() for one in row.values() for status in one["responses"]}
    assert {str(status) for status, _ in KINDS.values()} - {"404", "405"} <= described
    assert "vip: 100, then 20 a second" in document["info"]["description"]


async def test_the_page_needs_nothing_else(world):
    """No script, no other host; every kind of problem has its place on it."""
    answer = await world.client.get("/docs")
    assert "text/html; charset=utf-8" == answer.headers["content-type"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert "http" not in answer.text.replace("an absolute http or https URL", "")
    assert all(f'id="{kind}"' in answer.text for kind in KINDS)


class Writer:
    """Writes nowhere."""

    def __init__(self, error=None):
        self.error = error
        self.written = []

    def write(self, wishes):
        if self.error:
            raise self.error
        self.written.extend(wishes)


def settings(**api):
    """Settings of a process on free ports."""
    users = {"vera": {"rate": "vip", "tokens": ["env:VERA"]}}
    return Settings(api=Api(port=0, **{"users": users, **api}), worker=Worker(metrics_port=0))


async def process(writer, talk, **api):
    """Run a whole process, and talk to it."""
    ports = asyncio.Queue()
    running = asyncio.create_task(server.run(settings(**api), writer, Explains(), ports.put_nowait))
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{await ports.get()}", timeout=10) as client:
        client.headers["Authorization"] = f"Bearer {SECRET}vera"
        await talk(client)
    async with asyncio.timeout(10):
        await running


async def test_a_process_serves_until_it_is_told_to_stop(monkeypatch):
    """What it has accepted before is written."""
    monkeypatch.setenv("VERA", f"{SECRET}vera")
    writer = Writer()

    async def talk(client):
        assert 202 == (await client.post("/v1/tasks", json={"url": "http://a.test/"})).status_code
        os.kill(os.getpid(), signal.SIGTERM)

    await process(writer, talk)
    assert ["http://a.test/"] == [wish.url for wish in writer.written]


async def test_a_process_whose_name_another_has_taken_ends(monkeypatch):
    """They would end each other's transactions."""
    monkeypatch.setenv("VERA", f"{SECRET}vera")

    async def talk(client):
        assert 503 == (await client.post("/v1/tasks", json={"url": "http://a.test/"})).status_code

    with pytest.raises(ReplacedError):
        await process(Writer(ReplacedError("fenced")), talk)


async def test_nobody_may_use_an_api_without_users():
    """It would be of no use; a default token would be worse."""
    with pytest.raises(ConfigurationError, match=r"api\.users is empty"):
        await server.run(settings(users={}), Writer(), Explains())
