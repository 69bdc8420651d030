"""Address guard: which addresses a request may reach, judged where the connection is made.

A crawler asks for what strangers write, so a link, a redirect or a DNS answer must not make it speak to the network it
runs in. The guard judges addresses, not names: a name is resolved once, its addresses are judged, and only those that
pass reach the connector, which judges once more the address that a socket is about to connect to.
"""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp.abc import AbstractResolver, ResolveResult

from pipeline.errors import ConfigurationError, SiteError
from pipeline.fetch.steps import tell

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WEB_PORTS: Final = frozenset({80, 443})
FIRST_UNPRIVILEGED_PORT: Final = 1024
"""Below it live the services that must not be spoken to by somebody else's wish (SSH, mail, DNS, SMB); real sites use
80 and 443 there, and 8080, 8443 and their like above."""
BAD_PORTS: Final = frozenset(
    {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)
"""Fetch Standard, "bad port", those from 1024 on: protocols that take an HTTP request for their own."""

# IANA "IPv4 Special-Purpose Address Registry" and "IPv6 Special-Purpose Address Registry", what is not globally
# reachable; our own table, since that of `ipaddress` differs between Python versions.
_SPECIAL: Final[tuple[tuple[str, Network], ...]] = tuple(
    (kind, ipaddress.ip_network(text))
    for kind, texts in {
        "unspecified": ("0.0.0.0/8",),
        "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
        "cgnat": ("100.64.0.0/10",),
        "loopback": ("127.0.0.0/8",),
        "link_local": ("169.254.0.0/16",),
        "reserved": (
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
            "2001::/23",  # protocol assignments; Teredo, which is inside, is unwrapped before
            "2001:db8::/32",
            "3fff::/20",
        ),
        "multicast": ("224.0.0.0/4",),
    }.items()
    for text in texts
)
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_V6_KINDS: Final[tuple[tuple[str, ipaddress.IPv6Network], ...]] = (
    ("unspecified", ipaddress.IPv6Network("::/128")),
    ("loopback", ipaddress.IPv6Network("::1/128")),
    ("private", ipaddress.IPv6Network("fc00::/7")),
    ("link_local", ipaddress.IPv6Network("fe80::/10")),
    ("private", ipaddress.IPv6Network("fec0::/10")),
    ("multicast", ipaddress.IPv6Network("ff00::/8")),
    ("nat64_local", ipaddress.IPv6Network("64:ff9b:1::/48")),
)
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP_MARKS: Final = (0x0000_5EFE, 0x0200_5EFE)


class RefusedAddress(SiteError):  # noqa: N818 - the name says what happened to the address
    """An address or port that Headrace does not connect to.

    Attributes:
        reason: `blocked_address` or `blocked_port`; it goes to the outcome.
        kind: what the address is: `private`, `loopback`, `link_local`, `multicast`, `reserved`, `unspecified`, `cgnat`,
            `nat64_local`, or `port`.
    """

    def __init__(self, address: str, port: int, kind: str) -> None:
        reason = "blocked_port" if kind == "port" else "blocked_address"
        super().__init__(reason, f"{address} port {port} is not connected to: {kind}")
        self.kind = kind


class _Allowed(NamedTuple):
    network: Network
    port: int | None


class AddressGuard:
    """Judges addresses and ports.

    Args:
        allow: networks that are reached although they are refused by nature: `CIDR`, on the ports that are allowed
            everywhere, or `CIDR:port`, on that port alone, whatever it is; IPv6 with a port as `[CIDR]:port`.

    Raises:
        ConfigurationError: an entry is neither.
    """

    def __init__(self, allow: Sequence[str] = ()) -> None:
        self._allowed = tuple(_parse_allowed(entry) for entry in allow)

    def check(self, address: str, port: int) -> None:
        """Return when a connection may be made.

        Args:
            address: IPv4 or IPv6, as `getaddrinfo` gives it; a zone (`%eth0`) is ignored.
            port: TCP port.

        Raises:
            RefusedAddress: the address, or one that is embedded in it, is not of the public Internet, or the port is
                none where sites are. What is no address at all is refused too.
        """
        try:
            inner = embedded(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:
            raise RefusedAddress(address, port, "reserved") from None
        usual_port = port in WEB_PORTS or (port >= FIRST_UNPRIVILEGED_PORT and port not in BAD_PORTS)
        for part in inner:
            ports = {allowed.port for allowed in self._allowed if part in allowed.network}
            if port in ports:
                continue
            kind = _kind(part)
            if kind is not None and None not in ports:
                raise RefusedAddress(address, port, kind)
            if not usual_port:
                raise RefusedAddress(address, port, "port")

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Make the socket for a connection, where its address passes: aiohttp's `socket_factory`.

        aiohttp asks no resolver for an address that stands in the URL itself; here every connection comes by, with the
        address it is made to.

        Args:
            info: family, type, protocol, canonical name and socket address, as `getaddrinfo` gives them.

        Raises:
            RefusedAddress: see `check`.
        """
        family, kind, protocol, _, sockaddr = info
        try:
            self.check(sockaddr[0], sockaddr[1])
        except RefusedAddress as exc:
            tell("guard", address=sockaddr[0], port=sockaddr[1], allowed=False, kind=exc.kind)
            raise
        tell("guard", address=sockaddr[0], port=sockaddr[1], allowed=True, kind=None)
        return socket.socket(family=family, type=kind, proto=protocol)


class GuardedResolver(AbstractResolver):
    """Resolves names to addresses that the guard lets pass.

    Args:
        guard: judges each address.
        fixed: host pattern (`*` and `?` as in file names, lower case) to `address` or `address:port`, asked in order
            before the system's resolver; so a name under `.test` has an address. With a port, requests go to it
            whatever port their URL names.

    Raises:
        ConfigurationError: a fixed address is none.
    """

    def __init__(self, guard: AddressGuard, fixed: Mapping[str, str] | None = None) -> None:
        self._guard = guard
        self._fixed = [
            (re.compile(fnmatch.translate(pattern.lower())), *_parse_fixed(pattern, value))
            for pattern, value in (fixed or {}).items()
        ]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host that may be connected to.

        Raises:
            OSError: the name has no address.
            RefusedAddress: it has some, but none passes.
        """
        name = host.lower().removesuffix(".")
        refused: RefusedAddress | None = None
        passed: list[ResolveResult] = []
        fixed = self._lookup_fixed(name, port)
        found = fixed or await _lookup(host, port, family)
        tell("dns", host=host, addresses=[address for address, _ in found], configured=bool(fixed))
        for address, target_port in found:
            try:
                self._guard.check(address, target_port)
            except RefusedAddress as exc:
                tell("guard", address=address, port=target_port, allowed=False, kind=exc.kind)
                refused = exc
                continue
            passed.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=target_port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=socket.IPPROTO_TCP,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        if refused is not None and not passed:
            raise refused
        if not passed:
            raise OSError(f"{host} has no address")
        return passed

    async def close(self) -> None:
        """Nothing is held."""

    def _lookup_fixed(self, name: str, port: int) -> list[tuple[str, int]]:
        for pattern, address, fixed_port in self._fixed:
            if pattern.match(name):
                return [(address, fixed_port or port)]
        return []


def embedded(address: Address) -> tuple[Address, ...]:
    """Return the addresses that a packet to `address` ends at: those written inside an IPv6 address, or itself.

    IPv4-mapped (RFC 4291 2.5.5.2) and -compatible (2.5.5.1), 6to4 (RFC 3056), Teredo (RFC 4380: server and client),
    NAT64 (RFC 6052) and ISATAP (RFC 5214).
    """
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.teredo is not None:
        return address.teredo
    low = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    inner = address.ipv4_mapped or address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(low) > 1):  # ::0 and ::1 are addresses of their own
        inner = low
    if inner is not None:
        return (inner,)
    is_isatap = int(address) >> 32 & 0xFFFF_FFFF in _ISATAP_MARKS
    return (address, low) if is_isatap else (address,)


def _kind(address: Address) -> str | None:
    """Name what keeps an address from being public; None for a public one."""
    for kind, network in _SPECIAL:
        if address in network:
            return kind
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_V6:
        return next((kind for kind, network in _V6_KINDS if address in network), "reserved")
    return None


def _parse_allowed(entry: str) -> _Allowed:
    try:
        text, port = _split_port(entry)
        return _Allowed(ipaddress.ip_network(text, strict=False), port)
    except ValueError as exc:
        raise ConfigurationError(
            f"fetch.allow_addresses: {entry!r} is no network (10.0.0.0/8), network with port (10.0.0.0/8:8080, "
            f"[fd00::/8]:8080): {exc}"
        ) from exc


def _parse_fixed(pattern: str, value: str) -> tuple[str, int | None]:
    try:
        text, port = _split_port(value)
        return str(ipaddress.ip_address(text)), port
    except ValueError as exc:
        raise ConfigurationError(
            f"fetch.resolve: {pattern!r} = {value!r} is no address, alone or with a port: {exc}"
        ) from exc


def _split_port(text: str) -> tuple[str, int | None]:
    """Split `1.2.3.4:80`, `[::1]:80` and their networks; IPv6 without brackets has no port."""
    if text.startswith("["):
        inner, mark, rest = text[1:].partition("]")
        if not mark or (rest and not rest.startswith(":")):
            raise ValueError("brackets don't match")
        return inner, _port(rest[1:]) if rest else None
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address, _port(port)
    return text, None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 65_535):
        raise ValueError(f"port {text!r} is not between 1 and 65535")
    return int(text)


async def _lookup(host: str, port: int, family: int) -> list[tuple[str, int]]:
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except UnicodeError as exc:  # the name does not fit DNS: a label that is empty or longer than 63 bytes
        raise OSError(f"{host}: {exc}") from exc
    return list(dict.fromkeys((str(info[4][0]), int(info[4][1])) for info in infos))
