"""Acceptance cases on fetching, at the fetch stage before sites on this machine.

What belongs to other parts, and how it is met here:

- HTTP-01 wants a dead letter for a body that is too large. Here a fetch that finally failed is a result (outcome
  TOO_LARGE); dead letters are for records that can't be processed.
- HTTP-08: a Sitemap line is a task like any other, so its fetch passes the same guard.
- HTTP-10: that the page is kept after a 304 is the frontier's; here nothing is published over it.
- HTTP-12: that the wait survives a rebalance is the frontier's; here it goes out as `retry_after_ms`, at once.
- HTTP-16: there are no source profiles with credentials yet; a request carries none, whatever a URL says. The name of
  a profile stays with its origin (`test_headers_of_one_s_own_stay_with_their_origin`).
"""

from __future__ import annotations

import asyncio
import calendar
import gzip
import resource
import socket
import time
import zlib

import brotli
import pytest
import zstandard

from pipeline.errors import InputError
from pipeline.fetch.retry_after import LONGEST_S, retry_after_s
from tests.fetch_world import PAGE, fetch_world
from tests.raw_site import RawSite, redirect, response

MIB = 1 << 20


@pytest.fixture
def configure():
    """Fetch settings of the test."""
    return {}


@pytest.fixture
async def world(configure):
    """The stage before a site."""
    async with fetch_world(**configure) as made:
        yield made


def bombs() -> dict[str, tuple[str, bytes]]:
    """Small on the wire, gigabytes decoded: name to coding and bytes."""
    block = bytes(64 * MIB)
    deflater = zlib.compressobj(9)
    deflated = b"".join(deflater.compress(block) for _ in range(4)) + deflater.flush()
    member = gzip.compress(block, 9)
    return {
        "gzip": ("gzip", member * 32),
        "br": ("br", brotli.compress(block * 2, quality=3)),
        "deflate": ("deflate", deflated),
        "zstd": ("zstd", zstandard.compress(block) * 64),
        "nested": ("gzip, gzip", gzip.compress(member * 32)),
    }


@pytest.mark.parametrize("configure", [{"max_decoded_bytes": 20 * MIB, "idle_s": 5, "total_s": 20}])
async def test_http_01_bombs_pass_no_limit(world):
    """The limit holds on decoded bytes while they stream: memory and time stay bounded, other fetches go on."""
    for name, (encoding, wire) in bombs().items():
        world.site.answers[f"/{name}"] = response(wire, f"Content-Encoding: {encoding}")
    await world.handle()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("gzip", "br", "deflate", "zstd", "nested"):
        began = time.monotonic()
        bomb, other = await asyncio.gather(world.handle(f"/{name}"), world.handle("/a"))
        assert "TOO_LARGE" == bomb.outcome["outcome"]
        assert bomb.outcome["reason"] in {"ratio", "decoded_bytes"}
        assert "FETCHED" == other.outcome["outcome"]
        assert time.monotonic() - began < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 100 * 1024


@pytest.mark.parametrize("configure", [{"connect_s": 0.25, "idle_s": 0.25, "total_s": 1.0}])
async def test_http_05_a_drip_does_not_hold_a_worker(world):
    """Per-read timeouts restart with each byte; only a total bounds a fetch. Twenty seconds are one here."""

    async def drip(_, writer):
        writer.write(response(b"", length=MIB))
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    async def drip_fields(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.1)

    async def trickle(_, writer):
        writer.write(response(b"", length=MIB))
        while True:
            writer.write(bytes(100))
            await writer.drain()
            await asyncio.sleep(0.05)

    world.site.answers |= {"/body": drip, "/head": drip_fields, "/slow": trickle}
    await world.handle()
    began = time.monotonic()
    slow = await asyncio.gather(*[world.handle(target) for target in ("/body", "/head", "/slow")])
    assert [("NETWORK_ERROR", "total_timeout")] * 3 == [handled.kind for handled in slow]
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize(
    ("location", "path"),
    [
        (bytes.fromhex("2f66612f6e6577732fd8aed8a8d8b1"), "/fa/news/%D8%AE%D8%A8%D8%B1"),
        (b"/caf\xe9", "/caf%E9"),
        (b"/caf%C3%A9", "/caf%C3%A9"),
        (b"/a b", "/a%20b"),
    ],
)
async def test_http_06_a_location_in_raw_bytes_names_the_page_it_means(world, location, path):
    """Browsers read raw bytes as UTF-8; read as Latin-1 they ask for another page."""
    world.site.answers["/a"] = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    handled = await world.handle()
    target = handled.outcome["location"]
    assert world.site.url(path, "site.test") == target
    await world.handle(path)
    assert path == world.site.targets[-1]


