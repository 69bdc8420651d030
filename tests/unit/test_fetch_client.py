from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import string
import struct
from pathlib import Path

import aiohttp
import httpx
import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.config import Fetch
from pipeline.errors import InputError, SiteError
from pipeline.fetch.body import BodyTooLarge, Limits
from pipeline.fetch.client import Client
from pipeline.fetch.guard import AddressGuard, RefusedAddress
from pipeline.fetch.transport import StaleMembership, _wire_url, site_error
from pipeline.web.url import canonicalize
from tests.raw_site import SITE_PEM, Answer, RawSite, response, server_tls

LOOPBACK = ["127.0.0.0/8"]
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the usual ones takes longer than most tests here."""
SHORT = {"connect_s": 2.0, "idle_s": 2.0, "total_s": 5.0}


def client(allow=LOOPBACK, may_send=lambda: True, tls=NO_AUTHORITIES, **settings) -> Client:
    """A client that reaches what is on this machine, and gives up soon."""
    fetch = Fetch(**{**SHORT, "resolve": {"*.test": "127.0.0.1"}, **settings})
    return Client(fetch, AddressGuard(allow), may_send=may_send, tls=tls)


async def failure(http: Client, url: str, **options) -> str:
    """Why there is no answer."""
    with pytest.raises(SiteError) as caught:
        await http.get(url, **options)
    return caught.value.reason


async def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, after what was written has been sent."""
    await writer.drain()
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_an_answer_comes_with_all_that_is_asked_of_it():
    """Status, fields as sent, decoded body, peer and time are what an outcome needs."""
    page = b"<p>" * 1000
    answer = response(gzip.compress(page), "Content-Encoding: gzip", "X-Robots-Tag: a", "x-robots-tag: b")
    async with RawSite({"/a": answer}) as site, client() as http:
        got = await http.get(site.url("/a", "site.test"))
    assert (200, page, None, "127.0.0.1") == (got.status, got.body.data, got.error, got.address)
    assert [b"a", b"b"] == got.values(b"x-robots-tag")
    assert ("text/html", "text/html") == (got.content_type, got.media_type)
    assert 0 < got.elapsed_s < 5


async def test_the_request_says_who_asks_and_what_it_takes():
    """A site must know whom to write to, and may pack as it likes."""
    async with RawSite({"*": response(b"x")}) as site, client(user_agent="testbot/1.0") as http:
        await http.get(site.url("/", "site.test"), headers={"If-None-Match": '"v1"'})
    headers = site.requests[0].headers
    assert ("testbot/1.0", "gzip, deflate, br, zstd", '"v1"') == (
        headers["user-agent"],
        headers["accept-encoding"],
        headers["if-none-match"],
    )
    assert "site.test" == site.requests[0].host.partition(":")[0]
    assert "cookie" not in headers


@pytest.mark.parametrize("path", ["/a%7Eb%e9|x", "/a?", "/?q=%2B+a%26;'", "/%2F/%41", "/a//b/?x=%zz"])
async def test_exactly_the_canonical_url_is_asked_for(path):
    """The verdict of robots.txt and the key are of this URL; a library that rewrites it asks for another page."""
    async with RawSite({"*": response(b"x")}) as site, client() as http:
        await http.get(site.url(path))
    assert [path] == site.targets


@given(st.text(alphabet=string.printable + "äß漢💩", min_size=1, max_size=12), st.text(max_size=20))
@example("xn--ls8h.test", "?")
@example("[::ffff:7f.1]:81", "/%2e%41|")
def test_every_canonical_url_can_be_asked_for_as_it_is(authority, target):
    """Two more parsers stand between it and the wire, each with its own idea of a URL."""
    try:
        url = canonicalize(f"http://{authority}/{target}")
    except InputError:
        return
    start, path = url.href[: url.href.index("/", 8) + 1], url.href[url.href.index("/", 8) :]
    request = httpx.Request("GET", httpx.URL(start), headers={"Host": "given"})
    wire = _wire_url(request.url, path)
    assert (url.host, url.port, path) == (wire.raw_host, wire.port, wire.raw_path_qs)


async def test_redirects_are_not_followed():
    """Each hop is a decision of its own: guard, robots, gate."""
    answer = response(b"", "Location: /b", status="301 Moved")
    async with RawSite({"/a": answer}) as site, client() as http:
        assert 301 == (await http.get(site.url("/a"))).status
    assert ["/a"] == site.targets


