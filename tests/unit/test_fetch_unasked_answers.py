"""Answers that nobody asked for: no page may be published under the URL of another one."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import uvloop

from pipeline.config import Fetch
from pipeline.fetch.client import Client
from pipeline.fetch.guard import AddressGuard
from tests.raw_site import SITE_PEM, RawSite, response, server_tls

TIMEOUT_408 = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNASKED = {
    "page": response(b"foreign"),
    "408": TIMEOUT_408,
    "interim": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "half": b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n",
    "garbage": b"\x00\x01\x02",
    "closed": b"",
}


class TalkativeSite(RawSite):
    """Answers the first request, and says more once it is told to."""

    def __init__(self, unasked: bytes, *, at_once: bool) -> None:
        super().__init__({"*": self._answer}, keep_alive=True)
        self._unasked = unasked
        self._at_once = at_once
        self._writer: asyncio.StreamWriter | None = None

    async def _answer(self, request, writer) -> None:
        answer = response(b"own " + request.target.encode())
        if self.connections == 1 and self._at_once:
            answer += self._unasked
        writer.write(answer)
        self._writer = writer

    async def speak(self) -> None:
        """Say what nobody asked for; it is in the client's socket afterwards."""
        assert self._writer is not None
        if self._unasked:
            self._writer.write(self._unasked)
            await self._writer.drain()
        else:
            self._writer.close()
            await self._writer.wait_closed()


def client(tls: ssl.SSLContext | None = None) -> Client:
    """A client that reaches this machine."""
    fetch = Fetch(connect_s=2, idle_s=2, total_s=5, resolve={"*.test": "127.0.0.1"})
    return Client(fetch, AddressGuard(["127.0.0.0/8"]), tls=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def two_pages(unasked: bytes, *, is_read: bool) -> tuple[list[bytes], list[str]]:
    """Ask for a page, let the site speak, ask for another one."""
    async with TalkativeSite(unasked, at_once=False) as site, client() as http:
        first = await http.get(site.url("/1"))
        await site.speak()
        for _ in range(20 if is_read else 0):
            await asyncio.sleep(0)
        second = await http.get(site.url("/2"))
        return [first.body.data, second.body.data], site.targets


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", UNASKED)
def test_what_comes_on_an_idle_connection_answers_no_later_request(name, is_read, run):
    """RFC 9112 9.2: it is no valid response; balancers send 408 so, and others what they like.

    It may have been read while the connection idled, or lie in the socket when the next request wants to use it.
    """
    assert ([b"own /1", b"own /2"], ["/1", "/2"]) == run(two_pages(UNASKED[name], is_read=is_read))


@pytest.mark.parametrize("name", ["page", "408"])
async def test_what_comes_behind_an_answer_is_not_the_next_one(name):
    """A body longer than its Content-Length looks like it, too."""
    async with TalkativeSite(UNASKED[name], at_once=True) as site, client() as http:
        bodies = [(await http.get(site.url(target))).body.data for target in ("/1", "/2")]
        assert ([b"own /1", b"own /2"], 2) == (bodies, site.connections)


async def test_a_silent_connection_is_used_again(tmp_path: Path):
    """Looking at the socket must not cost the reuse, whatever TLS itself sends meanwhile."""
    trusting = ssl.create_default_context(cadata=SITE_PEM[SITE_PEM.index("-----BEGIN CERT") :])
    for tls in (None, server_tls(tmp_path)):
        site = TalkativeSite(b"", at_once=False)
        site.tls = tls
        async with site, client(trusting) as http:
            for number in range(5):
                assert 200 == (await http.get(site.url(f"/{number}", "site.test"))).status
            assert 1 == site.connections


async def test_an_empty_line_behind_an_answer_is_no_answer():
    """RFC 9112 2.2: old servers send one; it costs nothing when it has been read."""
    async with TalkativeSite(b"\r\n", at_once=False) as site, client() as http:
        await http.get(site.url("/1"))
        await site.speak()
        for _ in range(20):
            await asyncio.sleep(0)
        assert b"own /2" == (await http.get(site.url("/2"))).body.data
        assert 1 == site.connections
