"""Politeness: how often a domain is asked, and what it is granted after trouble. Pure: time is an argument.

All times are milliseconds since the epoch, all pauses milliseconds.

The pause between two requests is the longest of

- what was configured, what the crawl wants, and the Crawl-delay of any host of the domain (`delay_ms`);
- what was learned (`learned_delay_ms`): each incident doubles the pause, each good answer adds to the pace a
  twentieth of the granted one (additive increase, multiplicative decrease: Chiu and Jain 1989), and a site that
  answers slowly is asked slowly;
- the rest of a window that the site has announced, shared out over the requests it still allows.

Beside it stands the hold, before which nothing is asked: Retry-After, a window that is used up, and the backoff.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.frontier.records import Pace

LONGEST_BACKOFF_MS: Final = 86_400_000
BACKOFF_JITTER: Final = 0.25
"""Most that is added to a backoff, as a share of it: domains that broke down together come back apart."""
LONGEST_CRAWL_DELAY_MS: Final = 86_400_000
"""A longer Crawl-delay is taken for this: it is a slip of the pen, and the domain would never be asked again."""
LONGEST_LEARNED_MS: Final = 600_000
"""Nothing longer is learned; a site that is worse off than that is held by its backoff."""
SHORTEST_TAUGHT_MS: Final = 100
"""What the first incident doubles at least: a domain that is granted no pause must learn one, too."""
RECOVERY: Final = 20
"""Good answers after which a domain has regained at most the whole pace that it was granted."""
SMOOTHING: Final = 8
"""Weight of a new response time is one in so many: as a round-trip time is smoothed (RFC 6298 2)."""
LONGEST_WISH_MS: Final = 30 * 86_400_000
"""A site's wish that reaches further is not believed; fetch bounds it before."""
LONG_PAUSE_MS: Final = 3_600_000
"""A pause that a site asks for is remembered from this length on, so that it doesn't count as age of its tasks."""
MAX_LONG_PAUSES: Final = 8
MAX_TROUBLE_CHARACTERS: Final = 63
"""At most four bytes each, and one byte holds how many."""
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


def learned_delay_ms(granted_ms: int, pace: Pace, response_factor: float) -> int:
    """Return the pause between two requests to a domain as its answers have taught it, never less than granted.

    Args:
        granted_ms: from `delay_ms`. Where it is 0 the operator wants full speed: the response time does not count.
        pace: with what was learned.
        response_factor: the pause is at least so many response times.
    """
    slow_ms = min(LONGEST_LEARNED_MS, int(pace.response_ms * response_factor)) if granted_ms else 0
    return max(granted_ms, pace.learned_ms, slow_ms)


