"""Registrable domains: the unit of ownership, hence of politeness and of partitioning.

By the algorithm that publicsuffix.org publishes with its list: of all rules that match a host the exception prevails,
else the longest; where none matches, the rule `*`. The registrable domain is the public suffix and one label more.

- The list is pinned with its package: a new list moves domains between partitions, so it arrives with a release, never
  by itself.
- The private section counts. `a.github.io` and `b.github.io` belong to different people, who each grant their own pace
  and publish their own robots.txt; without it one slow blog would hold up all others of its host. The price: a host of
  many small sites is asked at the sum of their paces; the limit by resolved address is for that.
- The root of a wildcard is a public suffix too (`*.kobe.jp` makes `kobe.jp` one). The published text leaves that out;
  browsers and the list's own linter have it so (publicsuffix/list issues 1989 and 2240).
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
        In lower case. The host itself, without brackets and dots at its end, for an IP address, a name without a dot
        (`localhost`), a public suffix (`co.uk`) and a name with an empty label (`a..b`). Whether a name can be resolved
        is not asked: underscores and labels of any length are labels.
    """
    host = host.lower().removeprefix("[").removesuffix("]").rstrip(".")
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
