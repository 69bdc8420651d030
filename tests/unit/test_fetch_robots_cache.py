from __future__ import annotations

import asyncio
import gzip
import ssl
from dataclasses import dataclass, field

import pytest

from pipeline import topics
from pipeline.config import Fetch
from pipeline.contracts import load_codec
from pipeline.fetch import robots_cache
from pipeline.fetch.client import Client
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.guard import AddressGuard
from pipeline.fetch.robots_answer import REFRESHED_AHEAD_S, Robots
from pipeline.fetch.robots_cache import RobotsCache
from pipeline.fetch.slots import Deferred
from pipeline.fetch.transport import StaleMembership
from pipeline.web.url import canonicalize
from tests.raw_site import RawSite, redirect, response

PARTITION = 2
CODECS = load_codec()
CLOSED = response(b"User-agent: *\nDisallow: /", content_type="text/plain")


class View:
    """State of a partition, as far as the cache looks at it."""

    def __init__(self):
        self.rows = {}

    def get(self, table, key):
        return self.rows.get((table, key))


@dataclass
class World:
    """A cache before a site, with a wall clock that stands still until it is moved."""

    site: RawSite
    cache: RobotsCache
    gate: DomainGate
    view: View = field(default_factory=View)
    now: float = 1_000_000.0
    fresh: bool = True

    async def ask(self, host="site.test", target="/", **given) -> Robots | Deferred:
        """What holds for a host of the site."""
        url = canonicalize(self.site.url(target, host))
        return await self.cache.get(url, "site.test", PARTITION, **{"delay_s": 0.0, **given})

    async def allowed(self, host="site.test", target="/") -> bool:
        """Whether a page may be asked for."""
        robots = await self.ask(host, target)
        assert isinstance(robots, Robots)
        if robots.rules is None:
            return robots.state == "OPEN"
        return robots.rules.verdict("headrace", self.site.url(target, host)).allowed

    def changes(self, host="site.test"):
        """The state change of a host's robots, where there is one to publish."""
        return self.cache.changes(canonicalize(self.site.url("/", host)), PARTITION)

    def commit(self, changes):
        """Do what the runner does after a commit."""
        for table, key, value in changes:
            self.view.rows[table, key] = value

    def restart(self):
        """Forget what is in memory."""
        self.cache.opened(PARTITION, self.view)


@pytest.fixture
async def world():
    """A world with a site that has no robots.txt until it is given one."""
    settings = Fetch(resolve={"*.test": "127.0.0.1"}, connect_s=2, idle_s=0.3, total_s=2)
    gate = DomainGate(max_wait_s=10.0, per_domain=8)
    async with RawSite(keep_alive=True) as site:
        client = Client(
            settings,
            AddressGuard(["127.0.0.1"]),
            may_send=lambda: made.fresh,
            tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )
        async with client:
            cache = RobotsCache(client, gate, CODECS, max_wait_s=10.0, max_ratio=200.0, now=lambda: made.now)
            made = World(site, cache, gate)
            cache.opened(PARTITION, made.view)
            gate.opened(PARTITION)
            yield made


async def test_the_rules_of_a_file_hold(world):
    """RFC 9309 2.3.1.1: a file that is there is followed."""
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nDisallow: /no\n")
    assert [True, False] == [await world.allowed(target="/yes"), await world.allowed(target="/no")]


@pytest.mark.parametrize("status", ["400 x", "401 x", "403 x", "404 x", "410 x", "451 x"])
async def test_a_site_without_a_file_is_open(world, status):
    """RFC 9309 2.3.1.3: unavailable means that everything may be asked for."""
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nDisallow: /", status=status)
    assert await world.allowed()


@pytest.mark.parametrize("status", ["429 x", "500 x", "503 x", "599 x"])
async def test_a_site_that_is_unwell_is_closed(world, status):
    """RFC 9309 2.3.1.4: unreachable means that nothing may be asked for."""
    world.site.answers["/robots.txt"] = response(b"", status=status)
    robots = await world.ask()
    assert ("CLOSED", f"http_{status[:3]}", int(status[:3])) == (robots.state, robots.reason, robots.status)


async def test_a_file_that_can_not_be_read_closes_the_site(world):
    """A network failure is unreachable too; half a file may lack the line that matters."""

    async def drop(_, writer):
        writer.transport.abort()

    async def silent(_, writer):
        del writer
        await asyncio.sleep(30)

    broken = gzip.compress(b"User-agent: *\n" + bytes(range(256)) * 50)[:100]
    answers = {
        "reset": drop,
        "idle_timeout": silent,
        "bad_response": b"rubbish\r\n\r\n",
        "truncated": response(broken, "Content-Encoding: gzip"),
        "bad_encoding": response(bytes([0, 255]) * 40, "Content-Encoding: br"),
    }
    for number, (reason, answer) in enumerate(answers.items()):
        world.site.answers[f"{number}.site.test/robots.txt"] = answer
        robots = await world.ask(f"{number}.site.test")
        assert ("CLOSED", reason) == (robots.state, robots.reason)


