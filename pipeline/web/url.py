"""Canonical URLs and their keys: one page, one key, whoever wrote the link.

The parser is the URL Standard's (url.spec.whatwg.org), by `can_ada`. On top of it, in this order:

1. The fragment is dropped: it is never sent (RFC 9110 7.1).
2. Escapes of unreserved characters are decoded, hex digits are upper case (RFC 3986 6.2.2.1 and 6.2.2.2), and `^` in
   a path is escaped, a rule of the Standard that the parser does not have yet. A path or a field of the query with a
   `%` that starts no escape keeps its escapes as they are: decoding beside such a `%` could form a new one (`%%341`).
3. Tracking parameters (`TRACKING_PARAMETERS`) are removed; a query that had nothing else goes with its `?`.

What is left alone, and why:

- The order of parameters: it can matter (repeated names, positional queries, signed URLs).
- The case of path and query: only scheme and host are without case (RFC 3986 6.2.2.1).
- An empty query that was written so: `/a?` and `/a` are different URLs (RFC 3986 6.2.3).
- A dot at the end of a host: the Standard keeps it. `pipeline.web.domains` counts both hosts to one domain.

The canonical URL is also what is asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import can_ada

from pipeline.errors import InputError

MAX_URL_BYTES: Final = 2_048
KEY_BYTES: Final = 16

Refusal = Literal["unparsable", "scheme", "credentials", "no_host", "port", "too_long"]

TRACKING_PREFIX: Final = "utm_"
"""Google Analytics, "URL builders": utm_source, utm_medium and a growing family."""

TRACKING_PARAMETERS: Final[Mapping[str, str]] = {
    "gclid": "Google Ads, auto-tagging",
    "gclsrc": "Google Ads, auto-tagging",
    "gbraid": "Google Ads, auto-tagging of app campaigns",
    "wbraid": "Google Ads, auto-tagging of app campaigns",
    "gad_source": "Google Ads, auto-tagging",
    "gad_campaignid": "Google Ads, auto-tagging",
    "dclid": "Google Display & Video 360, click identifier",
    "srsltid": "Google Merchant Center, auto-tagging",
    "_gl": "Google Analytics, cross-domain linker",
    "fbclid": "Meta, click identifier",
    "igsh": "Instagram, share identifier",
    "igshid": "Instagram, share identifier",
    "msclkid": "Microsoft Advertising, auto-tagging",
    "twclid": "X Ads, click identifier",
    "ttclid": "TikTok Ads, click identifier",
    "li_fat_id": "LinkedIn Ads, first-party identifier",
    "epik": "Pinterest Ads, click identifier",
    "sccid": "Snapchat Ads, click identifier",
    "rdt_cid": "Reddit Ads, click identifier",
    "yclid": "Yandex Direct, click identifier",
    "ysclid": "Yandex Search, click identifier",
    "_openstat": "Openstat, campaign mark",
    "irclickid": "impact.com, click identifier",
    "mc_cid": "Mailchimp, campaign",
    "mc_eid": "Mailchimp, recipient",
    "mkt_tok": "Marketo, recipient",
    "vero_id": "Vero, recipient",
    "oly_enc_id": "Omeda Olytics, recipient",
    "oly_anon_id": "Omeda Olytics, visitor",
    "_hsenc": "HubSpot, e-mail tracking",
    "_hsmi": "HubSpot, e-mail tracking",
    "__hstc": "HubSpot, cross-domain linker",
    "__hssc": "HubSpot, cross-domain linker",
    "__hsfp": "HubSpot, cross-domain linker",
}
"""Parameter, in lower case, to whom adds it. Only names that their vendor documents as added on the way to the page.

