"""A head and what is wrong behind it, read at once: the answer must not depend on how the network cuts it."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from pipeline.config import Fetch
from pipeline.fetch.client import Client
from pipeline.fetch.guard import AddressGuard
from tests.raw_site import RawSite, response

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
ANSWERS = {
    "a body longer than its length": (response(b"pagerubbish", length=4), 200, b"page", None),
    "a length of nothing": (response(b"<p>page</p>", length=0), 200, b"", None),
    "204 with a body": (b"HTTP/1.1 204 No Content\r\n\r\n<p>page</p>", 204, b"", None),
    "304 with a body": (response(b"<p>page</p>", status="304 Not Modified"), 304, b"", None),
    "rubbish behind the last chunk": (CHUNKED + b"4\r\npage\r\n0\r\n\r\nrubbish\r\n", 200, b"page", None),
    "a chunk that is none": (CHUNKED + b"4\r\npage\r\nzz\r\n", 200, b"page", "chunked"),
    "a chunk that is none, first": (CHUNKED + b"zz\r\n", 200, b"", "chunked"),
    "interim answers before it": (INTERIM * 3 + response(b"pagerubbish", length=4), 200, b"page", None),
}


def client() -> Client:
    """A client that reaches this machine."""
    fetch = Fetch(connect_s=2, idle_s=2, total_s=5)
    return Client(fetch, AddressGuard(["127.0.0.0/8"]), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@pytest.mark.parametrize("cut", ["nowhere", "before the end of the head", "behind the head", "everywhere"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_is_wrong_behind_a_head_does_not_undo_it(name, cut):
    """A page whose Content-Length counts characters instead of bytes is a page, as browsers have it."""
    wire, status, body, truncated = ANSWERS[name]
    head_bytes = wire.index(b"\r\n\r\n", wire.rindex(b"HTTP/1.1")) + 4
    places = {
        "nowhere": [],
        "before the end of the head": [head_bytes - 1],
        "behind the head": [head_bytes],
        "everywhere": range(1, len(wire)),
    }[cut]

    async def send(_, writer) -> None:
        start = 0
        for place in [*places, len(wire)]:
            writer.write(wire[start:place])
            await writer.drain()
            await asyncio.sleep(0)
            start = place

    async with RawSite({"*": send}) as site, client() as http:
        got = await http.get(site.url())
    assert (status, body, truncated, None) == (got.status, got.body.data, got.body.truncated, got.error)


async def test_what_came_before_a_fault_is_kept():
    """A second attempt that is no better is taken as it is: with all that was received."""

    async def broken(_, writer) -> None:
        writer.write(CHUNKED + b"4\r\npage\r\n")
        await writer.drain()
        writer.write(b"zz\r\n")

    async with RawSite({"*": broken}) as site, client() as http:
        body = (await http.get(site.url())).body
    assert (b"page", 4, "chunked") == (body.data, body.bytes_wire, body.truncated)
