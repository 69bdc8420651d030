from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigurationError
from pipeline.fetch.guard import AddressGuard, GuardedResolver, RefusedAddress, embedded


def refusal(address: str, port: int = 80, allow: tuple[str, ...] = ()) -> str | None:
    """Why the address is refused; None for one that passes."""
    try:
        AddressGuard(allow).check(address, port)
    except RefusedAddress as exc:
        return exc.kind
    return None


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "223.255.255.1", "2606:2800:21f:cb07:6820:80da::1"])
def test_public_addresses_pass(address):
    """They are what a crawler is for."""
    assert refusal(address) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("10.0.0.5", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("169.254.169.254", "link_local"),
        ("100.64.0.1", "cgnat"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("255.255.255.255", "reserved"),
        ("240.0.0.1", "reserved"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("203.0.113.7", "reserved"),
        ("192.88.99.1", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("fe80::1", "link_local"),
        ("fe80::1%eth0", "link_local"),
        ("ff02::1", "multicast"),
        ("2001:db8::1", "reserved"),
        ("3fff::1", "reserved"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("64:ff9b:1::a00:1", "nat64_local"),
        ("nonsense", "reserved"),
        ("", "reserved"),
    ],
)
def test_addresses_that_are_not_of_the_internet_are_refused(address, kind):
    """A link must not make us speak to the network we run in."""
    assert kind == refusal(address)


@pytest.mark.parametrize(
    ("form", "inner"),
    [
        ("::ffff:{v4}", "mapped"),
        ("::{v4}", "compatible"),
        ("64:ff9b::{v4}", "NAT64"),
        ("2002:{hex}::1", "6to4"),
        ("2001:0:{hex}:0:0:f7f7:f7f7", "Teredo server"),
        ("2001:0:808:808:0:0:{inverted}", "Teredo client"),
        ("2606:4700::5efe:{v4}", "ISATAP"),
    ],
)
@pytest.mark.parametrize(
    ("v4", "kind"),
    [("127.0.0.1", "loopback"), ("10.1.2.3", "private"), ("169.254.169.254", "link_local"), ("8.8.8.8", None)],
)
def test_an_address_inside_an_address_is_judged(form, inner, v4, kind):
    """A translator or tunnel on the way would deliver the packet to it."""
    number = int(ipaddress.IPv4Address(v4))
    inverted = number ^ 0xFFFF_FFFF
    address = form.format(
        v4=v4,
        hex=f"{number >> 16:x}:{number & 0xFFFF:x}",
        inverted=f"{inverted >> 16:x}:{inverted & 0xFFFF:x}",
    )
    assert kind == refusal(address), inner


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_judged_alike_in_every_wrapping(number):
    """One spelling that passes where another is refused is a hole."""
    v4 = ipaddress.IPv4Address(number)
    plain = refusal(str(v4))
    wrappings = [(0xFFFF << 32) | number, (0x64FF9B << 96) | number, (0x2002 << 112) | (number << 80)]
    assert [plain] * 3 == [refusal(str(ipaddress.IPv6Address(wrapped))) for wrapped in wrappings]


@given(st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address))
def test_only_global_unicast_ipv6_passes(address):
    """What IANA has not given out is not reached, whatever it will be."""
    if refusal(str(address)) is None:
        inner = embedded(address)
        assert all(
            isinstance(part, ipaddress.IPv4Address) or part in ipaddress.IPv6Network("2000::/3") for part in inner
        )


@pytest.mark.parametrize("port", [80, 443, 1024, 8080, 65535])
def test_ports_of_sites_pass(port):
    """Sites use the two of the web, and any that needs no privilege."""
    assert refusal("8.8.8.8", port) is None


@pytest.mark.parametrize("port", [0, 1, 22, 25, 53, 445, 1023, 6667, 10080])
def test_other_ports_are_refused(port):
    """Mail and its like read an HTTP request as commands."""
    with pytest.raises(RefusedAddress) as caught:
        AddressGuard().check("8.8.8.8", port)
    assert "blocked_port" == caught.value.reason


def test_a_network_is_opened_by_configuration():
    """The demo's web and an intranet crawl live on private addresses."""
    assert refusal("10.1.2.3", 80, ("10.0.0.0/8",)) is None
    assert "private" == refusal("192.168.0.1", 80, ("10.0.0.0/8",))
    assert "port" == refusal("10.1.2.3", 25, ("10.0.0.0/8",))


def test_a_network_is_opened_for_one_port_alone():
    """Opening the demo's port must not open the database beside it."""
    allow = ("127.0.0.1:8080", "[::1]:9090", "[fd00::/8]:25")
    assert refusal("127.0.0.1", 8080, allow) is None
    assert "loopback" == refusal("127.0.0.1", 8081, allow)
    assert "loopback" == refusal("127.0.0.2", 8080, allow)
    assert refusal("::1", 9090, allow) is None
    assert refusal("fd00::5", 25, allow) is None
    assert "private" == refusal("fd00::5", 80, allow)


def test_an_opened_network_is_open_in_every_spelling():
    """The rule is about the machine that is reached."""
    assert refusal("::ffff:10.0.0.1", 80, ("10.0.0.0/8",)) is None


@pytest.mark.parametrize("entry", ["", "nonsense", "10.0.0.0/8:", "10.0.0.0/8:x", "10.0.0.0/8:0", "[::1", "1.2.3.4:-1"])
def test_a_wrong_entry_is_named(entry):
    """An operator who mistypes must not believe that a network is open, or closed."""
    with pytest.raises(ConfigurationError, match=r"fetch\.allow_addresses"):
        AddressGuard([entry])


def test_the_socket_of_a_refused_address_is_never_made():
    """No resolver is asked for an address that stands in a URL: this is the last door."""
    with pytest.raises(RefusedAddress):
        AddressGuard().socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 8080)))
    AddressGuard().socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))).close()