@pytest.mark.parametrize("configure", [{"resolve": {"*site.test": "127.0.0.1", "inside.test": "127.0.0.2"}}])
async def test_http_08_private_addresses_are_not_reached(world, monkeypatch):
    """Checked is what is connected to, on every hop, for every fetch the stage makes; a listener counts."""
    async with RawSite({"*": response(b"secret")}, address="127.0.0.2") as inside:
        world.site.answers["/meta"] = redirect("http://169.254.169.254/latest/meta-data/")
        world.site.answers["/inside"] = redirect(inside.url("/"))
        for target in ("/meta", "/inside"):
            hop = await world.handle(target)
            assert "REDIRECTED" == hop.outcome["outcome"]
        for url in ("http://169.254.169.254/latest/meta-data/", inside.url("/"), inside.url("/", "inside.test")):
            handled = await world.handle_url(url)
            assert ("REFUSED", "blocked_address", 0) == (*handled.kind, handled.outcome["requests"])
        world.site.answers["robots.site.test/robots.txt"] = redirect(inside.url("/"))
        handled = await world.handle("/", host="robots.site.test")
        assert ("ROBOTS_UNREACHABLE", "blocked_address") == handled.kind

        answers = iter([["203.0.113.7"], ["127.0.0.2"], ["127.0.0.2"], ["203.0.113.7"], ["8.8.8.8", "10.0.0.5"]])
        tried = []

        async def resolve(host, port, **_):
            assert host.endswith(".example")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(answers)]

        async def connect(_, address):
            tried.append(address[0])
            raise OSError(111, "refused in the test")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
        for name, kind in {
            "first": ("REFUSED", "blocked_address"),
            "second": ("REFUSED", "blocked_address"),
            "mixed": ("ROBOTS_UNREACHABLE", "connect"),
        }.items():
            handled = await world.handle_url(f"http://{name}.example:{inside.port}/")
            assert kind == handled.kind
        assert ["8.8.8.8"] == tried
        assert 0 == inside.connections


@pytest.mark.parametrize("robots", [True, False])
async def test_http_08_the_outcome_is_final(robots):
    """A blocked address will be blocked tomorrow; that its robots.txt could not be had is not what is wrong with it."""
    async with fetch_world(robots=robots) as world:
        for url in ("http://169.254.169.254/latest/meta-data/", "http://[::ffff:10.0.0.1]/", "http://localhost:25/"):
            handled = await world.handle_url(url)
            assert ("REFUSED", 0) == (handled.outcome["outcome"], handled.outcome["requests"])
            assert handled.outcome["reason"] in {"blocked_address", "blocked_port"}


async def test_http_10_a_304_is_neither_a_redirect_nor_an_error_nor_a_page(world):
    """RFC 9110 15.4.5: the stored copy stands."""
    world.site.answers["/a"] = response(b"B1", 'ETag: "a"')
    first = await world.handle()
    assert '"a"' == first.outcome["etag"]
    world.site.answers["/a"] = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    second = await world.handle(etag='"a"')
    assert ("NOT_MODIFIED", [], []) == (second.outcome["outcome"], second.pages, second.tasks)
    assert '"a"' == world.site.requests[-1].headers["if-none-match"]
    third = await world.handle()
    assert (("NETWORK_ERROR", "unasked_304"), []) == (third.kind, third.pages)
    assert "if-none-match" not in world.site.requests[-1].headers
    world.site.answers["/a"] = response(b"B2", 'ETag: "a"')
    fourth = await world.handle(etag='"a"')
    assert b"B2" == fourth.pages[0]["body"]


