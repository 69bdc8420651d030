"""The routes of the API: from a request to tasks on the broker, or to a refusal that says all that is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import islice
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from aiohttp import web

from pipeline.api.bucket import Buckets
from pipeline.api.idempotency import IdempotencyKeys, KeyInUseError, KeyReusedError
from pipeline.api.messages import Accepted, AcceptedTask, Explanation, TaskStatus
from pipeline.api.metrics import ApiMetrics
from pipeline.api.paths import EXPLAIN, STATUS, TASKS
from pipeline.api.problems import ApiProblem
from pipeline.api.refusals import Handler, answered, invalid
from pipeline.api.tokens import Tokens, User
from pipeline.config import Api
from pipeline.errors import InputError
from pipeline.tasks.checking import Checker, Right, Wrong
from pipeline.tasks.model import Limits
from pipeline.tasks.read_json import read_json
from pipeline.tasks.records import Defaults, Wish
from pipeline.tasks.rows import Row, decode

log = logging.getLogger(__name__)

JSON: Final = "application/json"
BODY_TYPES: Final = frozenset({JSON, "application/x-ndjson", "application/jsonl"})
KEY_HEADER: Final = "Idempotency-Key"
MAX_KEY_CHARACTERS: Final = 255
USER_SHARE: Final = 4
"""A user has at most this part of `api.max_requests` under way, at least one: four would have to act together."""
CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class Explains(Protocol):
    """Knows what became of a URL, and what a domain waits for; `pipeline.ops.explain.Explainer` does.

    Both methods block, are called from several threads, and raise:

    Raises:
        BrokerError: nobody has answered.
        InputError: no URL, or no name of a host.
    """

    def url(self, url: str, crawl: str | None = None) -> Mapping[str, Any]:
        """Return at least `domain`, `known` and `crawls`, each of which has `crawl`, `state`, `why` and `reason`."""
        ...

    def domain(self, name: str) -> Mapping[str, Any]:
        """Return at least `domain` and `known`."""
        ...


class Accepts(Protocol):
    """Takes tasks; `Acceptor` does."""

    def accept(self, wishes: Sequence[Wish]) -> Future[None]: ...


class ApiApp:
    """The application; `app` is what a server runs.

    Args:
        settings: of the API.
        limits: of tasks.
        crawl: of tasks that name none.
        tokens: who may ask.
        buckets: how much.
        keys: answers that are given again.
        acceptor: where tasks go.
        explains: who knows what became of them.
        threads: where it is asked.
        metrics: what is counted.
        pages: path → content type and body of what anybody may see.
    """

    def __init__(
        self,
        *,
        settings: Api,
        limits: Limits,
        crawl: str,
        tokens: Tokens,
        buckets: Buckets,
        keys: IdempotencyKeys,
        acceptor: Accepts,
        explains: Explains,
        threads: Executor,
        metrics: ApiMetrics,
        pages: Mapping[str, tuple[str, bytes]],
    ) -> None:
        self._settings = settings
        self._limits = limits
        self._crawl = crawl
        self._tokens = tokens
        self._buckets = buckets
        self._keys = keys
        self._acceptor = acceptor
        self._explains = explains
        self._threads = threads
        self._metrics = metrics
        self._pages = pages
        self._under_way: Counter[str | None] = Counter()
        """Requests by user; None for pages, which anybody may see."""
        self.app = web.Application(middlewares=[self._measured, self._bounded], client_max_size=settings.max_body_bytes)
        self.app.router.add_post(TASKS, self._submit)
        self.app.router.add_delete(TASKS, self._withdraw)
        self.app.router.add_get(STATUS, self._status)
        self.app.router.add_get(EXPLAIN, self._explain)
        for path in pages:
            self.app.router.add_get(path, self._page)

    async def _submit(self, request: web.Request) -> web.Response:
        """Accept one task or many, all or none."""
        user = self._user(request)
        self._take(user, 1)  # before the body: one that comes slowly holds a place
        body = await self._body(request)
        key = _key(request)
        text, unusable = decode(body)
        burst = self._buckets.burst(user)
        rows = list(islice(read_json(text), burst + 1))
        if len(rows) > burst:
            raise ApiProblem("too-many-tasks", f"class {user.rate} submits up to {burst} tasks at once")
        try:
            with self._keys.use(user.name, key, body) as use:
                if use.answer is not None:
                    return _answer(202, use.answer, {"Idempotency-Replayed": "true"})
                # All in one, or a batch that comes back after the wait it was told would lack the first token again.
                self._buckets.give_back(user, 1)
                self._take(user, max(1, len(rows)))
                checker = Checker(self._limits, Defaults(self._crawl, user.name))
                verdicts = list(checker.check(rows, unusable))
                if not verdicts or any(isinstance(verdict, Wrong) for verdict in verdicts):
                    raise invalid([verdict for verdict in verdicts if isinstance(verdict, Wrong)])
                wishes = [verdict.wish for verdict in verdicts if isinstance(verdict, Right)]
                await asyncio.wrap_future(self._acceptor.accept(wishes))
                accepted = Accepted(tasks=[_accepted(wish) for wish in wishes], repeated=len(verdicts) - len(wishes))
                use.answer = accepted.body()
        except KeyReusedError:
            raise ApiProblem("key-reused") from None
        except KeyInUseError:
            raise ApiProblem("key-in-use", retry_after_s=1) from None
        self._metrics.tasks.inc(len(wishes))
        log.info("%s submitted %d tasks", user.name, len(wishes))
        return _answer(202, use.answer, {"Location": accepted.tasks[0].status} if len(wishes) == 1 else {})

    async def _withdraw(self, request: web.Request) -> web.Response:
        """Take a task back."""
        wish = self._named(request, withdraw=True)
        await asyncio.wrap_future(self._acceptor.accept([wish]))
        return _answer(202, Accepted(tasks=[_accepted(wish)]).body(), {})

    async def _status(self, request: web.Request) -> web.Response:
        """Tell what has become of a task."""
        wish = self._named(request)
        crawl = wish.record["crawl"]
        known = await self._in_thread(self._explains.url, wish.url, crawl)
        row = next((row for row in known["crawls"] if row["crawl"] == crawl), {"state": "unknown"})
        said = {name: str(row.get(name) or "") for name in ("state", "why", "reason")}
        return _answer(200, TaskStatus(id=wish.id, crawl=crawl, url=wish.url, **said).body(), {})

    async def _explain(self, request: web.Request) -> web.Response:
        """Tell all that is known of a URL or a domain."""
        query = request.query
        if "domain" in query:
            self._asking(request, {"domain"}, set())
            known = await self._in_thread(self._explains.domain, query["domain"])
        else:
            self._asking(request, {"url"}, {"crawl"})
            known = await self._in_thread(self._explains.url, query["url"], query.get("crawl"))
        return _answer(200, Explanation(**known).body(), {})

    async def _page(self, request: web.Request) -> web.Response:
        content_type, body = self._pages[request.path]
        headers = {
            "Content-Type": content_type,
            "Content-Security-Policy": CONTENT_POLICY,
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(body=body, headers=headers)

    def _named(self, request: web.Request, *, withdraw: bool = False) -> Wish:
        """Return the task that a query names."""
        user = self._asking(request, {"url"}, {"crawl"})
        checker = Checker(self._limits, Defaults(self._crawl, user.name, withdraw=withdraw))
        [verdict] = checker.check([Row(1, 1, dict(request.query))], {})
        if isinstance(verdict, Right):
            return verdict.wish
        raise invalid([verdict] if isinstance(verdict, Wrong) else [])

    def _asking(self, request: web.Request, needed: set[str], also: set[str]) -> User:
        """Return who asks, where the query has what it needs and nothing unknown."""
        user = self._user(request)
        self._take(user, 1)
        if not needed <= request.query.keys() <= needed | also or len(request.query) > len(set(request.query)):
            optional = f"; it may have {', '.join(also)}" if also else ""
            raise ApiProblem("bad-request", f"the query has {', '.join(needed)}, once{optional}; nothing else")
        return user

    async def _in_thread(self, ask: Callable[..., Mapping[str, Any]], *arguments: str | None) -> Mapping[str, Any]:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask, *arguments)
        except InputError as exc:
            raise ApiProblem("bad-request", str(exc)) from None

    def _user(self, request: web.Request) -> User:
        user = self._tokens.user(request.headers.get("Authorization"))
        if user is None:
            raise ApiProblem("unauthorized", headers={"WWW-Authenticate": 'Bearer realm="headrace"'})
        return user

    def _take(self, user: User, count: int) -> None:
        wait_s = self._buckets.take(user, count)
        if wait_s:
            self._metrics.limited.labels(user.rate).inc()
            raise ApiProblem("rate-limited", f"class {user.rate}", retry_after_s=wait_s)

    async def _body(self, request: web.Request) -> bytes:
        if request.content_type not in BODY_TYPES or request.headers.get("Content-Encoding", "identity") != "identity":
            raise ApiProblem("unsupported-media-type")
        return await request.read()

    @web.middleware
    async def _measured(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count each answer by its route; every refusal takes the form of the RFC here."""
        route = request.match_info.route.resource
        name = route.canonical if route else "none"
        with self._metrics.seconds.labels(name).time():
            response = await answered(request, handler)
        self._metrics.requests.labels(name, response.status).inc()
        return response

    @web.middleware
    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Bound the time of a request, and how many there are at once, of all and of each user; nobody holds none."""
        has_user = request.path not in self._pages and request.match_info.http_exception is None
        name = self._user(request).name if has_user else None
        if self._under_way.total() >= self._settings.max_requests:
            raise ApiProblem("unavailable", "too many requests are under way", retry_after_s=1)
        if name is not None and self._under_way[name] >= max(1, self._settings.max_requests // USER_SHARE):
            raise ApiProblem("rate-limited", "too many requests of the user are under way", retry_after_s=1)
        self._under_way[name] += 1
        try:
            async with asyncio.timeout(self._settings.request_s):
                return await handler(request)
        except TimeoutError:
            if request.content.at_eof():
                raise
            raise ApiProblem("timeout", headers={"Connection": "close"}) from None
        finally:
            self._under_way[name] -= 1


def _key(request: web.Request) -> str | None:
    key = request.headers.get(KEY_HEADER)
    if key is not None and not (0 < len(key) <= MAX_KEY_CHARACTERS and key.isascii() and key.isprintable()):
        raise ApiProblem("bad-request", f"{KEY_HEADER} has 1 to {MAX_KEY_CHARACTERS} printable characters of ASCII")
    return key


def _accepted(wish: Wish) -> AcceptedTask:
    crawl = wish.record["crawl"]
    status = f"{STATUS}?{urlencode({'crawl': crawl, 'url': wish.url})}"
    return AcceptedTask(id=wish.id, crawl=crawl, url=wish.url, status=status)


def _answer(status: int, body: bytes, headers: Mapping[str, str]) -> web.Response:
    return web.Response(
        status=status, body=body, headers={"Content-Type": JSON, "Cache-Control": "no-store", **headers}
    )
