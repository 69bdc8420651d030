"""What an outcome means for its task: it ends, it waits again, or it is dead. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pipeline.config import Frontier
from pipeline.frontier.politeness import age_ms, milliseconds, retry_pause_ms
from pipeline.frontier.records import Pace, Task

RETRIED_STATUS: Final = frozenset({408, 425})
"""Client errors that time mends (RFC 9110 15.5.9, RFC 8470 5.2)."""
UNAVAILABLE: Final = 503
"""The site can't, for now (RFC 9110 15.6.4). Some pages answer so for ever, so it costs an attempt all the same."""
SUCCESSES: Final = frozenset({"FETCHED", "NOT_MODIFIED", "REDIRECTED"})


class Fate(Enum):
    """What becomes of a task."""

    ENDS = "ends"
    WAITS = "waits"
    DIES = "dies"
    """It ends as failed, and is a dead letter."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an outcome means.

    Attributes:
        fate: of the task.
        due_ms: for a task that waits: when it may go again.
        attempts: for a task that waits or dies: attempts that failed.
        failed: for a task that ends: whether it counts as failed.
        incident: whether the domain is to be asked less.
        reason: for a task that dies: the dead letter's reason.
        message: for a task that dies: what happened, for people.
    """

    fate: Fate
    due_ms: int = 0
    attempts: int = 0
    failed: bool = False
    incident: bool = False
    reason: str = ""
    message: str = ""


def judge(task: Task, outcome: Mapping[str, Any], pace: Pace, settings: Frontier, now_ms: int) -> Verdict:
    """Return what an outcome means for the task that it ends.

    Args:
        task: as it was given out.
        outcome: a `FetchOutcome` record.
        pace: of its domain, as it was before.
        settings: pauses and bounds.
        now_ms: now.

    | outcome | meaning |
    |---|---|
    | FETCHED, NOT_MODIFIED, REDIRECTED | ends |
    | RATE_LIMITED, or status 429, or a retried failure with Retry-After | waits, the domain is held |
    | DEFERRED | waits until its time, however old it is |
    | 503 without Retry-After | an attempt is spent; waits, or dies at last; the domain is held |
    | NETWORK_ERROR, ROBOTS_UNREACHABLE, HTTP_ERROR with 5xx, 408, 425 | an attempt is spent; waits, or dies at last |
    | any other | ends as failed |

    A task that would wait, but is older than `max_age_s`, dies; long pauses that its site has asked for don't count.
    """
    age = age_ms(pace, task.born_ms, now_ms)
    if outcome["outcome"] in SUCCESSES:
        return Verdict(Fate.ENDS)
    if outcome["outcome"] == "DEFERRED":
        return Verdict(Fate.WAITS, max(now_ms, outcome["not_before_ms"]), task.attempts)
    retried = _is_retried(outcome)
    if _is_overload(outcome) or (retried and outcome["retry_after_ms"] is not None):
        return _wait(task, settings, age, now_ms, incident=True)
    if not retried:
        return Verdict(Fate.ENDS, failed=True)
    failures = task.attempts + 1
    pause_ms = retry_pause_ms(settings.retry_pauses_s, failures)
    # Past the list of pauses it is no noise any more: the domain as a whole backs off.
    is_incident = pause_ms is None or (outcome["outcome"] == "HTTP_ERROR" and outcome["status"] == UNAVAILABLE)
    if failures >= settings.max_attempts:
        last = " ".join(f"{outcome['outcome']} {outcome['status'] or ''} {outcome['reason']}".split())
        message = f"{failures} attempts failed, the last with {last}"
        reason = "retries_exhausted"
        return Verdict(Fate.DIES, attempts=failures, failed=True, incident=is_incident, reason=reason, message=message)
    # A robots.txt that can't be read is asked for again at its own time; to come back sooner would only cost attempts.
    due_ms = max(now_ms + (pause_ms or 0), outcome["not_before_ms"])
    return _wait(task, settings, age, due_ms, attempts=failures, incident=is_incident)


def _is_overload(outcome: Mapping[str, Any]) -> bool:
    kind: str = outcome["outcome"]
    return kind == "RATE_LIMITED" or (kind == "HTTP_ERROR" and outcome["status"] == 429)


def _is_retried(outcome: Mapping[str, Any]) -> bool:
    status: int = outcome["status"] or 0
    if outcome["outcome"] == "HTTP_ERROR":
        return status >= 500 or status in RETRIED_STATUS
    return outcome["outcome"] in {"NETWORK_ERROR", "ROBOTS_UNREACHABLE"}


def _wait(
    task: Task, settings: Frontier, age: int, due_ms: int, *, attempts: int | None = None, incident: bool = False
) -> Verdict:
    spent = task.attempts if attempts is None else attempts
    if age > milliseconds(settings.max_age_s):
        message = f"not fetched within {age // 1000} s"
        return Verdict(Fate.DIES, attempts=spent, failed=True, incident=incident, reason="deadline", message=message)
    return Verdict(Fate.WAITS, due_ms, spent, incident=incident)
