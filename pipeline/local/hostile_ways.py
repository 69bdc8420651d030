"""Hostile sites that lead astray: redirects in circles, mazes, gates that never open, inner addresses."""

from __future__ import annotations

import re
from typing import Final

from pipeline.local.hostile_kind import HostileKind
from pipeline.local.hostile_wire import (
    FOREIGN,
    Asked,
    Content,
    Flood,
    Hush,
    Send,
    answer,
    head,
    own_page,
    page_of,
    redirect,
)

INNER: Final = {
    "dotted": "127.0.0.1", "decimal": "2130706433", "hex": "0x7f000001", "hex-parts": "0x7f.0.0.0x1",
    "octal": "017700000001", "octal-parts": "0177.0.0.01", "short": "127.1",
    "dotted-end": "127.0.0.1.", "escaped": "%31%32%37.0.0.1", "escaped-dot": "127%2E0%2E0%2E1",
    "wide-digits": "%EF%BC%91%EF%BC%92%EF%BC%97.%EF%BC%90.%EF%BC%90.%EF%BC%91",
    "circled-digits": "%E2%91%A0%E2%91%A1%E2%91%A6.%E2%93%AA.%E2%93%AA.%E2%91%A0",
    "wide-dots": "127%E3%80%820%E3%80%820%E3%80%821", "soft-hyphen": "127.0.0.%C2%AD1",
    "name": "LOCALHOST", "any": "0.0.0.0", "any-short": "0",  # noqa: S104 - what sites send, and nobody binds to
    "v6": "[::1]", "v6-long": "[0:0:0:0:0:0:0:1]", "v6-any": "[::]",
    "mapped": "[::ffff:127.0.0.1]", "mapped-hex": "[::ffff:7f00:1]", "compatible": "[::127.0.0.1]",
    "translated": "[::ffff:0:127.0.0.1]", "nat64": "[64:ff9b::127.0.0.1]", "nat64-local": "[64:ff9b:1::7f00:1]",
    "6to4": "[2002:7f00:1::]", "teredo": "[2001:0:7f00:1::80ff:fffe]", "isatap": "[2001:db8::5efe:7f00:1]",
    "link-local": "[fe80::1]", "site-local": "[fec0::1]", "unique-local": "[fd00::1]", "multicast-v6": "[ff02::1]",
    "metadata": "169.254.169.254", "metadata-v6": "[fd00:ec2::254]", "ten": "10.0.0.1", "one-seven-two": "172.16.0.1",
    "one-nine-two": "192.168.0.1", "carrier": "100.64.0.1", "multicast": "224.0.0.1", "broadcast": "255.255.255.255",
    "reserved": "240.0.0.1", "documentation": "192.0.2.1", "benchmark": "198.18.0.1",
    "user": "public.example:80@127.0.0.1", "tab": "127.0.\t0.1",
}  # fmt: skip
"""Where nobody may connect to, as a Location may spell it: this machine in every way, and what is not on the Internet.
"""
_STEP: Final = re.compile(r"(?:-x(\d+))?\.test\Z")


def _http(name: str, does: str, reason: str, *script: Send | Flood | Hush) -> HostileKind:
    return HostileKind(name, does, "HTTP_ERROR", reason, script)


def _to(location: str, *fields: str, status: str = "302 Found") -> Send:
    return Send(redirect(location, *fields, status=status))


def _raw(location: bytes) -> Send:
    return Send(head("Content-Length: 0", "Location: @", status="302 Found").replace(b"@", location))


def _counted(asked: Asked) -> int:
    digits = "".join(filter(str.isdigit, asked.target))
    return int(digits or 0) + 1


def _next_domain(asked: Asked) -> bytes:
    """Lead to another registrable domain, which leads to another one."""
    found = _STEP.search(asked.host)
    number = int(found.group(1) or 0) if found else 0
    name = _STEP.sub("", asked.host)
    return redirect(f"http://{name}-x{number + 1}.test:{asked.port}/")


def _gate(asked: Asked) -> bytes:
    """Ask for a cookie, and give the page to who brings it."""
    return own_page(asked) if "seen=1" in asked.cookie else redirect(asked.target, "Set-Cookie: seen=1; Path=/")


def _shut_gate(asked: Asked) -> bytes:
    number = int("0" + "".join(filter(str.isdigit, asked.cookie))) + 1
    return redirect(asked.target, f"Set-Cookie: try={number % 1_000}; Path=/")