def window(pause_ms: int, window_ms: int, most: int) -> int:
    """Return how many tasks of a domain may be out: what it can do in `window_ms` at its pace, from 1 to `most`."""
    if pause_ms <= 0:
        return most
    return min(most, max(1, window_ms // pause_ms))


def slots(pause_ms: int, window_ms: int, window_max: int, concurrency: int, *, urgent: bool) -> int:
    """Return how many tasks of a domain may be out when one more goes.

    Args:
        pause_ms: between its requests.
        window_ms: see `window`.
        window_max: most, whatever its pace.
        concurrency: as the task wishes; 0 where it wishes nothing.
        urgent: whether it is urgent: then it does not wait for one of a full window to end, unless it wishes so.
    """
    most = min(concurrency or window_max, window_max)
    return window(pause_ms, window_ms, most) + (urgent and not concurrency)


def allowed_ms(pace: Pace, pause_ms: int) -> int:
    """Return when the next task of a domain may go out: after its hold, and a full pause after its last request.

    A pause that shares out the rest of a window ends with the window.
    """
    if pace.last_end_ms == 0:
        return pace.hold_until_ms
    shared_ms = min(pace.last_end_ms + pace.share_ms, pace.share_until_ms)
    return max(pace.hold_until_ms, pace.last_end_ms + pause_ms, shared_ms)


def age_ms(pace: Pace, since_ms: int, now_ms: int) -> int:
    """Return how long something has waited, without the long pauses that its site has asked for."""
    asked_ms = sum(max(0, min(until, now_ms) - max(since, since_ms)) for since, until in pace.asked)
    return now_ms - since_ms - asked_ms


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
    granted_ms: int,
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
        granted_ms: pause between requests that the domain is granted, from `delay_ms`.
        first_backoff_ms: pause after the first incident.
        now_ms: when the outcome is handled.

    The hold only moves forward: a site's wish is never shortened. An incident is one step of backoff, however many
    requests were under way when it happened: only one whose request started after the last step counts. The first
    incident that names its time (Retry-After) is taken at its word; from the second in a row on the longer of
    its wish and the backoff of the steps before decides. A good answer to a request that started after
    the last incident ends the series.
    """
    last_end_ms, hold_until_ms, level, began_ms, delays, learned_ms, response_ms, _, _, asked, trouble = pace
    if outcome["requests"] > 0:
        # A fetch worker's clock may be ahead; an end that lies in the future would only add to the pause.
        last_end_ms = max(last_end_ms, min(outcome["ended_at_ms"], now_ms))
    if outcome["requests"] == 1 and outcome["status"] is not None:
        took_ms = min(LONGEST_LEARNED_MS, max(0, outcome["ended_at_ms"] - outcome["started_at_ms"]))
        response_ms += int((took_ms - response_ms) / SMOOTHING)
    wish_ms = _wish_ms(outcome, now_ms)
    is_news = outcome["started_at_ms"] >= began_ms
    if incident and is_news:
        level += 1
        began_ms = now_ms
        trouble = _trouble(outcome)
        steps = level if outcome["retry_after_ms"] is None else level - 1
        hold_until_ms = max(hold_until_ms, now_ms + backoff_pause_ms(domain, steps, first_backoff_ms))
        learned_ms = min(LONGEST_LEARNED_MS, 2 * max(learned_ms, granted_ms, SHORTEST_TAUGHT_MS))
    elif not incident and is_news and _is_good(outcome):
        level = 0
        trouble = ""
        learned_ms = _recovered_ms(learned_ms, granted_ms)
    if wish_ms is not None:
        hold_until_ms = max(hold_until_ms, wish_ms)
        asked = _with_pause(asked, now_ms, wish_ms)
    return Pace(
        last_end_ms, hold_until_ms, level, began_ms, _host_delays(delays, host, outcome), learned_ms, response_ms,
        *_share(pace, outcome, now_ms), asked, trouble,
    )  # fmt: skip


def _trouble(outcome: Mapping[str, Any]) -> str:
    """Return what an incident was, in a few words."""
    words = (outcome["outcome"], outcome["status"], outcome["reason"])
    return " ".join(str(word) for word in words if word)[:MAX_TROUBLE_CHARACTERS]


def _wish_ms(outcome: Mapping[str, Any], now_ms: int) -> int | None:
    """Until when the site wants to be left alone: Retry-After, or the end of a window that is used up."""
    wishes = [outcome["retry_after_ms"]]
    if outcome["rate_limit_remaining"] == 0:
        wishes.append(outcome["rate_limit_reset_ms"])
    return max((wish for wish in wishes if wish is not None and wish <= now_ms + LONGEST_WISH_MS), default=None)


def _share(pace: Pace, outcome: Mapping[str, Any], now_ms: int) -> tuple[int, int]:
    """Share out what a window still allows: its pause and its end; the last that was said holds until then."""
    remaining, reset_ms = outcome["rate_limit_remaining"], outcome["rate_limit_reset_ms"]
    if remaining and reset_ms is not None and now_ms < reset_ms <= now_ms + LONGEST_WISH_MS:
        return math.ceil((reset_ms - now_ms) / remaining), reset_ms
    return (pace.share_ms, pace.share_until_ms) if pace.share_until_ms > now_ms else (0, 0)


def _recovered_ms(learned_ms: int, granted_ms: int) -> int:
    """The learned pause after a good answer: its pace grows by a share of the pace that is granted."""
    if learned_ms == 0:
        return 0
    least_ms = max(granted_ms, SHORTEST_TAUGHT_MS)
    recovered_ms = learned_ms * RECOVERY * least_ms // (RECOVERY * least_ms + learned_ms)
    return recovered_ms if recovered_ms > least_ms else 0


def _with_pause(asked: tuple[tuple[int, int], ...], now_ms: int, until_ms: int) -> tuple[tuple[int, int], ...]:
    """Remember a long pause; one that begins while another lasts makes that longer."""
    if until_ms - now_ms < LONG_PAUSE_MS:
        return asked
    if asked and asked[-1][1] >= now_ms:
        return (*asked[:-1], (asked[-1][0], max(asked[-1][1], until_ms)))
    return (*asked, (now_ms, until_ms))[-MAX_LONG_PAUSES:]


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
