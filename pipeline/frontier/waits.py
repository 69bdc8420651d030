"""What a task or a domain waits for, in words of the settings and of the site: for people, not for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipeline.frontier import politeness
from pipeline.frontier.domains import granted_delay_ms
from pipeline.frontier.insight import Insight
from pipeline.frontier.policy import CrawlPolicy
from pipeline.frontier.records import Lane, Pace, Task


class Wait(NamedTuple):
    """One thing that is waited for.

    Attributes:
        why: of the task: `not_before` (its sender's wish), `retry` (the pause after a failed attempt), `deferred`
            (fetch could not start it), `interval` (its next poll); of the domain: `backoff` (after trouble), `hold`
            (the site named a time), `rate_limit` (its share of what the site
            still allows), `slots` (as much is out as may be), `delay` (the pause after the last request); or
            `turn`: other tasks of the domain go first.
        until_ms: milliseconds since the epoch; None where no time is known.
        facts: what it rests on.
    """

    why: str
    until_ms: int | None
    facts: Mapping[str, Any]


def delays_ms(insight: Insight, policy: CrawlPolicy | None, pace: Pace) -> dict[str, int]:
    """Return each pause between two requests to a domain that somebody wants; the longest decides.

    Args:
        insight: settings.
        policy: of the crawl, None for no particular one.
        pace: of the domain.

    Returns:
        Milliseconds by who wants them: `configured`, `crawl`, `crawl_delay HOST` of robots.txt, `learned` from
        incidents and from how long answers take (`pipeline.frontier.politeness`).
    """
    wanted = {"configured": granted_delay_ms(insight.politeness)}
    if policy is not None and policy.delay_ms is not None:
        wanted["crawl"] = policy.delay_ms
    wanted.update({f"crawl_delay {host}": delay_ms for host, delay_ms in pace.crawl_delays_ms})
    granted_ms = max(wanted.values())
    learned_ms = politeness.learned_delay_ms(granted_ms, pace, insight.politeness.response_factor)
    if learned_ms > granted_ms:
        wanted["learned"] = learned_ms
    return wanted


def domain_waits(
    insight: Insight, domain: str, policy: CrawlPolicy | None, now_ms: int, task: Task | None = None
) -> list[Wait]:
    """Return what a domain waits for before its next task goes out.

    Args:
        insight: of its partition.
        domain: registrable domain.
        policy: of the task's crawl, None for no particular one.
        now_ms: now.
        task: what waits; None for any that wishes nothing.
    """
    pace = insight.pace(domain)
    waits = []
    if pace.hold_until_ms > now_ms:
        waits.append(_hold(insight, domain, pace))
    if (shared_ms := min(pace.last_end_ms + pace.share_ms, pace.share_until_ms)) > now_ms:
        waits.append(Wait("rate_limit", shared_ms, {"delay_ms": pace.share_ms, "window_until_ms": pace.share_until_ms}))
    wanted = delays_ms(insight, policy, pace)
    made_by = max(wanted, key=wanted.__getitem__)
    pause_ms = wanted[made_by]
    settings = insight.frontier
    slots = politeness.slots(
        max(pause_ms, pace.share_ms),
        politeness.milliseconds(settings.window_s),
        settings.window_max,
        task.concurrency if task else 0,
        urgent=task is not None and task.lane is Lane.URGENT,
    )
    out = insight.out(domain)
    if out >= slots:
        waits.append(Wait("slots", None, {"out": out, "window": slots, "delay_ms": pause_ms, "made_by": made_by}))
    if pace.last_end_ms and pace.last_end_ms + pause_ms > now_ms:
        facts = {"delay_ms": pause_ms, "made_by": made_by, "last_end_ms": pace.last_end_ms}
        waits.append(Wait("delay", pace.last_end_ms + pause_ms, facts))
    return waits


def _hold(insight: Insight, domain: str, pace: Pace) -> Wait:
    """Return what holds a domain: its backoff is told from a time that the site has named by being reckoned anew."""
    level, began_ms = pace.backoff_level, pace.backoff_began_ms
    if not level:
        return Wait("hold", pace.hold_until_ms, {})
    first_ms = politeness.milliseconds(insight.politeness.backoff_s)
    pauses_ms = {politeness.backoff_pause_ms(domain, steps, first_ms) for steps in (level, level - 1)}
    named = pace.hold_until_ms - began_ms not in pauses_ms
    facts = {"level": level, "since_ms": began_ms, "named_by_site": named, "trouble": pace.trouble}
    return Wait("backoff", pace.hold_until_ms, facts)


def own_wait(task: Task | None, due_ms: int, now_ms: int) -> list[Wait]:
    """Return what a task waits for by itself; nothing once its time has come.

    Args:
        task: None where only its place is known.
        due_ms: when its time comes.
        now_ms: now.
    """
    if due_ms <= now_ms:
        return []
    if task is None:
        return [Wait("not_before", due_ms, {})]
    if task.attempts:
        return [Wait("retry", due_ms, {"attempts": task.attempts})]
    if task.handling.interval_ms and task.handling.poll:
        return [Wait("interval", due_ms, {"interval_ms": task.handling.interval_ms, "poll": task.handling.poll})]
    return [Wait("deferred" if task.deliveries else "not_before", due_ms, {})]
