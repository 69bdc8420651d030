"""The URL Standard's own tests. Every row is compared exactly; what we refuse by rules of our own is named by row."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.parse.links import encode_query
from pipeline.web.url import RefusedUrl, canonicalize, resolve
from tests.suites.rows import suite_rows

FAILURE = {"unparsable", "scheme", "no_host", "port"}
"""How we call the Standard's "failure": the parser gives no reason, ours is told from the text."""

DNS_LENGTH = (
    "a whole URL judged by the lengths of DNS (VerifyDnsLength): the Standard asks authors for them, not parsers; "
    "a name that DNS can't hold ends its fetch as unresolvable"
)
DOTS = ".\u3002"
"""Hosts of dots alone, and the empty one, are names to the Standard's ToASCII; no host has them, so we refuse them."""


def refusal_of(row: dict[str, Any]) -> str | None:
    """Why we refuse a URL that the Standard takes; None where we take it too."""
    parts = row["expect"]
    if parts["protocol"] not in {"http:", "https:"}:
        return "scheme"
    if parts["username"] or parts["password"]:
        return "credentials"
    if not parts["hostname"].strip("."):
        return "no_host"
    return "port" if parts["port"] == "0" else None


@pytest.mark.parametrize("row", suite_rows("whatwg-url/url-parse.jsonl"))
def test_urls_are_parsed_as_by_the_standard(row):
    """What a browser follows we follow, to the same page; what it doesn't, we refuse. All schemes, all rows."""
    if row["failure"]:
        with pytest.raises(ValueError, match=r"."):
            resolve(row["input"], row["base"])
    else:
        assert row["expect"]["href"] == resolve(row["input"], row["base"])


@pytest.mark.parametrize("row", suite_rows("whatwg-url/url-parse.jsonl"))
def test_wire_urls_are_the_standards_or_refused_for_a_reason(row):
    """The wire URL is what a browser asks for; beside the Standard's failures only four rules of ours refuse one."""
    expected = FAILURE if row["failure"] else {refusal_of(row)} - {None}
    if expected:
        with pytest.raises(RefusedUrl) as caught:
            canonicalize(row["input"], row["base"], max_bytes=1 << 20)
        assert caught.value.refusal in expected
        return
    url = canonicalize(row["input"], row["base"], max_bytes=1 << 20)
    assert row["expect"]["href"].partition("#")[0] == url.wire
    host = row["expect"]["hostname"].removeprefix("[").removesuffix("]")
    default_port = 443 if url.scheme == "https" else 80
    assert (host, int(row["expect"]["port"] or default_port)) == (url.host, url.port)


@pytest.mark.parametrize("row", suite_rows("whatwg-url/idna-toascii.jsonl"))
def test_hosts_become_punycode_as_by_the_standard(row):
    """One host, one name: a wrong one would be another site."""
    if row["from"] != "wpt":
        assert row["output"] is None, DNS_LENGTH
        assert row["input"].removesuffix("/") + "/" == canonicalize(row["input"]).wire
        return
    url = f"http://{row['input']}:80/x"
    if row["output"] is None or not row["input"].strip(DOTS):
        with pytest.raises(RefusedUrl):
            canonicalize(url)
    else:
        assert row["output"] == canonicalize(url).host


STATELESS = "shift characters are errors only in the stateful ISO-2022-JP encoder; as octets they mean the same"
PRIVATE_USE = "U+E5E5 is in private use, and gb18030 in Python writes it; no page names a document by it"
OTHER_OCTETS = {
    ("percent-3", "iso-2022-jp"): STATELESS,
    ("percent-5", "gb18030"): PRIVATE_USE,
}
NAMES = {
    "big5": "Big5", "euc-kr": "EUC-KR", "gb18030": "gb18030", "iso-2022-jp": "ISO-2022-JP",
    "iso-8859-2": "ISO-8859-2", "shift_jis": "Shift_JIS", "utf-8": "UTF-8", "windows-1252": "windows-1252",
}  # fmt: skip


@pytest.mark.parametrize("row", suite_rows("whatwg-url/percent-encoding.jsonl"))
def test_queries_are_escaped_in_the_encoding_of_their_page(row):
    """A search on a page in Shift_JIS that was escaped as UTF-8 would ask for other words."""
    for encoding, escaped in row["expect"].items():
        written = encode_query(f"http://h.example/?{row['input']}", NAMES[encoding])
        same = f"http://h.example/?{escaped}" == canonicalize(written).wire
        assert same is ((row["id"], encoding) not in OTHER_OCTETS)
