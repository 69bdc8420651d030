"""Rows packed by a stage, carried by the changelog in a contract record with the one field `row`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class ContractRows:
    """A `RowCodec`.

    Args:
        encode: record → value.
        decode: value → record; raises InputError.
    """

    def __init__(
        self, encode: Callable[[Mapping[str, Any]], bytes], decode: Callable[[bytes | None], Mapping[str, Any]]
    ) -> None:
        self._encode = encode
        self._decode = decode

    def wrap(self, row: bytes) -> bytes:
        return self._encode({"row": row})

    def unwrap(self, value: bytes) -> bytes:
        row: bytes = self._decode(value)["row"]
        return row