async def test_a_site_that_does_not_answer_is_tried_again_soon(world):
    """Connection noise is over in a second or two; a site must not stand still for a minute by it."""

    async def drop(_, writer):
        writer.transport.abort()

    world.site.answers["/robots.txt"] = drop
    pauses = []
    for _ in range(3):
        robots = await world.ask()
        pauses.append((robots.expires_at_ms - robots.fetched_at_ms) / 1000)
        world.now = robots.expires_at_ms / 1000 + 1
    assert [1, 2, 4] == pauses
    world.site.answers["/robots.txt"] = response(b"", status="503 x")
    robots = await world.ask()
    assert 60_000 == robots.expires_at_ms - robots.fetched_at_ms


async def test_a_name_that_is_refused_is_closed(world):
    """The guard holds for robots.txt as for any other request."""
    robots = await world.cache.get(canonicalize("http://10.0.0.1/"), "10.0.0.1", PARTITION, delay_s=0.0)
    assert ("CLOSED", "blocked_address") == (robots.state, robots.reason)


async def test_five_redirects_are_followed(world):
    """RFC 9309 2.3.1.2: at least five; beyond, the file counts as unavailable."""
    for hop in range(5):
        world.site.answers["/robots.txt" if hop == 0 else f"/{hop}"] = redirect(f"/{hop + 1}")
    world.site.answers["/5"] = CLOSED
    assert not await world.allowed()
    world.site.answers["/5"] = redirect("/6")
    world.site.answers["/6"] = CLOSED
    assert await world.allowed("other.site.test")
    assert "/6" not in world.site.targets


async def test_a_redirect_to_another_spelling_of_the_file_is_followed(world):
    """Else its site would seem to have none, and everything would be allowed."""
    world.site.answers |= {"/robots.txt": redirect("/robots.txt?utm_source=x"), "/robots.txt?utm_source=x": CLOSED}
    assert not await world.allowed()


async def test_a_redirect_to_nowhere_is_no_file(world):
    """There is nothing to ask for."""
    world.site.answers["/robots.txt"] = redirect("ftp://site.test/robots.txt")
    assert await world.allowed()
    world.site.answers["/robots.txt"] = redirect(None)
    assert await world.allowed("other.site.test")


async def test_a_file_is_asked_for_once_a_day(world):
    """RFC 9309 2.4: no more than 24 hours; nor oftener than needed."""
    world.site.answers["/robots.txt"] = CLOSED
    await world.ask()
    world.now += 86_400 - REFRESHED_AHEAD_S - 1
    await world.ask()
    assert 1 == len(world.site.requests)
    world.now += REFRESHED_AHEAD_S + 2
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nAllow: /")
    assert await world.allowed()
    assert 2 == len(world.site.requests)


async def refreshed(world):
    """Let the request that was begun in the background end."""
    async with asyncio.timeout(5):
        await asyncio.gather(*world.cache._refreshes.values(), return_exceptions=True)


async def test_a_file_in_use_is_brought_anew_before_it_expires_and_nobody_waits_for_it(world):
    """Each page of a site would else wait for its robots.txt once a day, and be put off by a long delay."""
    world.site.answers["/robots.txt"] = CLOSED
    first = await world.ask()
    world.now += 86_400 - REFRESHED_AHEAD_S + 1
    world.site.answers["/robots.txt"] = response(b"User-agent: *\nAllow: /")
    assert first is await world.ask()
    assert first is await world.ask()
    await refreshed(world)
    assert 2 == len(world.site.requests)
    assert await world.allowed()
    assert ["r"] == [change.table for change in world.changes()]
    world.now += REFRESHED_AHEAD_S
    assert await world.allowed()
    assert 2 == len(world.site.requests)


