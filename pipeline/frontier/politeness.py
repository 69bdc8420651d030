"""Politeness: how often a domain is asked, and what it is granted after trouble. Pure: time is an argument.

All times are milliseconds since the epoch, all pauses milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.frontier.records import Pace

LONGEST_BACKOFF_MS: Final = 86_400_000
BACKOFF_JITTER: Final = 0.25
"""Most that is added to a backoff, as a share of it: domains that broke down together come back apart."""
LONGEST_CRAWL_DELAY_MS: Final = 86_400_000
"""A longer Crawl-delay is taken for this: it is a slip of the pen, and the domain would never be asked again."""
MAX_HOST_DELAYS: Final = 32
"""Hosts of one domain whose Crawl-delay is remembered; of more, the longest delays are kept."""


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, never later than `seconds`, but exact for a time that was made from milliseconds."""
    return int(seconds * 1000 + 0.001)


def delay_ms(configured_ms: int, crawl_ms: int | None, pace: Pace) -> int:
    """Return the pause between two requests to a domain: the longest of what was configured and what was asked for.

    Args:
        configured_ms: for every domain.
        crawl_ms: the crawl's own; None where it says nothing.
        pace: with the Crawl-delay of the domain's hosts.
    """
    asked = max((host_ms for _, host_ms in pace.crawl_delays_ms), default=0)
    return max(configured_ms, crawl_ms or 0, asked)


def window(pause_ms: int, window_ms: int, most: int) -> int:
    """Return how many tasks of a domain may be out: what it can do in `window_ms` at its pace, from 1 to `most`."""
    if pause_ms <= 0:
        return most
    return min(most, max(1, window_ms // pause_ms))


def allowed_ms(pace: Pace, pause_ms: int) -> int:
    """Return when the next task of a domain may go out: after its hold, and a full pause after its last request."""
    if pace.last_end_ms == 0:
        return pace.hold_until_ms
    return max(pace.hold_until_ms, pace.last_end_ms + pause_ms)


def retry_pause_ms(pauses_s: Sequence[float], failures: int) -> int | None:
    """Return the pause after the `failures`th failed attempt (from 1); None where the domain's backoff takes over."""
    return milliseconds(pauses_s[failures - 1]) if failures <= len(pauses_s) else None


def backoff_pause_ms(domain: str, level: int, first_ms: int) -> int:
    """Return the pause after the `level`th incident in a row: `first_ms`, doubling, with jitter, at most a day.

    The jitter is made from domain and level, so that the same history gives the same times. Level 0 is no pause.
    """
    if level <= 0:
        return 0
    base = min(LONGEST_BACKOFF_MS, first_ms << min(level - 1, 32))
    digest = hashlib.blake2b(f"{domain}\0{level}".encode(), digest_size=4).digest()
    jitter = int.from_bytes(digest, "big") / 2**32 * BACKOFF_JITTER
    return min(LONGEST_BACKOFF_MS, base + int(base * jitter))


def after_outcome(
    pace: Pace,
    domain: str,
    host: str,
    outcome: Mapping[str, Any],
    *,
    incident: bool,
    first_backoff_ms: int,
    now_ms: int,
) -> Pace:
    """Return the domain's pace after a request ended.

    Args:
        pace: before.
        domain: registrable domain.
        host: the authority that was asked.
        outcome: a `FetchOutcome` record.
        incident: the site refused for its load, or keeps failing.
        first_backoff_ms: pause after the first incident.
        now_ms: when the outcome is handled.

    The hold only moves forward: a site's wish is never shortened. An incident is one step of backoff, however many
    requests were under way when it happened: only one whose request started after the last step counts. The first
    incident that names its time (Retry-After) is taken at its word; from the second in a row on the longer of
    its wish and the backoff of the steps before decides. A good answer to a request that started after
    the last incident ends the series.
    """
    last_end_ms, hold_until_ms, level, began_ms, delays = pace
    if outcome["requests"] > 0:
        # A fetch worker's clock may be ahead; an end that lies in the future would only add to the pause.
        last_end_ms = max(last_end_ms, min(outcome["ended_at_ms"], now_ms))
    wish_ms = outcome["retry_after_ms"]
    if incident and outcome["started_at_ms"] >= began_ms:
        level += 1
        began_ms = now_ms
        steps = level if wish_ms is None else level - 1
        hold_until_ms = max(hold_until_ms, now_ms + backoff_pause_ms(domain, steps, first_backoff_ms))
    elif not incident and level and _is_good(outcome) and outcome["started_at_ms"] >= began_ms:
        level = 0
    if wish_ms is not None:
        hold_until_ms = max(hold_until_ms, wish_ms)
    return Pace(last_end_ms, hold_until_ms, level, began_ms, _host_delays(delays, host, outcome))


def _is_good(outcome: Mapping[str, Any]) -> bool:
    """Return whether the site itself answered, and not with a complaint."""
    status = outcome["status"]
    return outcome["requests"] > 0 and status is not None and status < 500


def _host_delays(
    delays: tuple[tuple[str, int], ...], host: str, outcome: Mapping[str, Any]
) -> tuple[tuple[str, int], ...]:
    """Remember a host's Crawl-delay; forget it once the host was asked and has none any more."""
    told_ms = outcome["crawl_delay_ms"]
    if told_ms is None and (not delays or outcome["outcome"] != "FETCHED"):
        return delays
    told_ms = min(told_ms or 0, LONGEST_CRAWL_DELAY_MS)
    if (host, told_ms) in delays:
        return delays
    others = [pair for pair in delays if pair[0] != host]
    if told_ms > 0:
        others.append((host, told_ms))
        others.sort(key=lambda pair: pair[1], reverse=True)
    return tuple(others[:MAX_HOST_DELAYS])
