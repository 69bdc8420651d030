"""What `headrace crawl` does, worked out from its arguments: definition, scope, addresses, pace."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pipeline.errors import ConfigurationError
from pipeline.ops.crawl_definitions import LIMITS, check_definition
from pipeline.ops.submission import crawl_id
from pipeline.web.url import CanonicalUrl, canonicalize

LOOPBACK_DELAY_S = 0.05
USUAL_PORTS = (80, 443)
LOCALHOST = ("127.0.0.1", "::1")


class CrawlPlan(NamedTuple):
    """A crawl worked out.

    Attributes:
        definition: `crawl.crawls.v1-value` record.
        start_urls: as they were written (wire URLs), each page once, sorted by canonical URL.
        allow_addresses: networks that the guard must let through because a start point names them itself.
        delay_s: pause between requests to a domain; None for the configured one.
    """

    definition: dict[str, Any]
    start_urls: list[str]
    allow_addresses: list[str]
    delay_s: float | None


def plan_crawl(
    urls: Sequence[str],
    *,
    include: Sequence[str],
    exclude: Sequence[str],
    max_depth: int | None,
    delay_s: float | None,
    now: float,
    rules: Sequence[Mapping[str, str]] = (),
    budgets: Mapping[str, int | None] | None = None,
) -> CrawlPlan:
    """Work out a crawl.

    Args:
        urls: start points.
        include: globs of URLs to follow; none means everything on the start points' own sites (see `_origins`).
        exclude: globs of URLs never to follow, start points excepted. A glob without a scheme is looked for in the
            paths of the start points' own hosts: from their beginning when it begins with a slash, else anywhere.
        max_depth: links followed from a start point.
        delay_s: pause between requests to a domain; None takes a short one where every start point is on this machine.
        now: seconds since the epoch.
        rules: of the scope; they stand behind the start points and what is excluded, before what is included. Where one
            of them allows something, the start points' own sites are included only when `include` says so.
        budgets: limits by the name of their field, see `LIMITS`.

    Raises:
        InputError: a start point is unusable.
        ConfigurationError: there is none, or a rule or a budget is wrong.
    """
    starts = [canonicalize(url) for url in urls]
    if not starts:
        raise ConfigurationError("name at least one URL")
    # Sorted: the same command in another order is the same crawl.
    wires = {start.href: start.wire for start in reversed(starts)}
    hrefs = sorted(wires)
    origins = sorted({origin for start in starts for origin in _origins(start)})
    scope = [_rule("ALLOW", href) for href in hrefs]
    scope += [_rule("DENY", glob) for glob in _globs(exclude, origins)]
    scope += [dict(rule) for rule in rules]
    if not include and not any(rule["action"] == "ALLOW" for rule in rules):
        include = ["/*"]
    scope += [_rule("ALLOW", glob) for glob in _globs(include, origins)]
    definition = {
        "crawl": crawl_id(hrefs, scope, max_depth),
        "start_urls": hrefs,
        "scope": scope,
        "max_depth": max_depth,
        **dict.fromkeys(LIMITS),
        **(budgets or {}),
        "delay_ms": None,
        "created_at_ms": int(now * 1000),
    }
    check_definition(definition)
    local = sorted({address for start in starts for address in _own_addresses(start)})
    if delay_s is None and local and all(_own_addresses(start) for start in starts):
        delay_s = LOOPBACK_DELAY_S
    return CrawlPlan(definition, [wires[href] for href in hrefs], local, delay_s)


def _rule(action: str, pattern: str) -> dict[str, str]:
    """Return a rule of a scope that holds for every source."""
    return {"action": action, "pattern": pattern, "source": ""}


def _origins(url: CanonicalUrl) -> list[str]:
    """Return the origins of the site that a start point means.

    On the usual ports: its host with and without `www.`, by HTTP and HTTPS, since sites redirect between these, often
    from the very start point. A port of its own is one origin.
    """
    scheme, _, authority = url.href.split("/", 3)[:3]
    if url.port not in USUAL_PORTS or not _is_name(url.host):
        return [f"{scheme}//{authority}"]
    bare = url.host.removeprefix("www.")
    return [f"{each}://{prefix}{bare}" for each in ("http", "https") for prefix in ("", "www.")]


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False


def _globs(patterns: Sequence[str], origins: Sequence[str]) -> list[str]:
    globs: list[str] = []
    for wished in patterns:
        # Canonical URLs are ASCII.
        pattern = "".join(sign if "!" <= sign <= "~" else quote(sign) for sign in wished)
        if "://" in pattern:
            globs.append(pattern)
        else:
            # The slash ends the host: without it `*.pdf` would match on any host whose name begins like ours.
            path = pattern if pattern.startswith("/") else f"/*{pattern.removeprefix('*')}"
            globs += [origin + path for origin in origins]
    return globs


def _own_addresses(url: CanonicalUrl) -> list[str]:
    """Networks of a start point that names a loopback address itself: a person's own site on this machine."""
    if url.host == "localhost" or url.host.endswith(".localhost"):
        return [_network(ipaddress.ip_address(address), url.port) for address in LOCALHOST]
    try:
        address = ipaddress.ip_address(url.host.strip("[]"))
    except ValueError:
        return []
    address = getattr(address, "ipv4_mapped", None) or address  # the guard judges the address inside
    return [_network(address, url.port)] if address.is_loopback else []


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> str:
    """Write an address as `fetch.allow_addresses` takes it."""
    return f"{address}/32:{port}" if address.version == 4 else f"[{address}/128]:{port}"
