"""Redirects: where a response sends us, and the cookies of a site that sends us to the same page again."""

from __future__ import annotations

import re
from typing import Final

from pipeline.errors import SiteError
from pipeline.fetch.client import Response
from pipeline.web.url import CanonicalUrl, RefusedUrl, canonicalize

STATUSES: Final = frozenset({301, 302, 303, 307, 308})
"""RFC 9110 15.4: those that name another place by Location. We only GET, so the method never changes."""
MAX_COOKIES: Final = 50
MAX_COOKIE_BYTES: Final = 4096
_COOKIE: Final = re.compile(r"[\x21-\x3a\x3c\x3e-\x7e]+=[\x20-\x3a\x3c-\x7e]*")
_GONE: Final = re.compile(r";[ \t]*max-age[ \t]*=[ \t]*(?:0|-[0-9]+)[ \t]*(?:;|$)", re.IGNORECASE)


def target(response: Response, base: str) -> CanonicalUrl:
    """Return the canonical URL that a redirect names.

    Args:
        response: with one of `STATUSES`.
        base: the URL that was asked for.

    Raises:
        SiteError: `no_location`: none or a blank one; `bad_location`: one that we don't fetch.

    Raw bytes are read as UTF-8, as browsers do; what is no UTF-8 is kept byte by byte (RFC 9110 10.2.2 wants a URI
    reference, where neither may stand).
    """
    values = response.values(b"location")
    location = values[0].strip(b" \t\r\n") if values else b""
    if not location:
        raise SiteError("no_location", f"status {response.status} without a Location")
    try:
        text = location.decode("utf-8")
    except UnicodeDecodeError:
        text = "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in location)
    try:
        return canonicalize(text, base)
    except RefusedUrl as exc:
        raise SiteError("bad_location", str(exc)) from exc


def leads_back(response: Response, url: str) -> bool:
    """Whether a response is a redirect to the very page that was asked for."""
    if response.status not in STATUSES:
        return False
    try:
        return target(response, url).href == url
    except SiteError:
        return False


class Cookies:
    """Cookies within one fetch of one URL: a cookie gate sets one and sends us to where we are.

    They go back only to the URL that set them, so their Domain and Path are met; nothing is kept after the fetch.
    """

    def __init__(self) -> None:
        self._pairs: dict[str, str] = {}

    def take(self, response: Response) -> bool:
        """Take what a response sets; return whether that changed anything."""
        before = dict(self._pairs)
        for value in response.values(b"set-cookie"):
            line = value.decode("latin-1")
            pair, _, _ = line.partition(";")
            pair = pair.strip(" \t")
            if len(pair) > MAX_COOKIE_BYTES or not _COOKIE.fullmatch(pair):
                continue
            name, _, content = pair.partition("=")
            if _GONE.search(line):
                self._pairs.pop(name, None)
            elif name in self._pairs or len(self._pairs) < MAX_COOKIES:
                self._pairs[name] = content
        return self._pairs != before

    def headers(self) -> dict[str, str]:
        """Return the request header, none while there are no cookies."""
        return (
            {"Cookie": "; ".join(f"{name}={content}" for name, content in self._pairs.items())} if self._pairs else {}
        )
