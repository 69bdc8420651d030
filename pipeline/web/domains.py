"""Registrable domains: the unit of ownership, hence of politeness and of partitioning.

From the public suffix list (publicsuffix.org), pinned with its package: a new list moves domains between partitions,
so it arrives with a release, never by itself. The private section counts: `a.github.io` and `b.github.io` belong to
different people, who each grant their own pace and publish their own rules.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

import publicsuffixlist

PSL_VERSION: Final[str] = publicsuffixlist.__version__
"""Version of the list; its last part is the list's date. Link records name it."""

_SUFFIXES: Final = publicsuffixlist.PublicSuffixList(only_icann=False)


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """Return the public suffix of a host and the label before it.

    Args:
        host: a name as a canonical URL has it (punycode), with or without a dot at its end, or an IP address, IPv6 with
            or without brackets.

    Returns:
        In lower case. The host itself, without dot and brackets, for an IP address, a name without a dot
        (`localhost`), a public suffix (`co.uk`) and a name that is none (`a..b`). A suffix that the list does not know
        is taken for one label (the list's own rule `*`).
    """
    host = host.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    if _is_address(host):
        return host
    return _SUFFIXES.privatesuffix(host) or host


def _is_address(host: str) -> bool:
    # Cheap first: an IPv4 address ends in a digit (URL Standard, "ends in a number"), only IPv6 has a colon.
    if ":" not in host and not host[-1:].isdigit():
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