@pytest.mark.parametrize("answer", [response(b"", status="503 x"), response(b"User-agent", "Content-Length: 99")])
async def test_a_file_that_can_not_be_brought_anew_holds_to_its_end(world, answer):
    """A site that is unwell for a moment is not closed while what it said still holds, nor asked again and again."""
    world.site.answers["/robots.txt"] = CLOSED
    first = await world.ask()
    world.now += 86_400 - REFRESHED_AHEAD_S + 1
    world.site.answers["/robots.txt"] = answer
    for _ in range(3):
        assert first is await world.ask()
        await refreshed(world)
    assert 2 == len(world.site.requests)
    world.now += robots_cache.REFRESH_PAUSE_S + 1
    assert first is await world.ask()
    await refreshed(world)
    assert 3 == len(world.site.requests)
    world.now += REFRESHED_AHEAD_S
    assert "CLOSED" == (await world.ask()).state


async def test_a_partition_that_goes_takes_its_refresh_with_it(world):
    """Its next owner asks; a request of ours would come without its pause."""
    world.site.answers["/robots.txt"] = CLOSED
    await world.ask()
    world.now += 86_400 - REFRESHED_AHEAD_S + 1
    await world.ask()
    world.cache.closed(PARTITION)
    await asyncio.sleep(0)
    assert ({}, 1) == (world.cache._flights, len(world.site.requests))


async def test_a_stale_member_brings_nothing_anew(world):
    """Nobody may be asked; what is known still holds."""
    world.site.answers["/robots.txt"] = CLOSED
    first = await world.ask()
    world.now += 86_400 - REFRESHED_AHEAD_S + 1
    world.fresh = False
    assert first is await world.ask()
    await refreshed(world)
    assert first is await world.ask()
    assert 1 == len(world.site.requests)


async def test_origins_are_told_apart(world):
    """RFC 9309 2.3: the file holds for its scheme, host and port."""
    world.site.answers["a.site.test/robots.txt"] = CLOSED
    assert [False, True] == [await world.allowed("a.site.test"), await world.allowed("b.site.test")]


async def test_a_closed_site_is_tried_again_ever_more_rarely(world):
    """It opens by itself when it is well again, and is not pestered until then."""
    world.site.answers["/robots.txt"] = response(b"", status="503 x")
    pauses = []
    for _ in range(8):
        robots = await world.ask()
        pauses.append((robots.expires_at_ms - robots.fetched_at_ms) / 1000)
        world.now = robots.expires_at_ms / 1000 + 1
    assert [60, 120, 240, 480, 960, 1920, 3600, 3600] == pauses
    world.site.answers["/robots.txt"] = response(b"")
    assert await world.allowed()
    world.now += 100_000
    world.site.answers["/robots.txt"] = response(b"", status="503 x")
    robots = await world.ask()
    assert 60_000 == robots.expires_at_ms - robots.fetched_at_ms


async def test_a_site_that_names_its_time_is_left_alone_until_then(world):
    """Its robots.txt speaks for the whole domain: the gate is told too."""
    world.site.answers["/robots.txt"] = response(b"", "Retry-After: 7000", status="429 x")
    robots = await world.ask()
    assert 7_000_000 == robots.expires_at_ms - robots.fetched_at_ms
    assert robots.wish_until_ms == robots.expires_at_ms
    deferred = await world.gate.acquire("site.test", PARTITION, delay_s=0.0)
    assert isinstance(deferred, Deferred)
    assert 6_990 < deferred.not_before - world.gate.now() <= 7_000


async def test_many_who_want_one_file_ask_once(world):
    """A new site arrives with many pages at once."""
    world.site.answers["/robots.txt"] = CLOSED
    verdicts = await asyncio.gather(*[world.allowed(target=f"/{number}") for number in range(20)])
    assert ([False] * 20, 1) == (verdicts, len(world.site.requests))


