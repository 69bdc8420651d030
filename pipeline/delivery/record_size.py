"""How large a record is on the wire, never underrated: what a topic would refuse must be known before it is sent.

Kafka's record format v2 ("Record Batch" and "Record" of the protocol's message format). A topic's `max.message.bytes`
counts the batch; a record can always be the only one of its batch. Compression is left out: it may save nothing.
"""

from __future__ import annotations

from typing import Final

from pipeline.delivery.api import Output

RECORD_OVERHEAD_BYTES: Final = 512
"""Head of the batch (61) and of the record: length, attributes, deltas of time and offset, lengths of key and value,
count of headers (36 at most); the rest is room for clients that estimate more."""


def record_bytes(output: Output) -> int:
    """Return an upper bound of what a batch of this record alone takes, uncompressed."""
    headers = sum(header_bytes(name, value) for name, value in output.headers)
    return len(output.value or b"") + len(output.key or b"") + headers + RECORD_OVERHEAD_BYTES


def header_bytes(name: str, value: bytes | None) -> int:
    """Return what one header takes: name in UTF-8 and value, each behind its length."""
    name_bytes, value_bytes = len(name.encode()), len(value or b"")
    return _length_bytes(name_bytes) + name_bytes + _length_bytes(value_bytes) + value_bytes


def _length_bytes(length: int) -> int:
    """Return what a length takes: zigzag doubles it, and each byte carries seven bits."""
    return max(1, ((length << 1).bit_length() + 6) // 7)
