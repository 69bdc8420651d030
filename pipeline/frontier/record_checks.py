"""What a schema can't say of a record: whether its numbers and names mean anything.

A number that is absurd harms later, where nobody knows any more what it came of: a sum that no record can hold ends
every worker that owns the partition. So it is refused where it comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.errors import InputError

Record = Mapping[str, Any]

MAX_TEXT_BYTES: Final = 255
"""Longest crawl id and name of a source, a parser or headers."""
MAX_CONCURRENCY: Final = 100
MAX_INTERVAL_MS: Final = 366 * 86_400_000
_NEVER_NEGATIVE: Final = (
    "depth", "submitted_at_ms", "not_before_ms", "timeout_ms", "concurrency", "max_depth", "interval_ms", "poll",
)  # fmt: skip
MAX_POLL: Final = 1 << 31
MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that RFC 3339 has: milliseconds since the epoch."""
_MOST: Final = {
    "concurrency": MAX_CONCURRENCY, "interval_ms": MAX_INTERVAL_MS, "poll": MAX_POLL,
    "submitted_at_ms": MAX_TIME_MS, "not_before_ms": MAX_TIME_MS,
}  # fmt: skip
MAX_REDIRECTS: Final = 100
"""Far more hops than fetch follows."""
MAX_RECEIVED_BYTES: Final = 1 << 40
"""Far more than one fetch receives; eight million of them still fit a sum."""
MAX_SHARE: Final = 1 << 48
"""The same of pages or bytes that partitions grant each other."""
MAX_STATUS: Final = 65_535
MAX_REQUESTS: Final = 1 << 30


def check_task(record: Record, max_url_bytes: int) -> None:
    """Check what the schema can't; the URL itself is checked where it is made canonical.

    Args:
        record: a `Task` record.
        max_url_bytes: longest URL of a hop.

    Raises:
        InputError: `invalid_task`, with the field at fault.
    """
    check_crawl(record["crawl"], "invalid_task")
    if not 1 <= record["priority"] <= 5:
        raise InputError("invalid_task", f"{record['priority']} is not between 1 and 5", field="priority")
    for field in _NEVER_NEGATIVE:
        if (record[field] or 0) < 0:
            raise InputError("invalid_task", f"{record[field]} is negative", field=field)
    for field in ("source", "parser", "headers_ref"):
        if len(record[field].encode()) > MAX_TEXT_BYTES:
            raise InputError("invalid_task", f"longer than {MAX_TEXT_BYTES} bytes", field=field)
    for field, most in _MOST.items():
        if record[field] > most:
            raise InputError("invalid_task", f"{record[field]} is more than {most}", field=field)
    if len(record["redirects"]) > MAX_REDIRECTS:
        raise InputError("invalid_task", f"more than {MAX_REDIRECTS} hops", field="redirects")
    if any(len(hop.encode()) > max_url_bytes for hop in record["redirects"]):
        raise InputError("invalid_task", f"a hop is longer than {max_url_bytes} bytes", field="redirects")


def check_crawl(crawl: str, reason: str) -> None:
    """Refuse an id that no crawl can have: it would make rows that nobody ever removes.

    Raises:
        InputError: with the reason.
    """
    if not crawl:
        raise InputError(reason, "is empty", field="crawl")
    if len(crawl.encode()) > MAX_TEXT_BYTES or "\0" in crawl:
        raise InputError(reason, f"longer than {MAX_TEXT_BYTES} bytes, or holds a zero byte", field="crawl")


def check_links(batch: Record) -> None:
    """Check a `Links` record; its URLs are looked at one by one.

    Raises:
        InputError: `schema_rejected`, with the field at fault.
    """
    check_crawl(batch["crawl"], "schema_rejected")
    for field in ("depth", "max_depth"):
        _check_number(batch, field)
    _check_number(batch, "found_at_ms", MAX_TIME_MS)
    if not 1 <= batch["priority"] <= 5:
        raise InputError("schema_rejected", f"{batch['priority']} is not between 1 and 5", field="priority")
    if len(batch["source"].encode()) > MAX_TEXT_BYTES:
        raise InputError("schema_rejected", f"longer than {MAX_TEXT_BYTES} bytes", field="source")


def check_outcome(outcome: Record) -> None:
    """Check a `FetchOutcome` record.

    Raises:
        InputError: `schema_rejected`, with the field at fault.
    """
    check_crawl(outcome["crawl"], "schema_rejected")
    _check_number(outcome, "bytes_wire", MAX_RECEIVED_BYTES)
    _check_number(outcome, "status", MAX_STATUS)
    _check_number(outcome, "requests", MAX_REQUESTS)


def check_grant(grant: Record) -> None:
    """Check the numbers of a `Grant` record.

    Raises:
        InputError: `schema_rejected`, with the field at fault.
    """
    check_crawl(grant["crawl"], "schema_rejected")
    for field in ("pages", "bytes", "day"):
        _check_number(grant, field, MAX_SHARE)
    if not (grant["pages"] or grant["bytes"]):
        raise InputError("schema_rejected", "neither pages nor bytes", field="pages")


def _check_number(record: Record, field: str, most: int | None = None) -> None:
    number = record[field] or 0
    if number < 0:
        raise InputError("schema_rejected", f"{number} is negative", field=field)
    if most is not None and number > most:
        raise InputError("schema_rejected", f"{number} is more than {most}", field=field)