async def test_who_waits_for_a_cancelled_request_makes_its_own(world):
    """The record that asked first may be taken away; the others go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_, writer):
        begun.set()
        await go_on.wait()
        writer.write(CLOSED)

    world.site.answers["/robots.txt"] = slow
    first = asyncio.create_task(world.ask())
    async with asyncio.timeout(5):
        await begun.wait()
        second = asyncio.create_task(world.ask())
        await asyncio.sleep(0)
        first.cancel()
        go_on.set()
        robots = await second
    assert "RULES" == robots.state
    assert first.cancelled()


async def test_each_request_takes_a_slot_of_the_domain(world):
    """A robots.txt is a request like any other, and so is each hop, wherever it leads."""
    world.site.answers["/robots.txt"] = redirect(world.site.url("/real", "elsewhere.test"))
    world.site.answers["elsewhere.test/real"] = CLOSED
    robots = await world.ask(delay_s=0.1)
    assert "RULES" == robots.state
    first, second = world.site.requests
    assert ["site.test", "elsewhere.test"] == [request.host.partition(":")[0] for request in (first, second)]
    assert second.at - first.at >= 0.1


async def test_a_request_that_can_not_start_soon_is_put_off(world):
    """The task goes back to the frontier instead of holding its place."""
    assert isinstance(await world.ask(delay_s=50.0), Deferred)
    assert [] == world.site.requests
    assert isinstance(await world.ask(not_before=world.gate.now() + 50), Deferred)


async def test_a_long_delay_does_not_lose_the_way(world, monkeypatch):
    """Each hop may be put off; starting anew each time would never reach the file."""
    world.site.answers["/robots.txt"] = redirect("/real")
    world.site.answers["/real"] = CLOSED
    acquire, put_off = world.gate.acquire, []

    async def acquire_first_only(domain, partition, **given):
        if world.site.requests and not put_off:
            put_off.append(domain)
            return Deferred(world.gate.now() + 20)
        return await acquire(domain, partition, **given)

    monkeypatch.setattr(world.gate, "acquire", acquire_first_only)
    assert isinstance(await world.ask(), Deferred)
    assert not await world.allowed()
    assert ["/robots.txt", "/real"] == world.site.targets


async def test_what_was_learned_is_published_once_and_survives(world):
    """A restart or a rebalance must not ask every site again."""
    world.site.answers["/robots.txt"] = CLOSED
    await world.ask()
    changes = world.changes()
    assert 1 == len(changes)
    assert [] == world.changes()
    origin = f"http://site.test:{world.site.port}"
    assert ("r", origin.encode()) == (changes[0].table, changes[0].key)
    record = CODECS.decode(topics.ROBOTS.subject, changes[0].value)
    assert (origin, "RULES", 200, b"User-agent: *\nDisallow: /") == (
        record["origin"],
        record["state"],
        record["status"],
        record["body"],
    )
    world.commit(changes)
    world.restart()
    assert not await world.allowed()
    assert 1 == len(world.site.requests)
    assert [] == world.changes()


async def test_what_is_not_committed_yet_holds_all_the_same(world):
    """Between answer and commit other records of the site pass."""
    world.site.answers["/robots.txt"] = CLOSED
    await world.ask()
    world.changes()
    assert not await world.allowed()
    assert 1 == len(world.site.requests)


async def test_a_closed_site_stays_closed_through_a_restart(world):
    """Being taken over is no reason to pester a site."""
    world.site.answers["/robots.txt"] = response(b"", status="500 x")
    await world.ask()
    world.commit(world.changes())
    world.restart()
    robots = await world.ask()
    assert ("CLOSED", "http_500", 1) == (robots.state, robots.reason, len(world.site.requests))


async def test_a_partition_that_is_gone_is_forgotten(world):
    """Its next owner may learn something newer."""
    world.site.answers["/robots.txt"] = CLOSED
    await world.ask()
    world.cache.closed(PARTITION)
    world.cache.opened(PARTITION, View())
    await world.ask()
    assert 2 == len(world.site.requests)


async def test_a_damaged_row_is_asked_for_anew(world):
    """State is a cache here: it can always be made again."""
    world.view.rows["r", f"http://site.test:{world.site.port}".encode()] = b"rubbish"
    world.site.answers["/robots.txt"] = CLOSED
    assert not await world.allowed()


async def test_a_file_is_read_to_its_limit(world, caplog):
    """RFC 9309 2.5: the rules of the first 500 KiB hold, and the loss of others is said."""
    rules = b"User-agent: *\nDisallow: /first\n" + b"Disallow: /a-rather-long-path\n" * 20_000
    world.site.answers["/robots.txt"] = response(rules + b"Disallow: /last\n")
    assert [False, True] == [await world.allowed(target="/first"), await world.allowed(target="/last")]
    assert "are left out" in caplog.text
    (change,) = world.changes()
    assert len(change.value) < 600_000


async def test_memory_is_bounded(world, monkeypatch):
    """What was given up is read from the state again."""
    monkeypatch.setattr(robots_cache, "CACHED_ORIGINS", 3)
    world.site.answers["/robots.txt"] = CLOSED
    for number in range(6):
        await world.ask(f"{number}.site.test")
        world.commit(world.changes(f"{number}.site.test"))
    assert 3 == len(world.cache._cached)
    assert not await world.allowed("0.site.test")
    assert 6 == len(world.site.requests)
    assert sum(robots.size_bytes for robots in world.cache._cached.values()) == world.cache._cached_bytes


async def test_a_stale_member_asks_for_no_file(world):
    """Nothing is learned, nothing is published."""
    world.fresh = False
    with pytest.raises(StaleMembership):
        await world.ask()
    assert ([], []) == (world.site.requests, world.changes())