def test_http_12_odd_retry_after_values_neither_switch_the_wait_off_nor_stretch_it():
    """RFC 9110 10.2.3 and 5.6.7: seconds or one of three dates; anything else is no value, and the backoff decides."""
    now = calendar.timegm((2024, 5, 1, 12, 0, 0))
    waits = {
        "120": 120,
        "0": 0,
        "-5": None,
        "1.5": None,
        "+3": None,
        "Wed, 01 May 2024 12:02:00 GMT": 120,
        "Wednesday, 01-May-24 12:02:00 GMT": 120,
        "Wed May  1 12:02:00 2024": 120,
        "Wed, 21 Oct 2015 07:28:00 GMT": 0,
        "999999999": LONGEST_S,
        "": None,
        "soon": None,
    }
    assert waits == {text: retry_after_s([text], now) for text in waits}


async def test_http_12_the_wait_is_the_host_s(world):
    """It holds for the domain, not for the one URL."""
    world.site.answers["/a"] = response(b"", "Retry-After: 120", status="429 x")
    handled = await world.handle()
    assert 118 < handled.outcome["retry_after_ms"] / 1000 - time.time() <= 121
    assert ("DEFERRED", "gate") == (await world.handle("/b")).kind


async def test_http_13_redirects_without_a_usable_target_end(world):
    """RFC 9110 15.4: a Location has to resolve, circles are to be detected."""
    outcomes = {}
    for location in ("https://:443/", "", None, "   ", "#frag"):
        world.site.answers["/a"] = redirect(location)
        handled = await world.handle()
        assert 1 == handled.outcome["requests"]
        outcomes[location] = handled.kind
    assert {
        "https://:443/": ("HTTP_ERROR", "bad_location:no_host"),
        "": ("HTTP_ERROR", "no_location"),
        None: ("HTTP_ERROR", "no_location"),
        "   ": ("HTTP_ERROR", "no_location"),
        "#frag": ("HTTP_ERROR", "redirect_loop"),
    } == outcomes


async def test_http_13_circles_and_long_chains_end(world):
    """Each hop is a task; the chain that travels with it ends the walk."""
    world.site.answers |= {"/A": redirect("/B", status="301 x"), "/B": redirect("/A", status="301 x")}
    assert ("HTTP_ERROR", "redirect_loop") == await walk(world, "/A")
    assert ["/A", "/B"] == world.site.targets[1:]
    world.site.answers |= {f"/{hop}": redirect(f"/{hop + 1}", status="308 x") for hop in range(30)}
    assert ("HTTP_ERROR", "too_many_redirects") == await walk(world, "/0")
    assert "/11" not in world.site.targets


async def walk(world, target: str) -> tuple[str, str]:
    """Follow redirects as the frontier does: each task that comes back is a lane record."""
    handled = await world.handle(target)
    while handled.tasks:
        (_, _, task) = handled.tasks[0]
        handled = await world.handle_url(task["url"], redirects=task["redirects"])
    return handled.kind


async def test_http_16_no_credentials_cross_an_origin(world):
    """A request carries neither Authorization nor another page's cookies; names and passwords stay out of messages."""
    world.site.answers["/a"] = redirect("/b", "Set-Cookie: s=1")
    world.site.answers["/b"] = response(PAGE)
    assert ("FETCHED", "") == await walk(world, "/a")
    for request in world.site.requests:
        assert not {"authorization", "cookie"} & request.headers.keys()
    world.site.answers["/a"] = redirect("http://user:secret@site.test/")
    handled = await world.handle()
    assert "http://site.test/" == handled.outcome["location"]
    assert "secret" not in repr(handled)
    with pytest.raises(InputError) as caught:
        await world.handle_url("http://user:secret@site.test/")
    assert "secret" not in str(caught.value)
