from __future__ import annotations

import re

import pytest

from pipeline.web.url import RefusedUrl, canonicalize
from tests.suites.rows import suite_rows

OLD_IDNA = "the parser refuses ASCII labels with invalid punycode, as the Standard did; registries give none out"
OLD_DATA = "the parser's Unicode data is older than the Standard's; the character is in no name that can be registered"
SHARP_S = "the parser's Unicode data is older than the Standard's: capital sharp s is two letters in it"
DOTS = "a host of dots alone can't be resolved"
OTHER_INPUT = (
    "the row is no host: empty, or a whole URL judged by the lengths of DNS, which the URL Standard does not ask"
)
DEVIATIONS = {
    "wpt-urltestdata-310": OLD_IDNA,
    "wpt-urltestdata-311": OLD_IDNA,
    "wpt-urltestdata-313": OLD_IDNA,
    "wpt-urltestdata-314": OLD_IDNA,
    "wpt-urltestdata-315": OLD_IDNA,
    "wpt-urltestdata-316": OLD_IDNA,
    "wpt-urltestdata-917": OLD_IDNA,
}
"""Rows that the Standard takes and we refuse, each with the reason."""

ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def standard_form(row) -> str | None:
    """The Standard's serialisation without fragment; None where we refuse the URL by a rule of our own.

    Rules of our own that never show in the rows are not looked at: no row has a tracking parameter.
    """
    parts = row["expect"]
    if parts["protocol"] not in {"http:", "https:"} or parts["username"] or parts["password"]:
        return None
    if parts["port"] == "0" or not parts["hostname"].strip("."):
        return None
    return parts["href"].partition("#")[0]


def unescaped(href: str) -> str:
    """The URL with escapes of unreserved characters decoded and the others in upper case (RFC 3986 6.2.2)."""

    def normal(match: re.Match[str]) -> str:
        character = chr(int(match[0][1:], 16))
        unreserved = character.isascii() and (character.isalnum() or character in "-._~")
        return character if unreserved else match[0].upper()

    return ESCAPE.sub(normal, href)


@pytest.mark.parametrize("row", suite_rows("whatwg-url/url-parse.jsonl"))
def test_urls_are_parsed_as_by_the_standard(row):
    """What a browser follows we follow, to the same page; what it doesn't, we refuse."""
    expected = None if row["failure"] or row["id"] in DEVIATIONS else standard_form(row)
    try:
        canonical = canonicalize(row["input"], row["base"], max_bytes=1 << 20)
    except RefusedUrl:
        assert expected is None
        return
    assert expected is not None
    assert unescaped(expected) == unescaped(canonical.href)
    host = row["expect"]["hostname"].removeprefix("[").removesuffix("]")
    default_port = 443 if canonical.scheme == "https" else 80
    assert (host, int(row["expect"]["port"] or default_port)) == (canonical.host, canonical.port)


REFUSED_CHARACTERS = dict.fromkeys(
    "\u04c0\u06b9\u075a\u08bb\u115f\u1160\u17b4\u180e\u206b\u2132\u2183\uffa0\U00010a57\U0001d175\U0001e903\U0001e925"
    "\U0002f868\U0002f874\U0002f91f\U0002f95f\U0002f9bf\U00032931\U00032b9a" + "".join(map(chr, range(0x10A0, 0x10C6))),
    OLD_DATA,
)
OTHER_NAMES = {
    "toascii-86": SHARP_S,
    "toascii-87": SHARP_S,
    "IdnaTestV2-66": SHARP_S,
    "IdnaTestV2-67": SHARP_S,
}


def may_be_refused(host: str) -> str | None:
    """Why a host that the Standard takes may be refused, None where it may not."""
    if host.isascii() and "xn--" in host.lower():
        return OLD_IDNA
    if not host.strip(".\u3002"):
        return DOTS
    return next((REFUSED_CHARACTERS[character] for character in host if character in REFUSED_CHARACTERS), None)


@pytest.mark.parametrize("row", suite_rows("whatwg-url/idna-toascii.jsonl"))
def test_hosts_become_punycode_as_by_the_standard(row):
    """One host, one name. A rare name refused is a page less; a wrong name would be another site."""
    if row["from"] != "wpt" or not row["input"]:
        pytest.skip(OTHER_INPUT)
    try:
        host = canonicalize(f"http://{row['input']}/x").host
    except RefusedUrl:
        assert row["output"] is None or may_be_refused(row["input"])
        return
    assert (host == row["output"]) is (row["id"] not in OTHER_NAMES)


@pytest.mark.parametrize("row", suite_rows("whatwg-url/percent-encoding.jsonl"))
def test_queries_are_escaped_as_utf8(row):
    """Pages in other encodings write other octets; the pipeline's URLs are text already, so UTF-8 holds."""
    assert f"http://h.example/?{row['expect']['utf-8']}" == canonicalize(f"http://h.example/?{row['input']}").href