class Answers:
    """A system resolver that gives fixed answers."""

    def __init__(self, *addresses):
        self.addresses = addresses
        self.asked = []

    async def __call__(self, host, port, **_):
        self.asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self.addresses]


@pytest.fixture
def system(monkeypatch):
    """Replace the system's resolver: `system("10.0.0.1", …)` returns the stand-in."""

    def install(*addresses):
        answers = Answers(*addresses)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answers)
        return answers

    return install


async def test_only_addresses_that_pass_are_resolved_to(system):
    """A name with a public and a private address must reach the public one alone."""
    system("8.8.8.8", "10.0.0.5", "8.8.8.8")
    found = await GuardedResolver(AddressGuard()).resolve("mixed.example", 80)
    assert [("8.8.8.8", 80)] == [(entry["host"], entry["port"]) for entry in found]


async def test_a_name_with_private_addresses_alone_is_refused(system):
    """It is no DNS failure, and must be counted as what it is."""
    system("10.0.0.5", "127.0.0.1")
    with pytest.raises(RefusedAddress, match="is not connected to"):
        await GuardedResolver(AddressGuard()).resolve("inside.example", 80)


async def test_a_name_without_addresses_is_a_dns_failure(system):
    """It is told from a refused connection by the kind of error."""
    system()
    with pytest.raises(OSError, match="no address"):
        await GuardedResolver(AddressGuard()).resolve("empty.example", 80)


async def test_a_name_that_fits_no_dns_is_a_dns_failure():
    """The standard library raises a UnicodeError for it."""
    with pytest.raises(OSError, match="aaa"):
        await GuardedResolver(AddressGuard()).resolve("a" * 70 + ".example", 80)


async def test_fixed_addresses_come_first_and_are_guarded_too(system):
    """Names under .test have no other; a pattern must not open what the allowlist does not."""
    answers = system("8.8.8.8")
    fixed = {"*.demo.test": "127.0.0.1", "six.test": "[::1]:9000", "*.test": "127.0.0.2:8081"}
    resolver = GuardedResolver(AddressGuard(["127.0.0.0/8", "::1"]), fixed)

    async def reached(host):
        return [(entry["host"], entry["port"]) for entry in await resolver.resolve(host, 8080)]

    assert [("127.0.0.1", 8080)] == await reached("a.demo.test")
    assert [("127.0.0.1", 8080)] == await reached("A.Demo.TEST.")
    assert [("127.0.0.2", 8081)] == await reached("demo.test")
    assert [("::1", 9000)] == await reached("six.test")
    assert [] == answers.asked
    assert [("8.8.8.8", 8080)] == await reached("site.example")
    with pytest.raises(RefusedAddress):
        await GuardedResolver(AddressGuard(), fixed).resolve("a.demo.test", 8080)


@pytest.mark.parametrize("value", ["", "host", "127.0.0.1:0", "10.0.0.0/8"])
def test_a_wrong_fixed_address_is_named(value):
    """An operator who mistypes must learn it at the start."""
    with pytest.raises(ConfigurationError, match=r"fetch\.resolve"):
        GuardedResolver(AddressGuard(), {"*.test": value})