Short or common names (`ref`, `source`, `cid`, `s_cid`) are not here: sites use them to choose the page.
"""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LONE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CHANGING_ESCAPE: Final = re.compile(
    "%(?:"
    "2[DdEe]|3[0-9]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe]"  # unreserved: - . 0-9 A-Z _ a-z ~
    "|[a-f][0-9A-Fa-f]|[0-9A-F][a-f])"  # lower-case hex digits
)
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
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
    """A URL in canonical form and the parts by which it is fetched.

    Attributes:
        href: ASCII, without fragment and credentials.
        host: lower case, punycode; an IPv6 address stands without brackets, as a resolver takes it.
        port: 1 to 65535; the scheme's own where the URL names none.
        scheme: `http` or `https`.
    """

    href: str
    host: str
    port: int
    scheme: str


def canonicalize(url: str, base: str | None = None, *, max_bytes: int = MAX_URL_BYTES) -> CanonicalUrl:
    """Return the canonical form of `url`; canonicalising it again changes nothing.

    Args:
        url: any text, as it stood in a link, a task or a Location header; without `base` it must be absolute.
        base: the absolute URL that a relative `url` is resolved against.
        max_bytes: longest canonical URL.

    Raises:
        RefusedUrl: `unparsable` (URL Standard, or a relative URL against an unusable base), `scheme` (none, or not http
            or https), `credentials`, `no_host`, `port` (not 1 to 65535), `too_long`. Nothing else is raised on any
            text.
    """
    parsed = _parse(url, base)
    href = parsed.href
    if href.startswith("https://"):
        scheme = "https"
    elif href.startswith("http://"):
        scheme = "http"
    else:
        raise RefusedUrl("scheme", f"{href.partition(':')[0][:32]!r} is not http or https")
    if parsed.has_credentials():
        raise RefusedUrl("credentials", "user name and password are not taken from a URL")
    host = parsed.hostname
    if not host.strip("."):
        raise RefusedUrl("no_host", f"no host in {_shown(url)}")
    if host[0] == "[":
        host = host[1:-1]
    written_port = parsed.port
    port = int(written_port) if written_port else _DEFAULT_PORTS[scheme]
    if port == 0:
        raise RefusedUrl("port", "port 0 is not between 1 and 65535")
    href = _normalize(href)
    if len(href) > max_bytes:
        raise RefusedUrl("too_long", f"{len(href)} bytes; at most {max_bytes}")
    return CanonicalUrl(href, host, port, scheme)


def url_key(href: str) -> bytes:
    """Return the key of a canonical URL: its 16-byte BLAKE2b (RFC 7693).

    The chance that any two of 3·10^8 URLs share a key is about 10^-22.
    """
    return hashlib.blake2b(href.encode(), digest_size=KEY_BYTES).digest()


def _parse(url: str, base: str | None) -> can_ada.URL:
    try:
        return can_ada.parse(url) if base is None else _base(base) + url
    except ValueError:
        raise _refusal(url, base) from None
    except TypeError:
        # can_ada takes no lone surrogate; the Standard works on scalar values, where it is U+FFFD.
        url, base = _scalar_values(url), None if base is None else _scalar_values(base)
    try:
        return can_ada.parse(url) if base is None else _base(base) + url
    except ValueError:
        raise _refusal(url, base) from None


@lru_cache(maxsize=64)
def _base(base: str) -> can_ada.URL:
    """Parse a base once: all links of a page share it."""
    return can_ada.parse(base)


def _scalar_values(text: str) -> str:
    """Replace lone surrogates by U+FFFD and join pairs (Infra Standard, "convert into a scalar value string")."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _normalize(href: str) -> str:
    """Steps 1 to 3 of the module's rules on a serialised URL; most URLs pass untouched."""
    fragment = href.find("#")
    if fragment >= 0:
        href = href[:fragment]
    if "^" in href or ("%" in href and _CHANGING_ESCAPE.search(href)):
        href = _normalize_escapes(href)
    if "?" in href:
        href = _drop_tracking(href)
    return href


def _normalize_escapes(href: str) -> str:
    path_start = href.index("/", len("https://"))
    path, mark, query = href[path_start:].partition("?")
    path = path.replace("^", "%5E")
    fields = "&".join(map(_normalize_part, query.split("&")))
    return href[:path_start] + _normalize_part(path) + mark + fields


def _normalize_part(part: str) -> str:
    return part if _LONE_PERCENT.search(part) else _CHANGING_ESCAPE.sub(_normal_escape, part)


def _normal_escape(match: re.Match[str]) -> str:
    escape = match[0]
    character = chr(int(escape[1:], 16))
    return character if character in _UNRESERVED else escape.upper()


def _drop_tracking(href: str) -> str:
    start, _, query = href.partition("?")
    fields = query.split("&")
    kept = [field for field in fields if not _is_tracking(field.partition("=")[0].lower())]
    if len(kept) == len(fields):
        return href
    query = "&".join(kept)
    return f"{start}?{query}" if query else start


def _is_tracking(name: str) -> bool:
    return name in TRACKING_PARAMETERS or name.startswith(TRACKING_PREFIX)


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
    """A URL for a message: bounded, and without control characters or surrogates."""
    return ascii(url if len(url) <= 128 else url[:125] + "...")
