"""A site for `bench.fetch`: one page of 44 KB under every name and path, plain and by TLS, in a process of its own.

`python -m bench.fetch_site DIRECTORY` writes a certificate authority of its own there (`ca.pem`), prints the two ports
as JSON, and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import ipaddress
import json
import ssl
import sys
from pathlib import Path
from typing import Final

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.parse import make_page

HOST: Final = "127.0.0.1"
NAMES: Final = "*.bench.test"
DAYS: Final = dt.timedelta(days=2)
_HEAD_END: Final = b"\r\n\r\n"
_ROBOTS: Final = b"GET /robots.txt "
_NO_ROBOTS: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def page_response() -> bytes:
    """Return the answer to every other request."""
    body = make_page()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Answers each request as soon as its head is there."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a TCP server's is a Transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while _HEAD_END in self._received and self._transport is not None:
            head, _, self._received = self._received.partition(_HEAD_END)
            self._transport.write(_NO_ROBOTS if head.startswith(_ROBOTS) else self._answer)


def make_certificate(directory: Path) -> ssl.SSLContext:
    """Write an authority, and return the context of a server that it vouches for."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench authority")])
    now = dt.datetime.now(dt.UTC)

    def certificate(
        name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(authority_name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - DAYS).not_valid_after(now + DAYS)
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority_key, hashes.SHA256())

    authority = certificate(authority_name, authority_key, x509.BasicConstraints(ca=True, path_length=0))
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(NAMES), x509.IPAddress(ipaddress.ip_address(HOST))])
    leaf = certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")]), key, names)
    pem = serialization.Encoding.PEM
    (directory / "ca.pem").write_bytes(authority.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "site.pem").write_bytes(secret + leaf.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "site.pem")
    return context


async def serve(directory: Path) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    answer = page_response()
    plain = await loop.create_server(lambda: Connection(answer), HOST, 0, backlog=1_024)
    secure = await loop.create_server(
        lambda: Connection(answer), HOST, 0, backlog=1_024, ssl=make_certificate(directory)
    )
    ports = [server.sockets[0].getsockname()[1] for server in (plain, secure)]
    print(json.dumps({"http": ports[0], "https": ports[1]}), flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fetch_site", description="Serve one page everywhere.")
    parser.add_argument("directory", type=Path)
    uvloop.run(serve(parser.parse_args().directory))
