"""All kinds of hostile sites, by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pipeline.local import (
    hostile_bodies,
    hostile_bombs,
    hostile_connections,
    hostile_heads,
    hostile_robots,
    hostile_ways,
)
from pipeline.local.hostile_kind import HostileKind

KINDS: Final[Mapping[str, HostileKind]] = {
    kind.name: kind
    for module in (
        hostile_bombs,
        hostile_heads,
        hostile_bodies,
        hostile_ways,
        hostile_robots,
        hostile_connections,
    )
    for kind in module.KINDS
}
PREFIX: Final = "hard-"
"""Of every hostile name, so that one pattern leads them all to the hostile web."""
_HOST: Final = re.compile(r"hard-([a-z][a-z0-9-]*?)-([1-9][0-9]*)(?:-x[0-9]+)?\.test\Z")


def host_name(kind: HostileKind, number: int) -> str:
    """Return the name of a host of a kind, which is a registrable domain, too; counted from 1."""
    return f"{PREFIX}{kind.name}-{number}.test"


def kind_of(host: str) -> HostileKind | None:
    """Return what a host is; None for a name of no kind."""
    found = _HOST.match(host.lower())
    return KINDS.get(found.group(1)) if found else None
