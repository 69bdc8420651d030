"""Hostile sites whose connections are the fault: names that lead astray, TLS that is none, answers to no request."""

from __future__ import annotations

import random
from typing import Final

from pipeline.local.hostile_kind import CLOSED, FULL, Certificate, HostileKind
from pipeline.local.hostile_wire import (
    FOREIGN,
    PAUSE_S,
    End,
    Flood,
    Hush,
    Send,
    Step,
    Unasked,
    answer,
    head,
    own_page,
    page_of,
)

_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x28"
"""Fatal, handshake_failure (RFC 8446 6)."""
_TOO_NEW: Final = b"\x15\x03\x01\x00\x02\x02\x46"
"""Fatal, protocol_version, as a site says it that speaks TLS 1.0 alone."""
UNREACHABLE: Final = "ROBOTS_UNREACHABLE"
"""The first request is that for robots.txt: without an answer to it there is none for pages."""
_NOISE: Final = random.Random(3).randbytes(4_096)  # noqa: S311 - noise, no secret
_FOREIGN_PAGE: Final = answer(FOREIGN)
_REQUEST_TIMEOUT: Final = answer(b"", "Connection: close", status="408 Request Timeout")


def _greets(name: str, does: str, reason: str, *greeting: Step) -> HostileKind:
    return HostileKind(f"tls-{name}", does, UNREACHABLE, reason, certificate="good", greeting=greeting)


def _shows(name: str, does: str, certificate: Certificate) -> HostileKind:
    return HostileKind(f"tls-{name}", does, UNREACHABLE, "tls", certificate=certificate)


def _leads(name: str, address: str) -> HostileKind:
    does = f"a name that leads to {address}"
    return HostileKind(f"dns-{name}", does, "REFUSED", "blocked_address", leads_to=address)


def _talks(name: str, does: str, *then: Step) -> HostileKind:
    """Two pages asked for one after another; the second one must be the second one."""
    return HostileKind(name, does, "FETCHED", pages={"/": (Send(own_page), *then)}, targets=("/", "/second"))


KINDS: Final = (
    HostileKind("closed-port", "nobody listens", UNREACHABLE, "connect", leads_to=CLOSED),
    HostileKind("full-queue", "connections are never taken", UNREACHABLE, "connect_timeout", leads_to=FULL),
    # ---- names
    _leads("private", "10.0.0.1"), _leads("loopback", "127.0.0.2"), _leads("metadata", "169.254.169.254"),
    _leads("v6-loopback", "::1"), _leads("mapped", "::ffff:127.0.0.1"), _leads("any", "0.0.0.0"),  # noqa: S104 - a lie
    # ---- TLS
    _greets("garbage", "noise instead of TLS", "tls", Send(_NOISE), End()),
    _greets("plain", "plain HTTP where TLS is spoken", "tls", Send(answer(b"no", status="400 Bad Request")), End()),
    _greets("alert", "an alert instead of a handshake", "tls", Send(_ALERT), End()),
    _greets("silent", "says nothing to a handshake", "connect_timeout", Hush()),
    _greets("drip", "a handshake that drips", "connect_timeout",
            Send(b"\x16\x03\x03\x40\x00"), Flood(b"\x02", PAUSE_S)),
    _shows("other-name", "a certificate of another name", "other_name"),
    _shows("expired", "a certificate that is past its time", "expired"),
    _shows("not-yet", "a certificate that is before its time", "not_yet"),
    _shows("unknown-authority", "a certificate of an authority that nobody trusts", "unknown_authority"),
    _greets("old-version", "TLS 1.0 and nothing newer", "tls", Send(_TOO_NEW), End()),
    _greets("reset", "a reset instead of a handshake", "connect", End("reset")),
    HostileKind("tls-cut", "a body that ends with its connection, without TLS's own end", "NETWORK_ERROR",
                "truncated:tls_close", certificate="good",
                page=(Send(head("Content-Type: text/html")), Send(page_of), End("cut"))),
    HostileKind("tls-whole", "a body that ends with its connection, as it may", "FETCHED", certificate="good",
                page=(Send(head("Content-Type: text/html")), Send(page_of), End())),
    HostileKind("tls-unasked", "by TLS: another answer behind the first one", "FETCHED", certificate="good",
                pages={"/": (Send(own_page), Unasked(_FOREIGN_PAGE))}, targets=("/", "/second")),
    # ---- connections that are kept
    _talks("idle-close", "promises to keep the connection, and ends it", End()),
    _talks("idle-reset", "promises to keep the connection, and resets it a little later", Unasked(b""), End("reset")),
    _talks("unasked-at-once", "two answers to one request", Send(_FOREIGN_PAGE)),
    _talks("unasked", "another answer a little later, to no request", Unasked(_FOREIGN_PAGE)),
    _talks("unasked-408", "a 408 a little later, as balancers send it", Unasked(_REQUEST_TIMEOUT)),
    _talks("unasked-half", "half an answer a little later, to no request", Unasked(_FOREIGN_PAGE[:40])),
    _talks("unasked-flood", "noise without end on an idle connection", Unasked(_NOISE), Flood(_NOISE)),
)  # fmt: skip
