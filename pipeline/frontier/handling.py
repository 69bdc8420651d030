"""How a task is to be handled, as its sender said: what the frontier carries on and does not decide."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Handling(NamedTuple):
    """What a sender may say of a task beside its URL, its time and its priority.

    Attributes:
        parser: name of the parser; empty: chosen by source and content.
        max_depth: depth at which links are no longer followed; None: the crawl decides.
        interval_ms: pause between polls of recurring work; 0 for work that is done once.
        poll: number of the poll, from 1; 0 for work that is done once.
        render: whether the page needs a browser.
        headers_ref: name of configured request headers; empty for none.
    """

    parser: str = ""
    max_depth: int | None = None
    interval_ms: int = 0
    poll: int = 0
    render: bool = False
    headers_ref: str = ""


PLAIN: Final = Handling()
"""Of nearly every task: nothing was said."""

_HANDLING: Final = struct.Struct(">qQI?HH")


def handling_of(record: Mapping[str, Any]) -> Handling:
    """Return what a `Task` or `FrontierTask` record says."""
    handling = Handling(*(record[name] for name in Handling._fields))
    return PLAIN if handling == PLAIN else handling


def pack_handling(handling: Handling) -> bytes:
    """Pack what was said."""
    parser, headers_ref = handling.parser.encode(), handling.headers_ref.encode()
    depth = -1 if handling.max_depth is None else handling.max_depth
    head = _HANDLING.pack(depth, handling.interval_ms, handling.poll, handling.render, len(parser), len(headers_ref))
    return head + parser + headers_ref


def unpack_handling(packed: bytes, at: int = 0) -> Handling:
    """Inverse of `pack_handling`; it begins at `at` and ends the row."""
    depth, interval_ms, poll, render, parser_bytes, headers_bytes = _HANDLING.unpack_from(packed, at)
    at += _HANDLING.size
    parser = packed[at : at + parser_bytes].decode()
    headers_ref = packed[at + parser_bytes : at + parser_bytes + headers_bytes].decode()
    return Handling(parser, None if depth < 0 else depth, interval_ms, poll, render, headers_ref)
