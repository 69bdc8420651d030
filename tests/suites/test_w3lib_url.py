"""Scrapy's URL functions as a peer: where ours differ, row by row, and why."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipeline.web.url import RefusedUrl, canonicalize
from tests.suites.rows import suite_rows

SORTED = "w3lib sorts the fields of a query; ours keep their order, since some servers read it"
FIELDS = "w3lib drops or completes fields of a query; to a server they are different octets"
SPACES = "w3lib takes `%20` and `+` for one; they are only in forms (application/x-www-form-urlencoded)"
RESERVED = "w3lib escapes reserved characters of a query; RFC 3986 6.2.2.2 makes only unreserved ones equal"
SEPARATOR = "w3lib was told that `;` separates fields; the URL Standard knows `&` alone"
ENCODING = "w3lib was told the encoding of the page; ours stands in `encode_query`, the path is UTF-8 always"
FRAGMENT = "w3lib was told to keep the fragment, or keeps it in what it asks for; it is never sent"
CREDENTIALS = "user names and passwords are refused"
NOT_HTTP = "relative without a base, or not http: refused"
BAD_IDNA = "w3lib leaves a host that DNS can't hold as written; the URL Standard makes it punycode all the same"
NO_PATH = "w3lib keeps default port and empty path in what it asks for; the URL Standard's serialiser does not"

CANONICAL = {
    SORTED: (69, 74, 76, 78, 80, 81, 82, 99, 100, 101, 116),
    FIELDS: (70, 75, 77, 78),
    SPACES: (80, 82),
    RESERVED: (79, 101),
    SEPARATOR: (71,),
    ENCODING: (85, 86),
    FRAGMENT: (106, 127, 130),
    CREDENTIALS: (102, 103, 104, 118, 119),
    NOT_HTTP: (107, 108, 109, 110, 114),
    BAD_IDNA: (123, 124),
}
SAFE_STRING = {
    NOT_HTTP: (0, 1, 2, 3, 5, 14, 15, 16, 26, 29, 30, 31),
    BAD_IDNA: (17, 18),
    NO_PATH: (19, 25),
    FRAGMENT: (22, 24),
    CREDENTIALS: (27, 28, 32, 33, 34, 35, 36, 37),
}
SAFE_DOWNLOAD = {ENCODING: (43, 45)}


def by_row(prefix: str, reasons: Mapping[str, tuple[int, ...]]) -> dict[str, list[str]]:
    """Row to why it differs."""
    rows: dict[str, list[str]] = {}
    for reason, numbers in reasons.items():
        for number in numbers:
            rows.setdefault(f"{prefix}-{number}", []).append(reason)
    return rows


DIFFERENT = {
    **by_row("w3lib-canonicalize_url", CANONICAL),
    **by_row("w3lib-safe_url_string", SAFE_STRING),
    **by_row("w3lib-safe_download_url", SAFE_DOWNLOAD),
}


def text_of(argument: str | Mapping[str, str]) -> str:
    """A URL that w3lib was given as octets is text to us."""
    if isinstance(argument, str):
        return argument
    return argument["bytes_latin1"].encode("latin-1").decode("utf-8", "replace")


@pytest.mark.parametrize("row", suite_rows("w3lib/w3lib-canonicalize.jsonl"))
def test_canonical_urls_are_those_of_w3lib_but_for_the_rows_that_say_why(row):
    """A peer's rules are a second opinion; a row that begins to agree must lose its reason."""
    try:
        canonical = canonicalize(text_of(row["args"][0])).href
    except RefusedUrl:
        canonical = None
    assert (canonical == row["expect"]) is (row["id"] not in DIFFERENT)


@pytest.mark.parametrize("row", suite_rows("w3lib/w3lib-other.jsonl"))
def test_wire_urls_are_those_that_scrapy_asks_for_but_for_the_rows_that_say_why(row):
    """Sites are used to what Scrapy and browsers send."""
    if row["op"] not in {"safe_url_string", "safe_download_url"}:
        pytest.skip(f"{row['op']} removes the parameters it is told to; we have no such function")
    try:
        wire = canonicalize(text_of(row["args"][0])).wire
    except RefusedUrl:
        wire = None
    assert (wire == row["expect"]) is (row["id"] not in DIFFERENT)
