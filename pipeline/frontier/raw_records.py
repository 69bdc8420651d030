"""Records of a crawl without a definition, kept as they came until somebody tells it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from pipeline.delivery.api import StateView
from pipeline.errors import InputError
from pipeline.frontier.held import Group, held_prefix
from pipeline.frontier.records import HELD, PACKING, PlaceKind
from pipeline.web.url import canonicalize, url_key

_TASK: Final = b"t"
_REPLAYED: Final = b"r"
"""A task with how often it came back from the dead letters before it."""
_LINKS: Final = b"l"
_REPLAYS: Final = struct.Struct(">I")
_PUNYCODE: Final = "xn--"


class RawRecord(NamedTuple):
    """A record as it came.

    Attributes:
        value: an encoded `Task`, or `LinkBatch`.
        is_links: whether it is a `LinkBatch`.
        replays: of a task: how often it came back from the dead letters.
    """

    value: bytes
    is_links: bool = False
    replays: int = 0


def pack_raw(record: RawRecord) -> bytes:
    """Pack a record for `HELD`."""
    kind = _LINKS if record.is_links else _TASK
    if record.replays:
        kind = _REPLAYED + _REPLAYS.pack(record.replays)
    return bytes((PACKING,)) + kind + record.value


def unpack_raw(packed: bytes) -> RawRecord:
    """Unpack it."""
    kind, value = packed[1:2], packed[2:]
    if kind != _REPLAYED:
        return RawRecord(value, kind == _LINKS)
    return RawRecord(value[_REPLAYS.size :], replays=_REPLAYS.unpack_from(value)[0])


def may_be_of_domain(packed: bytes, domain: str) -> bool:
    """Return whether a kept record may be a task of a domain: a look at its bytes, which decodes nothing.

    A domain with Unicode letters may be written in many ways, so that any task may be its own. A host that is written
    with percent signs is missed.
    """
    return packed[1:2] != _LINKS and (_PUNYCODE in domain or domain.encode() in packed.lower())


def find_task(
    view: StateView, decode: Callable[[bytes], dict[str, Any]], crawl: str, domain: str, key: bytes, *, most: int
) -> tuple[dict[str, Any], int] | None:
    """Look for the task of a URL among the records that wait for a crawl's definition.

    Args:
        view: of the partition.
        decode: for `Task` records.
        crawl: which has no definition.
        domain: registrable domain of the URL.
        key: of the URL.
        most: records that are looked at.

    Returns:
        The `Task` record and its replays; None where it is not among the first `most`.
    """
    for packed in _first(view, crawl, most):
        if not may_be_of_domain(packed, domain):
            continue
        raw = unpack_raw(packed)
        record = decode(raw.value)
        try:
            href = canonicalize(record["url"]).href
        except InputError:  # limits were others when it came
            continue
        if key == url_key(href):
            return record, raw.replays
    return None


def _first(view: StateView, crawl: str, most: int) -> Iterator[bytes]:
    prefix = held_prefix(Group(PlaceKind.RAW_UNKNOWN, crawl))
    return (packed for _, packed in islice(view.items(HELD, prefix), most))
