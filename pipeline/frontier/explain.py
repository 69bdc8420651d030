"""Why a URL was or wasn't fetched, read from the state of the partition that owns it."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.delivery.api import StateView
from pipeline.frontier.records import (
    DOMAINS,
    OUT,
    SEEN,
    Pace,
    PlaceKind,
    UrlState,
    unpack_out,
    unpack_pace,
    unpack_seen,
    url_row_key,
)
from pipeline.web.domains import registrable_domain
from pipeline.web.url import canonicalize, url_key

_HELD_BY: Final = {
    PlaceKind.HELD_BUDGET: "crawl_budget",
    PlaceKind.HELD_DOMAIN: "domain_budget",
    PlaceKind.HELD_UNKNOWN: "crawl_unknown",
}


class Explanation(NamedTuple):
    """What has become of a URL.

    Attributes:
        url: canonical.
        domain: registrable domain.
        state: `unknown`, `waiting`, `held`, `out`, `done` or `refused`.
        reason: for held: what holds it; for done: outcome, status and reason; for refused: why.
        depth: links followed from a start point.
        deliveries: how often it was given out.
        attempts: for out: attempts that failed before.
        since_ms: for out: when it was given out, milliseconds since the epoch; else 0.
        due_ms: for waiting: when its own time comes; else 0.
        domain_hold_until_ms: no request to the domain before (backoff, Retry-After); 0 for none.
    """

    url: str
    domain: str
    state: str
    reason: str = ""
    depth: int = 0
    deliveries: int = 0
    attempts: int = 0
    since_ms: int = 0
    due_ms: int = 0
    domain_hold_until_ms: int = 0


def explain(view: StateView, crawl: str, url: str) -> Explanation:
    """Say what has become of a URL in a crawl.

    Args:
        view: state of the partition that owns the URL's domain.
        crawl: id of the crawl.
        url: as written anywhere.

    Raises:
        RefusedUrl: no URL that could ever be fetched.
    """
    canonical = canonicalize(url)
    domain = registrable_domain(canonical.host)
    stored_pace = view.get(DOMAINS, domain.encode())
    pace = unpack_pace(stored_pace) if stored_pace else Pace()
    about = Explanation(canonical.href, domain, "unknown", domain_hold_until_ms=pace.hold_until_ms)
    key = url_row_key(crawl, url_key(canonical.href))
    packed = view.get(SEEN, key)
    if packed is None:
        return about
    row = unpack_seen(packed)
    about = about._replace(depth=row.depth, deliveries=row.deliveries)
    if row.state is UrlState.DONE:
        words = (row.outcome, str(row.status or ""), row.reason)
        return about._replace(state="done", reason=" ".join(word for word in words if word))
    if row.state is UrlState.REFUSED:
        return about._replace(state="refused", reason=row.reason)
    packed_out = view.get(OUT, key)
    if packed_out is not None:
        out = unpack_out(packed_out)
        task = out.task
        return about._replace(state="out", deliveries=task.deliveries, attempts=task.attempts, since_ms=out.emitted_ms)
    if row.place is None or row.place.kind is PlaceKind.WAITING:
        return about._replace(state="waiting", due_ms=row.place.due_ms if row.place else 0)
    return about._replace(state="held", reason=_HELD_BY[row.place.kind])
