"""Canonical URLs and their keys: one page, one key, whoever wrote the link. And the wire URL, as it was written.

Two forms of a URL, in order of work:

- The **wire URL** is the URL Standard's own serialisation (url.spec.whatwg.org, by `ada_url`) without its fragment,
  which is never sent (RFC 9110 7.1). Everything else stands as it was written: it is what a browser would ask for.
- The **canonical URL** is made of the wire URL and says which spellings are one page. Its hash is the key:

  1. Escapes of unreserved characters are decoded, hex digits are upper case (RFC 3986 6.2.2.1 and 6.2.2.2). A path or
     a field of the query with a `%` that starts no escape keeps its escapes as they are: decoding beside such a `%`
     could form a new one (`%%341`).
  2. Tracking parameters (`pipeline.web.tracking`) are removed; a query that had nothing else goes with its `?`.

What is left alone, and why:

- The order of parameters: it can matter (repeated names, positional queries, signed URLs). A page fetched twice costs a
  request; two pages taken for one lose one of them, and nobody notices.
- The case of path and query: only scheme and host are without case (RFC 3986 6.2.2.1).
- An empty query that was written so: `/a?` and `/a` are different URLs (RFC 3986 6.2.3).
- A dot at the end of a host: the Standard keeps it. `pipeline.web.domains` counts both hosts to one domain.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, NamedTuple

import ada_url

from pipeline.errors import InputError
from pipeline.web.tracking import is_tracking

MAX_URL_BYTES: Final = 2_048
KEY_BYTES: Final = 16

Refusal = Literal["unparsable", "scheme", "credentials", "no_host", "port", "too_long"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CHANGING_ESCAPE: Final = re.compile(
    "%(?:"
    "2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe]"  # unreserved: - . 0-9 A-Z _ a-z ~
    "|[a-f][0-9A-Fa-f]|[0-9A-F][a-f])"  # lower-case hex digits
)
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_USER_INFO: Final = re.compile(r"[/\\]{2}[^/\\?#]*@")
_C0_OR_SPACE: Final = "".join(map(chr, range(0x21)))
_TAB_OR_NEWLINE: Final = str.maketrans("", "", "\t\n\r")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class RefusedUrl(InputError):  # noqa: N818 - the name says what happened to the URL
    """A URL that Headrace does not fetch.

    As an `InputError` it has the reason `invalid_task` and the field `url`.

    Attributes:
        refusal: why, one of `Refusal`.
    """

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__("invalid_task", message, field="url")
        self.refusal: Refusal = refusal


class CanonicalUrl(NamedTuple):
    """A URL in canonical form, in wire form, and the parts by which it is fetched.

    Attributes:
        href: the canonical URL, of which the key is made. ASCII, without fragment and credentials.
        host: lower case, punycode; an IPv6 address stands without brackets, as a resolver takes it.
        port: 1 to 65535; the scheme's own where the URL names none.
        scheme: `http` or `https`.
        wire: the wire URL, what a browser would ask for. ASCII, without fragment and credentials; at least as long as
            `href`.
    """

    href: str
    host: str
    port: int
    scheme: str
    wire: str


def canonicalize(url: str, base: str | None = None, *, max_bytes: int = MAX_URL_BYTES) -> CanonicalUrl:
    """Return the canonical form of `url`; canonicalising its wire URL or its canonical URL gives the same again.

    Args:
        url: any text, as it stood in a link, a task or a Location header; without `base` it must be absolute.
        base: the absolute URL that a relative `url` is resolved against.
        max_bytes: longest wire URL.

    Raises:
        RefusedUrl: `unparsable` (URL Standard, or a relative URL against an unusable base), `scheme` (none, or not http
            or https), `credentials`, `no_host`, `port` (not 1 to 65535), `too_long`. Nothing else is raised on any
            text.
    """
    try:
        wire = resolve(url, base)
    except ValueError:
        raise _refusal(url, base) from None
    scheme, _, rest = wire.partition(":")
    if scheme not in _DEFAULT_PORTS:
        raise RefusedUrl("scheme", f"{scheme[:32]!r} is not http or https")
    # The Standard writes such a URL as //authority/…: the path is never empty.
    authority = rest[2 : rest.index("/", 2)]
    if "@" in authority:
        raise RefusedUrl("credentials", "user name and password are not taken from a URL")
    if authority[0] == "[":
        host, _, written_port = authority[1:].partition("]")
        written_port = written_port[1:]
    else:
        host, _, written_port = authority.partition(":")
    if not host.strip("."):
        raise RefusedUrl("no_host", f"no host in {_shown(url)}")
    port = int(written_port) if written_port else _DEFAULT_PORTS[scheme]
    if port == 0:
        raise RefusedUrl("port", "port 0 is not between 1 and 65535")
    fragment = wire.find("#")
    if fragment >= 0:
        wire = wire[:fragment]
    if len(wire) > max_bytes:
        raise RefusedUrl("too_long", f"{len(wire)} bytes; at most {max_bytes}")
    return CanonicalUrl(canonical_form(wire), host, port, scheme, wire)


def canonical_form(wire: str) -> str:
    """Return the canonical URL of a wire URL; most are their own. It costs a tenth of `canonicalize`.

    Args:
        wire: as `CanonicalUrl.wire` has it. Any other text gives some text, and nothing is raised.
    """
    if "%" in wire and _CHANGING_ESCAPE.search(wire):
        wire = _normalize_escapes(wire)
    if "?" in wire:
        wire = _drop_tracking(wire)
    return wire


def url_key(href: str) -> bytes:
    """Return the key of a canonical URL: its 16-byte BLAKE2b (RFC 7693).

    The chance that any two of 3·10^8 URLs share a key is about 10^-22.
    """
    return hashlib.blake2b(href.encode(), digest_size=KEY_BYTES).digest()


def resolve(url: str, base: str | None = None) -> str:
    """Parse a URL of any scheme as the URL Standard says, and serialise it, with fragment and credentials.

    Args:
        url: any text; without `base` it must be absolute.
        base: what a relative `url` is resolved against.

    Raises:
        ValueError: the Standard's "failure".
    """
    try:
        return _parse(url, base)
    except ValueError:
        # The parser takes no lone surrogate; the Standard works on scalar values, where it is U+FFFD.
        text, against = _scalar_values(url), None if base is None else _scalar_values(base)
        if (text, against) == (url, base):
            raise
        return _parse(text, against)


def _parse(url: str, base: str | None) -> str:
    return ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)


def _scalar_values(text: str) -> str:
    """Replace lone surrogates by U+FFFD and join pairs (Infra Standard, "convert into a scalar value string")."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _normalize_escapes(wire: str) -> str:
    path_start = wire.find("/", len("https://"))
    if path_start < 0:  # no wire URL
        return wire
    path, mark, query = wire[path_start:].partition("?")
    fields = "&".join(map(_normalize_part, query.split("&")))
    return wire[:path_start] + _normalize_part(path) + mark + fields


