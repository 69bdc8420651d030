"""What an answer to robots.txt means for an origin; `robots_cache` says when it is asked for.

RFC 9309 2.3 and 2.4:

- 2xx: its rules hold for 24 h.
- 4xx but 429, a redirect without a usable Location, more than five redirects: everything is allowed for 24 h.
- 429, 5xx, a body that breaks off: nothing is allowed, for 60 s, doubling to 1 h, and never for less than Retry-After
  says.
- No answer, or a refused address: nothing is allowed, for 1 s, doubling to 1 h: the pace at which the frontier tries
  again after connection noise.

A site that is unwell for long stays closed for as long. RFC 9309 2.3.1.4 would let us take it for open after 30 days.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.errors import SiteError
from pipeline.fetch.client import Response
from pipeline.fetch.wishes import read_wishes
from pipeline.web.robots import RobotsRules

KEPT_S: Final = 86_400.0
CLOSED_S: Final = 60.0
UNANSWERED_S: Final = 1.0
LONGEST_CLOSED_S: Final = 3_600.0
REFRESHED_AHEAD_S: Final = 3_600.0

State = Literal["RULES", "OPEN", "CLOSED"]


@dataclass(slots=True)
class Robots:
    """What holds for one origin.

    Attributes:
        state: RULES: `rules` decide; OPEN: everything is allowed; CLOSED: nothing is.
        rules: of the file; None where there is none.
        status: HTTP status of the answer; None without one.
        reason: why it is closed, machine-readable; empty where it is not.
        fetched_at_ms: ms since the epoch.
        expires_at_ms: when it is asked for again, ms since the epoch.
        wish_until_ms: until when the site wants to be left alone, ms since the epoch; None where it said nothing. Only
            in memory: the frontier is told.
        size_bytes: length of the file, as far as it was read.
        unsaved: the contract record, while it is not on its way to the partition's state.
        refreshed_from_ms: when it may be brought anew before it expires, ms since the epoch. Only in memory.
    """

    state: State
    rules: RobotsRules | None
    status: int | None
    reason: str
    fetched_at_ms: int
    expires_at_ms: int
    wish_until_ms: int | None = None
    size_bytes: int = 0
    unsaved: bytes | None = None
    refreshed_from_ms: int = 0

    def __post_init__(self) -> None:
        """What is closed is tried again when it expires, and no earlier."""
        ahead_ms = 0 if self.state == "CLOSED" else int(REFRESHED_AHEAD_S * 1000)
        self.refreshed_from_ms = self.expires_at_ms - ahead_ms


def read_answer(
    origin: str, answer: Response | SiteError | None, before: Robots | None, now: float
) -> tuple[Robots, dict[str, Any]]:
    """Say what holds from now on.

    Args:
        origin: whose file it is.
        answer: of the site, or why there is none; None where redirects led nowhere.
        before: what held; a closed origin stays so for twice as long.
        now: wall clock, s since the epoch.

    Returns:
        What holds, and the same as a contract record.
    """
    now_ms = int(now * 1000)
    status, fault, file, wish_ms = None, "", b"", None
    state: State = "OPEN"
    if isinstance(answer, SiteError):
        fault = answer.reason
    elif answer is not None:
        status, fault = answer.status, fault_of(answer)
        rest_s = read_wishes(answer, now).rest_s
        wish_ms = None if rest_s is None else math.ceil(rest_s * 1000)
        if not fault and is_success(answer):
            state, file = "RULES", answer.body.data
    pause_ms = int(KEPT_S * 1000)
    if fault:
        first_s = UNANSWERED_S if status is None else CLOSED_S
        state, pause_ms = "CLOSED", max(_closed_ms(first_s, before), wish_ms or 0)
    record = {
        "origin": origin,
        "state": state,
        "status": status,
        "body": file,
        "fetched_at_ms": now_ms,
        "expires_at_ms": now_ms + pause_ms,
    }
    robots = from_record(record)
    robots.reason = fault
    robots.wish_until_ms = None if wish_ms is None else now_ms + wish_ms
    return robots, record


def is_success(response: Response) -> bool:
    """Say whether the answer brought a file."""
    return 200 <= response.status < 300


def fault_of(response: Response) -> str:
    """Say why an answer closes the origin; empty where it does not."""
    status = response.status
    if status == 429 or status >= 500 or status < 200:
        return f"http_{status}"
    if not is_success(response):
        return ""
    if response.error is not None:
        return response.error.reason
    return "" if response.body.truncated in (None, "cut") else "truncated"


def _closed_ms(first_s: float, before: Robots | None) -> int:
    first_ms = int(first_s * 1000)
    if before is None or before.state != "CLOSED":
        return first_ms
    return max(first_ms, min(2 * (before.expires_at_ms - before.fetched_at_ms), int(LONGEST_CLOSED_S * 1000)))


def from_record(record: dict[str, Any]) -> Robots:
    """Read a contract record; a state that is not known closes."""
    state, status = record["state"], record["status"]
    is_closed = state not in ("RULES", "OPEN")
    reason = "" if not is_closed else "unreachable" if status is None else f"http_{status}"
    return Robots(
        "CLOSED" if is_closed else state,
        RobotsRules.parse(record["body"]) if state == "RULES" else None,
        status,
        reason,
        record["fetched_at_ms"],
        record["expires_at_ms"],
        size_bytes=len(record["body"]),
    )