async def test_cookies_are_not_kept():
    """A cookie that stays would tie visits together, and pages to their order."""
    answer = response(b"x", "Set-Cookie: a=b")
    async with RawSite({"*": answer}, keep_alive=True) as site, client() as http:
        await http.get(site.url("/a", "site.test"))
        await http.get(site.url("/b", "site.test"))
    assert ["cookie" in request.headers for request in site.requests] == [False, False]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "127.1", "2130706433", "inside.test", "localhost"])
async def test_no_connection_is_made_to_a_refused_address(host):
    """Judged is what is connected to, in every spelling; a listener counts."""
    async with RawSite({"*": response(b"secret")}) as site, client(allow=[]) as http:
        with pytest.raises(SiteError):
            await http.get(site.url("/", host))
        assert 0 == site.connections


async def test_an_address_that_was_judged_is_the_one_connected_to(monkeypatch):
    """A name that changes its answer between two questions must not be asked twice."""
    answers = iter(["8.8.8.8", "127.0.0.1", "127.0.0.1"])

    async def resolve(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    tried = []
    guard = AddressGuard()
    make = guard.socket

    def watched(info):
        tried.append(info[4][0])
        made = make(info)
        made.close()
        raise OSError(111, "not in a test")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    monkeypatch.setattr(guard, "socket", watched)
    async with RawSite() as site, Client(Fetch(**SHORT), guard) as http:
        assert "connect" == await failure(http, site.url("/", "rebind.example"))
        assert "connect" == await failure(http, site.url("/", "rebind.example"))
        assert 0 == site.connections
    assert {"8.8.8.8"} == set(tried)


async def test_the_reason_of_a_failure_is_told():
    """The frontier retries noise, and people read the reason in an outcome."""

    async def drop(_, writer):
        await reset(writer)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = taken.getsockname()[1]
        answers = {
            "/drop": drop,
            "/junk": b"SSH-2.0-OpenSSH_9\r\n\r\n",
            "/lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "/field": response(b"x", "X: " + "a" * 40_000),
        }
        async with RawSite(answers) as site, client() as http:
            assert "reset" == await failure(http, site.url("/drop"))
            for target in ("/junk", "/lengths", "/field"):
                assert "bad_response" == await failure(http, site.url(target)), target
            assert "connect" == await failure(http, f"http://127.0.0.1:{closed}/")
            assert "blocked_port" == await failure(http, "http://127.0.0.1:25/")
            assert "dns" == await failure(http, "http://name.invalid/")


async def test_a_shortage_of_this_machine_is_not_blamed_on_the_site():
    """Running out of file descriptors must not look like a dead site."""
    key = aiohttp.client_reqrep.ConnectionKey("h", 80, False, True, None, None, None)
    assert "local_resources" == site_error(aiohttp.ClientConnectorError(key, OSError(24, "Too many open files"))).reason


async def test_certificates_are_verified(tmp_path):
    """A page from somebody else would be published under the site's name."""
    trusting = ssl.create_default_context(cadata=SITE_PEM[SITE_PEM.index("-----BEGIN CERT") :])
    site = RawSite({"*": response(b"x")})
    site.tls = server_tls(tmp_path)
    async with site:
        async with client(tls=trusting) as http:
            assert 200 == (await http.get(site.url("/", "site.test"))).status
            assert "tls" == await failure(http, site.url("/", "other.test"))
        async with client(tls=None) as http:
            assert "tls" == await failure(http, site.url("/", "site.test"))


async def test_a_body_that_is_not_whole_is_told_from_a_whole_one():
    """Half an article must not pass for the article."""

    async def cut_by_reset(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(0.02)  # the reset must not overtake the bytes
        await reset(writer)

    async def late_bad_chunk(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)  # the head must be read before the fault comes
        writer.write(b"ZZ\r\n")

    answers = {
        "/whole": b"HTTP/1.1 200 OK\r\n\r\nhalf",
        "/length": response(b"half", length=8),
        "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "/reset": cut_by_reset,
        "/bad_chunk": late_bad_chunk,
    }
    async with RawSite(answers) as site, client() as http:
        got = {target: (await http.get(site.url(target))).body for target in answers}
    assert [b"half"] * 5 == [body.data for body in got.values()]
    assert [None, "content_length", "chunked", "reset", "chunked"] == [body.truncated for body in got.values()]


async def over_tls(tmp_path: Path) -> list[str | None]:
    """How a body that ends with its connection is told to have ended: by TLS's own end, and by TCP's alone."""

    async def cut(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await writer.drain()
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as beneath:
            beneath.shutdown(socket.SHUT_WR)

    trusting = ssl.create_default_context(cadata=SITE_PEM[SITE_PEM.index("-----BEGIN CERT") :])
    site = RawSite({"/whole": b"HTTP/1.1 200 OK\r\n\r\nhalf", "/cut": cut, "/length": response(b"half")})
    site.tls = server_tls(tmp_path)
    truncated = []
    async with site, client(tls=trusting) as http:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            site.tls.maximum_version = version
            for target in ("/whole", "/cut", "/length"):
                body = (await http.get(site.url(target, "site.test"))).body
                assert b"half" == body.data
                truncated.append(body.truncated)
    return truncated


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_body_that_ends_with_its_connection_ends_by_tls(tmp_path, run):
    """Whoever is on the way can end a connection, but not say that the site did (RFC 9112 9.8); in either loop."""
    assert [None, "tls_close", None] * 2 == run(over_tls(tmp_path))


async def drip(_, writer):
    """One byte now and then, for ever."""
    writer.write(response(b"", length=1000))
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def drip_fields(_, writer):
    """One header line now and then, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: 1\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silent(_, writer):
    """Nothing, for long."""
    del writer
    await asyncio.sleep(30)


async def test_time_is_limited_in_all():
    """Each byte restarts an idle timer; only a total bounds a fetch."""
    async with RawSite({"/body": drip, "/head": drip_fields}) as site, client(idle_s=0.2) as http:
        got = await http.get(site.url("/body"), timeout_s=0.3)
        assert got.error is not None
        assert (200, "total_timeout") == (got.status, got.error.reason)
        assert got.elapsed_s < 2
        assert "total_timeout" == await failure(http, site.url("/head"), timeout_s=0.3)


async def test_a_drip_is_given_up_before_its_time():
    """A minimum rate ends it; what comes fast enough, or ends in time, does not notice."""
    settings = {"min_bytes_per_s": 1000, "min_rate_window_s": 0.2}
    async with RawSite({"/body": drip, "/ok": response(b"x")}) as site, client(**settings) as http:
        got = await http.get(site.url("/body"))
        assert got.error is not None
        assert (200, "slow_body") == (got.status, got.error.reason)
        assert None is (await http.get(site.url("/ok"))).error


def flood(start: bytes, piece: bytes) -> Answer:
    """Sends a piece again and again."""

    async def answer(_, writer):
        writer.write(start)
        while True:
            writer.write(piece * 100)
            await writer.drain()

    return answer


async def test_what_is_no_content_is_limited_too():
    """Each line is short, and none counts as body: without a limit a site keeps a processor busy for a minute."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = {
        "/interim": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "/hints": flood(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        "/head": flood(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 30_000 + b"\r\n"),
        "/chunks": flood(chunked, b"1\r\nx\r\n"),
        "/extension": flood(chunked, b"1;" + b"y" * 1000 + b"\r\nx\r\n"),
    }
    async with RawSite(answers) as site, client() as http, asyncio.timeout(20):
        for target in ("/interim", "/hints", "/head"):
            with pytest.raises(BodyTooLarge) as caught:
                await http.get(site.url(target))
            assert "head_bytes" == caught.value.reason, target
        for target in ("/chunks", "/extension"):
            got = await http.get(site.url(target))
            assert isinstance(got.error, BodyTooLarge), target
            assert "framing" == got.error.reason


async def test_small_chunks_and_a_few_interim_answers_are_no_attack():
    """A page that is sent as it is made comes in hundreds of pieces."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 20
    body = b"".join(b"3;x=y\r\nabc\r\n" for _ in range(20_000))
    answer = hints + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    async with RawSite({"*": answer}) as site, client() as http:
        got = await http.get(site.url())
    assert (200, None, 60_000) == (got.status, got.error, len(got.body.data))


async def test_silence_is_limited():
    """A connection that is dead without saying so must not cost the whole time."""

    async def stall(_, writer):
        writer.write(response(b"begun", length=1000))
        await writer.drain()
        await asyncio.sleep(30)

    async with RawSite({"/head": silent, "/body": stall}) as site, client(idle_s=0.1) as http:
        assert "idle_timeout" == await failure(http, site.url("/head"))
        got = await http.get(site.url("/body"))
        assert got.error is not None
        assert "idle_timeout" == got.error.reason


async def test_a_body_that_is_announced_too_long_is_not_begun():
    """The length says enough."""
    async with RawSite({"*": response(b"x", length=10_000)}) as site, client() as http:
        got = await http.get(site.url(), limits=Limits(9_999, 100_000, 200.0))
        assert got.error is not None
        assert "wire_bytes" == got.error.reason
        got = await http.get(site.url(), limits=Limits(9_999, 100_000, 200.0, cut=True))
        assert (None, b"x") == (got.error, got.body.data)


async def test_what_was_received_of_a_body_that_could_not_be_read_is_told():
    """It counts in the budgets of bytes, and people see how far a fetch came."""
    bomb = gzip.compress(bytes(1 << 20))
    answers = {
        "/bomb": response(bomb, "Content-Encoding: gzip"),
        "/drip": drip,
        "/junk": response(b"\xff\0" * 50, "Content-Encoding: gzip"),
    }
    async with RawSite(answers) as site, client(max_decoded_bytes=100_000) as http:
        got = await http.get(site.url("/bomb"))
        assert ("decoded_bytes", b"", len(bomb)) == (got.error and got.error.reason, got.body.data, got.body.bytes_wire)
        got = await http.get(site.url("/junk"))
        assert ("bad_encoding", 100) == (got.error and got.error.reason, got.body.bytes_wire)
        got = await http.get(site.url("/drip"), timeout_s=0.3)
        assert got.error is not None
        assert ("total_timeout", True) == (got.error.reason, 1 <= got.body.bytes_wire < 20)


async def test_a_body_that_is_not_wanted_is_not_read():
    """A film costs its head."""
    film = response(bytes(1 << 20), content_type="video/mp4")
    async with RawSite({"*": film}, keep_alive=True) as site, client() as http:
        got = await http.get(site.url(), wants=lambda head: head.media_type == "text/html")
        assert (200, b"", 0) == (got.status, got.body.data, got.body.bytes_wire)


async def test_a_request_is_made_once():
    """The library's own second try would come without the gate's leave."""

    async def drop(_, writer):
        writer.transport.abort()

    async with RawSite({"*": drop}) as site, client() as http:
        assert "reset" == await failure(http, site.url())
        assert 1 == len(site.requests)


async def test_a_connection_that_was_closed_while_it_idled_costs_nothing():
    """The site never saw the request (RFC 9112 9.3.1); failing would cost every second page of such a site."""
    async with RawSite({"*": response(b"x")}) as site, client() as http:
        for _ in range(5):
            assert 200 == (await http.get(site.url())).status


async def test_a_stale_member_asks_nobody():
    """The next owner of the partitions may be asking already; the check comes when the connection is there."""
    fresh = [False]
    async with RawSite({"*": response(b"x")}, keep_alive=True) as site, client(may_send=lambda: fresh[0]) as http:
        with pytest.raises(StaleMembership):
            await http.get(site.url())
        fresh[0] = True
        assert 200 == (await http.get(site.url())).status
        fresh[0] = False
        with pytest.raises(StaleMembership):
            await http.get(site.url())
        assert 1 == len(site.requests)


async def test_a_cancelled_fetch_leaves_nothing_behind():
    """Partitions are taken away in the middle of a download."""
    begun = asyncio.Event()

    async def slow(request, writer):
        begun.set()
        await drip(request, writer)

    async with RawSite({"/slow": slow, "/ok": response(b"x")}) as site, client() as http:
        task = asyncio.create_task(http.get(site.url("/slow")))
        async with asyncio.timeout(5):
            await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 200 == (await http.get(site.url("/ok"))).status


async def test_a_refused_address_is_told_from_a_failure():
    """It is final, and counted by itself."""
    async with client(allow=[]) as http:
        with pytest.raises(RefusedAddress) as caught:
            await http.get("http://169.254.169.254/latest/meta-data/")
    assert ("blocked_address", "link_local") == (caught.value.reason, caught.value.kind)
