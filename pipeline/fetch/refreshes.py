"""Refreshes that are redirects: a page that leads to another one by itself, before anybody could have read it."""

from __future__ import annotations

from typing import Final

from pipeline.errors import SiteError
from pipeline.fetch.client import Response
from pipeline.fetch.redirects import followed, text_of
from pipeline.web.refresh import Refresh, declared_refresh, parse_refresh
from pipeline.web.url import CanonicalUrl, canonical_form, resolve

HTML: Final = frozenset({"", "text/html", "application/xhtml+xml"})


def refresh_target(response: Response, url: str, longest_s: float) -> CanonicalUrl | None:
    """Return where a page leads by a Refresh header or, in HTML, by a meta element; the header goes before.

    Args:
        response: a page with its body.
        url: that it was asked for by.
        longest_s: a page that stays for longer is a page: somebody is meant to read it.

    Returns:
        None where it stays, leads to itself (it is one that is loaded anew), or to what is not fetched.
    """
    for refresh, base in _refreshes(response, url):
        if refresh.delay_s > longest_s or refresh.url is None:
            continue
        try:
            location = followed(refresh.url, base)
        except SiteError:
            continue
        if location.href != canonical_form(url):
            return location
    return None


def _refreshes(response: Response, url: str) -> list[tuple[Refresh, str]]:
    found: list[tuple[Refresh, str]] = []
    headers = response.values(b"refresh")
    if headers and (refresh := parse_refresh(text_of(headers[0]))) is not None:
        found.append((refresh, url))
    if response.media_type in HTML:
        declared = declared_refresh(response.body.data, response.content_type)
        if declared is not None:
            found.append((declared.refresh, _base(declared.base, url)))
    return found


def _base(href: str | None, url: str) -> str:
    if href is None:
        return url
    try:
        base = resolve(href, url)
    except ValueError:
        return url
    return base if base.startswith(("http://", "https://")) else url