def _circle_with_cookie(asked: Asked) -> bytes:
    return redirect("/login" if asked.target == "/" else "/", "Set-Cookie: session=1; Path=/")


def _refresh(target: str) -> Content:
    meta = f'<meta http-equiv="refresh" content="0; url={target}">'.encode()
    return lambda asked: answer(page_of(asked).replace(b"<head>", b"<head>" + meta))


def _inner(name: str, spelled: str) -> HostileKind:
    def lead(asked: Asked) -> bytes:
        return redirect(f"http://{spelled}:{asked.inner_port}/")

    shown = spelled.replace("\t", "(tab)")
    return HostileKind(f"inner-{name}", f"leads to {shown}", "REFUSED", "blocked_address", (Send(lead),))


KINDS: Final = (
    _http("self-redirect", "leads to itself", "redirect_loop", _to("/")),
    HostileKind("redirect-circle", "two pages that lead to each other", "HTTP_ERROR", "redirect_loop",
                pages={"/": (_to("/b"),), "/b": (_to("/"),)}),
    _http("endless-redirects", "a new page at each hop, without end", "too_many_redirects",
          Send(lambda asked: redirect(f"/hop/{_counted(asked)}", status="301 Moved Permanently"))),
    _http("endless-queries", "another parameter at each hop, without end", "too_many_redirects",
          Send(lambda asked: redirect(f"{asked.target}{'&' if '?' in asked.target else '?'}n={_counted(asked)}"))),
    _http("maze", "a maze over many domains", "too_many_redirects", Send(_next_domain)),
    HostileKind("cookie-gate", "a page for who brings the cookie that was set", "FETCHED", page=(Send(_gate),)),
    _http("shut-gate", "wants another cookie each time", "cookie_gate", Send(_shut_gate)),
    HostileKind("login-circle", "two pages that lead to each other for a cookie", "HTTP_ERROR", "cookie_gate",
                (Send(_circle_with_cookie),)),
    HostileKind("refresh-circle", "two pages that lead to each other by a meta element", "HTTP_ERROR", "redirect_loop",
                pages={"/": (Send(_refresh("/b")),), "/b": (Send(_refresh("/")),)}),
    HostileKind("refresh-self", "a page that loads itself anew, which is a page", "FETCHED",
                page=(Send(_refresh("/")),)),
    _http("no-location", "a redirect without a Location", "no_location", Send(answer(b"", status="302 Found"))),
    _http("blank-location", "a redirect to nothing", "no_location", _to(" ")),
    _http("two-locations", "a redirect to two places", "several_locations", _to("/a", "Location: /b")),
    _http("script-location", "a redirect to javascript:", "bad_location:scheme", _to("javascript:alert(1)")),
    _http("file-location", "a redirect to file:", "bad_location:scheme", _to("file:///etc/passwd")),
    _http("gopher-location", "a redirect to gopher:", "bad_location:scheme", _to("gopher://127.0.0.1:6379/_FLUSHALL")),
    _http("no-host-location", "a redirect to no host", "bad_location:no_host", _to("http://")),
    _http("long-location", "a redirect to a URL of 20,000 characters", "bad_location:too_long",
          _to("/" + "x" * 20_000)),
    HostileKind("split-location", "a Location with an escaped line end in it, which stays escaped", "FETCHED",
                pages={"/": (_to("/page%0d%0aSet-Cookie:%20a=b"),)}),
    HostileKind("raw-location", "a Location of raw bytes that are no UTF-8", "FETCHED",
                pages={"/": (_raw(b"/\xff\xe9"),)}),
    HostileKind("password-location", "a Location with a user name and a password", "FETCHED", pages={
        "/": (Send(lambda asked: redirect(f"http://user:secret@{asked.authority}/page")),)}),
    HostileKind("redirect-with-body", "a redirect with a body without end", "FETCHED", pages={
        "/": (Send(head("Location: /page", status="302 Found")), Flood(bytes(64 << 10)))}),
    HostileKind("redirect-silent", "a redirect whose body never comes", "FETCHED", pages={
        "/": (Send(head("Location: /page", "Content-Length: 10", status="302 Found")), Hush())}),
    *(_inner(name, spelled) for name, spelled in INNER.items()),
)  # fmt: skip

INNER_ANSWER: Final = answer(FOREIGN)
"""What an inner address says to who should never have come."""
