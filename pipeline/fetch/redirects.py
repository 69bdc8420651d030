"""Redirects: where a response sends us, and how a page is asked for again that a site sends us back to."""

from __future__ import annotations

import re
from typing import Final

from pipeline.errors import SiteError
from pipeline.fetch.client import Response
from pipeline.web.url import CanonicalUrl, RefusedUrl, canonicalize, resolve

STATUSES: Final = frozenset({301, 302, 303, 307, 308})
"""RFC 9110 15.4: those that name another place by Location. We only GET, so the method never changes."""
MAX_COOKIES: Final = 50
MAX_COOKIE_BYTES: Final = 4096
_AUTHORITY: Final = re.compile(r"\A(https?://)[^/?#]*@")
_COOKIE: Final = re.compile(r"[\x21-\x3a\x3c\x3e-\x7e]+=[\x20-\x3a\x3c-\x7e]*")
_GONE: Final = re.compile(r";[ \t]*max-age[ \t]*=[ \t]*(?:0|-[0-9]+)[ \t]*(?:;|$)", re.IGNORECASE)


def target(response: Response, base: str) -> CanonicalUrl:
    """Return the URL that a redirect names.

    Args:
        response: with one of `STATUSES`.
        base: the URL that was asked for.

    Raises:
        SiteError: `no_location`: none or a blank one; `several_locations`: some that differ; `bad_location:` and why
            (see `canonicalize`): one that we don't fetch, such as `javascript:` (`scheme`).
    """
    # Lines that say the same are one (Fetch Standard, "location URL": of several, none can be trusted).
    locations = {value.strip(b" \t\r\n") for value in response.values(b"location")}
    if len(locations) > 1:
        raise SiteError("several_locations", f"status {response.status} with {len(locations)} different Locations")
    location = locations.pop() if locations else b""
    if not location:
        raise SiteError("no_location", f"status {response.status} without a Location")
    return followed(text_of(location), base)


def text_of(value: bytes) -> str:
    """Read a URL reference in a header.

    Raw bytes are read as UTF-8, as browsers do; what is no UTF-8 is kept byte by byte (RFC 9110 10.2.2 wants a URI
    reference, where neither may stand).
    """
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in value)


def followed(written: str, base: str) -> CanonicalUrl:
    """Return the URL that a page leads to; a user name and a password in it are dropped.

    Args:
        written: as the site names it.
        base: what it is resolved against.

    Raises:
        SiteError: `bad_location:` and why.
    """
    try:
        try:
            return canonicalize(written, base)
        except RefusedUrl as exc:
            if exc.refusal != "credentials":
                raise
        return canonicalize(_AUTHORITY.sub(r"\1", resolve(written, base)))
    except RefusedUrl as exc:
        raise SiteError(f"bad_location:{exc.refusal}", str(exc)) from exc


def leads_back(response: Response, url: CanonicalUrl) -> CanonicalUrl | None:
    """Return the target of a redirect to the very page that was asked for, in whatever spelling; None for all else."""
    if response.status not in STATUSES:
        return None
    try:
        location = target(response, url.wire)
    except SiteError:
        return None
    return location if location.href == url.href else None


class SamePage:
    """One page within one fetch, which its site may send us back to.

    It may do so under another spelling of the URL (`/a` leads to `/a?utm_source=rss`, `/~u` to `/%7Eu`), or for a
    cookie that it sets on the way (a cookie gate). Neither can be handed on: by its key it would be the same task. So
    the page is asked for again, until its site leads to a spelling that it was asked for by already, with the same
    cookies: the answer would be the same, too.

    Args:
        url: to begin with.

    Attributes:
        url: to ask for next.
    """

    def __init__(self, url: CanonicalUrl) -> None:
        self.url = url
        self._cookies = Cookies()
        self._asked: set[tuple[str, str | None]] = set()

    def headers(self) -> dict[str, str]:
        """Return the header for the next request, none while there are no cookies."""
        return self._cookies.headers()

    def goes_on(self, response: Response) -> bool:
        """Take the response to the last request; return whether the page is to be asked for again."""
        location = leads_back(response, self.url)
        if location is None:
            return False
        self._asked.add(self._question(self.url))
        self._cookies.take(response)
        if self._question(location) in self._asked:
            return False
        self.url = location
        return True

    def _question(self, url: CanonicalUrl) -> tuple[str, str | None]:
        return url.wire, self.headers().get("Cookie")


class Cookies:
    """Cookies within one fetch of one page.

    They go back only to the page that set them: the host is the same, and so is the path but for its escapes. So their
    Domain and Path are met; nothing is kept after the fetch.
    """

    def __init__(self) -> None:
        self._pairs: dict[str, str] = {}

    def take(self, response: Response) -> None:
        """Take what a response sets."""
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

    def headers(self) -> dict[str, str]:
        """Return the request header, none while there are no cookies."""
        return (
            {"Cookie": "; ".join(f"{name}={content}" for name, content in self._pairs.items())} if self._pairs else {}
        )
