"""How a fetch ended: what a response or an error means, as a `FetchOutcome` says it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.errors import SiteError
from pipeline.fetch import redirects
from pipeline.fetch.body import BodyTooLarge
from pipeline.fetch.client import Response
from pipeline.fetch.guard import RefusedAddress
from pipeline.fetch.refreshes import refresh_target
from pipeline.fetch.wishes import NOTHING, Wishes
from pipeline.web.url import CanonicalUrl, canonical_form

Outcome = Literal[
    "FETCHED",
    "NOT_MODIFIED",
    "REDIRECTED",
    "HTTP_ERROR",
    "RATE_LIMITED",
    "NETWORK_ERROR",
    "ROBOTS_DENIED",
    "ROBOTS_UNREACHABLE",
    "DEFERRED",
    "TOO_LARGE",
    "REFUSED",
]

OVERLOADED: Final = frozenset({429, 503})
READABLE: Final = frozenset(
    {
        "",
        "text/html",
        "application/xhtml+xml",
        "text/plain",
        "text/xml",
        "application/xml",
        "application/json",
        "text/json",
        "application/rss+xml",
        "application/atom+xml",
    }
)
"""Media types that parsing can read; none named may be any of them. `+xml` and `+json` of application and text too."""
ANY_FILE: Final = frozenset({
    "application/gzip", "application/x-gzip", "application/octet-stream", "binary/octet-stream",
})  # fmt: skip
"""What servers send a file as whose name they don't know: sitemaps and feeds among them, packed ones above all."""
_FEED_FILE: Final = re.compile(
    r"\A[^?#]*(?:\.(?:xml|rss|atom|rdf)(?:\.gz)?|\.txt\.gz|/[^/?#]*sitemap[^/?#]*\.gz)(?:\?|\Z)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Ending:
    """One ending.

    Attributes:
        outcome: kind, as in the contract.
        reason: machine-readable detail; empty for FETCHED and NOT_MODIFIED; for REDIRECTED `refresh`, where the page
            itself named the target, else empty.
        status: HTTP status; None without an answer.
        location: target of REDIRECTED.
        address: the peer's.
        not_before_ms: for DEFERRED and ROBOTS_UNREACHABLE: when to come again, ms since the epoch.
        asked: what the site asked for.
    """

    outcome: Outcome
    reason: str = ""
    status: int | None = None
    location: CanonicalUrl | None = None
    address: str | None = None
    not_before_ms: int = 0
    asked: Wishes = NOTHING

    @property
    def is_refusal(self) -> bool:
        """Whether the site complained of too many requests, by number or in words."""
        return self.outcome == "RATE_LIMITED" or (self.outcome == "HTTP_ERROR" and self.status in OVERLOADED)

    @property
    def is_overload(self) -> bool:
        """Whether the site complained of too many requests, named a time, or allows no request for now."""
        return self.is_refusal or self.status in OVERLOADED or self.asked.rest_s is not None


def told_limit(response: Response, rule: str, asked: Wishes) -> Ending:
    """Say that an answer is a refusal, by the rule of this name, whatever its status is."""
    return Ending("RATE_LIMITED", f"told:{rule}", status=response.status, address=response.address, asked=asked)


def is_readable(response: Response, url: str) -> bool:
    """Whether parsing can read the response's type, or what a file of its name is in spite of it.

    Args:
        response: with its head.
        url: that was asked for.
    """
    media_type = response.media_type
    if media_type in READABLE:
        return True
    if media_type in ANY_FILE:
        return _FEED_FILE.search(url) is not None
    return media_type.startswith(("application/", "text/")) and media_type.endswith(("+xml", "+json"))


def wants_page(response: Response, url: str) -> bool:
    """Whether the body of the response would become a page; arguments as of `is_readable`."""
    return response.status == 200 and is_readable(response, url)


def judge(
    response: Response,
    *,
    url: str,
    chain: Collection[str],
    max_redirects: int,
    longest_refresh_s: float,
    is_conditional: bool,
    retry_truncated: bool,
    asked: Wishes,
) -> Ending:
    """Say how a fetch ended.

    Args:
        response: the answer.
        url: what was asked for.
        chain: URLs that led to it, as they were asked for, the oldest first.
        max_redirects: longest chain.
        longest_refresh_s: a page that leads to another one by itself within this time is a redirect.
        is_conditional: whether validators were sent.
        retry_truncated: whether a page that is not whole may be asked for again; else it is taken as it is.
        asked: what its headers ask for.
    """
    status = response.status
    location = None
    outcome: Outcome = "HTTP_ERROR"
    reason = f"http_{status}"
    if status in redirects.STATUSES:
        try:
            location = redirects.target(response, url)
            outcome, reason = "REDIRECTED", ""
        except SiteError as exc:
            reason = exc.reason
    elif status == 304:
        # Unasked, it is some cache's mistake and no ending: the page is asked for again.
        outcome, reason = ("NOT_MODIFIED", "") if is_conditional else ("NETWORK_ERROR", "unasked_304")
    elif status == 429:
        outcome = "RATE_LIMITED"
    elif status == 200:
        outcome, reason = _judge_page(response, url, retry_truncated=retry_truncated)
        if outcome == "FETCHED":
            location = refresh_target(response, url, longest_refresh_s)
            if location is not None:
                outcome, reason = "REDIRECTED", "refresh"
    if location is not None:
        fault = _chain_fault(response, location.href, [*chain, url], max_redirects)
        if fault:
            outcome, reason, location = "HTTP_ERROR", fault, None
    return Ending(outcome, reason, status=status, location=location, address=response.address, asked=asked)


def judge_error(error: SiteError) -> Ending:
    """Say how a fetch without an answer ended."""
    return Ending(_outcome_of(error), error.reason)


def _chain_fault(response: Response, location: str, asked: Collection[str], max_redirects: int) -> str:
    """Say what is wrong with a canonical location; a site that adds another parameter at each turn is a loop, too.

    A circle whose last turn set a cookie is a gate: with the cookie, which outlives no fetch, the way may lead on.
    """
    if location in map(canonical_form, asked):
        return "cookie_gate" if response.values(b"set-cookie") else "redirect_loop"
    return "too_many_redirects" if len(asked) > max_redirects else ""


def _judge_page(response: Response, url: str, *, retry_truncated: bool) -> tuple[Outcome, str]:
    if not is_readable(response, url):
        return "REFUSED", "content_type"
    if response.error is not None:
        return _outcome_of(response.error), response.error.reason
    body = response.body
    if body.truncated is not None and (retry_truncated or not body.data):
        return "NETWORK_ERROR", f"truncated:{body.truncated}"
    if not body.data:
        return "HTTP_ERROR", "empty_body"
    return "FETCHED", ""


def _outcome_of(error: SiteError) -> Outcome:
    if isinstance(error, BodyTooLarge):
        return "TOO_LARGE"
    if isinstance(error, RefusedAddress) or error.reason == "unsupported_encoding":
        return "REFUSED"
    return "NETWORK_ERROR"