def _normalize_part(part: str) -> str:
    return part if _LONE_PERCENT.search(part) else _CHANGING_ESCAPE.sub(_normal_escape, part)


def _normal_escape(match: re.Match[str]) -> str:
    escape = match[0]
    character = chr(int(escape[1:], 16))
    return character if character in _UNRESERVED else escape.upper()


def _drop_tracking(wire: str) -> str:
    start, _, query = wire.partition("?")
    fields = query.split("&")
    kept = [field for field in fields if not is_tracking(field.partition("=")[0])]
    if len(kept) == len(fields):
        return wire
    query = "&".join(kept)
    return f"{start}?{query}" if query else start


def _refusal(url: str, base: str | None) -> RefusedUrl:
    """Say why the parser failed; it does not tell itself."""
    text = url.strip(_C0_OR_SPACE).translate(_TAB_OR_NEWLINE)
    scheme = _SCHEME.match(text)
    if scheme is None:
        if base is None:
            return RefusedUrl("scheme", f"not an absolute http or https URL: {_shown(url)}")
        return RefusedUrl("unparsable", f"{_shown(url)} does not resolve against {_shown(base)}")
    if scheme[0][:-1].lower() not in _DEFAULT_PORTS:
        return RefusedUrl("scheme", f"{scheme[0][:32]!r} is not http or https")
    authority = re.split(r"[/\\?#]", text[scheme.end() :].lstrip("/\\"), maxsplit=1)[0].rpartition("@")[2]
    host, colon, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
    if not (host if colon else authority):
        return RefusedUrl("no_host", f"no host in {_shown(url)}")
    if colon and "]" not in port and not (port.isascii() and port.isdigit() and int(port[-6:]) <= 65_535):
        return RefusedUrl("port", f"port {port[:16]!r} is not between 1 and 65535")
    return RefusedUrl("unparsable", f"not a URL: {_shown(url)}")


def _shown(url: str) -> str:
    """A URL for a message: bounded, without user name and password, control characters or surrogates."""
    url = _USER_INFO.sub("//", url)
    return ascii(url if len(url) <= 128 else url[:125] + "...")
