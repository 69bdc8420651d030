"""Explanations in words: the answer first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.cli.dlq_rows import printable
from pipeline.ops.dead_letters import rfc3339

Row = Mapping[str, Any]

COUNTED: Final = 10_000
"""Where a worker ends its count; as many or more is what is said then."""
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def lines_of_url(told: Row) -> Iterator[str]:
    """Yield what is said of a URL."""
    now_ms = told["as_of_ms"]
    yield printable(told["url"])
    if not told["crawls"]:
        yield "  unknown: nothing is known of it (yet): a task that was accepted a moment ago may not have been read"
    for row in told["crawls"]:
        yield f"  crawl {printable(row['crawl'])}: {verdict(row, now_ms)}"
        yield from (f"    {line}" for line in _particulars(row, now_ms))
    for letter in told["dead_letters"]:
        yield f"  dead letter {letter['id']} ({letter['state']}, {printable(letter['reason'])}), {letter['time']}"
        yield f"    {printable(letter['message'])}"
        if "command" in letter:
            yield f"    bring it back: {letter['command']}"
    yield from (f"  {line}" for line in _domain_lines(told["domain"], told["domain_state"], now_ms))
    yield f"  {_origin(told)}"
    yield f"  not kept: {'; '.join(told['not_kept'])}"


def lines_of_domain(told: Row) -> Iterator[str]:
    """Yield what is said of a domain."""
    now_ms, state = told["as_of_ms"], told["domain_state"]
    yield from _domain_lines(told["domain"], state, now_ms)
    for row in state["crawls"]:
        held = f", {_count(row['held'])} tasks held by it" if row["held"] else ""
        limit = "no limit" if row["limit"] is None else f"a budget of {row['limit']} pages"
        yield f"  crawl {printable(row['crawl'])}: {limit}, {row['brought']} brought, {row['charged']} charged{held}"
    yield f"  {_origin(told)}"


def verdict(row: Row, now_ms: int) -> str:
    """Return how a URL stands in a crawl, in a sentence.

    Args:
        row: of `crawls`.
        now_ms: as of when.
    """
    say = _VERDICTS.get((row["state"], row["why"])) or _VERDICTS.get((row["state"], ""))
    if say is not None:
        since = _span(max(0, now_ms - row["since_ms"])) if row.get("since_ms") is not None else ""
        return printable(
            say.format(
                ending=_ending(row), because=_because(row), reason=row["reason"], since=since, lane=row.get("lane")
            )
        )
    first = row["waits"][0] if row["waits"] else {"why": "turn", "until_ms": None, "facts": {"ahead": row["ahead"]}}
    return f"not fetched yet: {_wait(first, row, now_ms)}"


def _because(row: Row) -> str:
    reason, facts = row["reason"], row.get("facts", {})
    numbers = []
    if facts.get("value") is not None:
        numbers.append(str(facts["value"]))
    if facts.get("limit") is not None:
        numbers.append(f"at most {facts['limit']}")
    said = [reason, ", ".join(numbers), str(facts.get("detail", ""))]
    return ": ".join(part for part in said if part)


def _ending(row: Row) -> str:
    reason = "" if row["why"] == "dead_letter" else row["reason"].replace("disallowed:", "by line ")
    words = (row.get("outcome"), row.get("status"), reason)
    return " ".join(str(word) for word in words if word)


_VERDICTS: Final[Mapping[tuple[str, str], str]] = {
    ("unknown", "unknown"): "unknown (yet); nothing in the crawl's definition forbids it",
    ("unknown", "definition"): "unknown, and so is the crawl: nobody has told its definition",
    ("unknown", "dead_letter"): "not fetched: its task is a dead letter ({reason})",
    ("unknown", ""): "unknown; as a link it would be refused by {because}",
    ("done", "seen"): "fetched: {ending}; seen, so further links and tasks change nothing",
    ("done", "redirected"): "led elsewhere: {ending}; what became of the page is told by the URL that it led to",
    ("done", "robots"): "not fetched: robots.txt forbids it: {ending}",
    ("done", "dead_letter"): "not fetched: a dead letter ({reason}): {ending}",
    ("done", ""): "not fetched: it ended with {ending}",
    ("refused", "withdrawn"): "not fetched: its task was withdrawn",
    ("refused", ""): "not fetched: refused by {because}",
    ("held", "definition"): "not fetched: it waits for the definition of its crawl",
    ("held", "parse"): "not polled yet: the page of its last poll is not parsed",
    ("held", ""): "not fetched: held by {because}",
    ("out", ""): "being fetched: given out {since} ago on the {lane} lane",
}
"""What is said by (state, why), or by the state alone."""


def _particulars(row: Row, now_ms: int) -> Iterator[str]:
    """Yield what is known beside the verdict, and what comes after the first thing that is waited for."""
    said = [words.format(row[name]) for name, words in _PARTICULARS.items() if row.get(name)]
    if row.get("submitted_ms") is not None:
        said.insert(0, f"wished or found {rfc3339(row['submitted_ms'])}")
    if said:
        yield printable(", ".join(said))
    if "interval_ms" in row.get("facts", {}):
        yield _polling(row["facts"])
    for wait in row.get("waits", ())[1:]:
        if wait["why"] != "turn" or wait["facts"]["ahead"]:
            yield f"then: {_wait(wait, row, now_ms)}"


_PARTICULARS: Final = {
    "day": "on {}",
    "source": "source {}",
    "depth": "depth {}",
    "priority": "priority {}",
    "deliveries": "deliveries {}",
    "attempts": "failed attempts {}",
    "replays": "came back from the dead letters: {}",
}


def _polling(facts: Row) -> str:
    news = "nothing new so far" if facts["changed_ms"] is None else f"the last news {rfc3339(facts['changed_ms'])}"
    every, wished = _span(facts["interval_ms"]), _span(facts["wished_ms"])
    return f"recurring: poll {facts['poll']}, every {every} now, {wished} wished; {news}"


def _wait(wait: Row, row: Row, now_ms: int) -> str:
    if wait["why"] == "turn":
        return _turn(wait["facts"]["ahead"], row["lane"])
    return domain_wait(wait, now_ms)


def _turn(ahead: int | None, lane: str) -> str:
    if ahead is None:
        return "it waits for its turn (only a worker can count what stands before it)"
    if ahead == 0:
        return f"its turn is next in the {lane} lane"
    return f"it waits for its turn; tasks of its domain before it in the {lane} lane: {_count(ahead)}"


def domain_wait(wait: Row, now_ms: int) -> str:
    """Return what a task or a domain waits for, in a clause.

    Args:
        wait: see `pipeline.frontier.waits.Wait`.
        now_ms: as of when.
    """
    facts = dict(wait["facts"])
    if "delay_ms" in facts:
        facts["delay"] = _span(facts["delay_ms"])
    if "since_ms" in facts:
        facts["since"] = rfc3339(facts["since_ms"])
    if "named_by_site" in facts:
        facts["cause"] = "the site has named a time" if facts["named_by_site"] else "backoff"
    facts["last"] = f" (the last: {facts['trouble']})" if facts.get("trouble") else ""
    until = "" if wait["until_ms"] is None else _until(wait["until_ms"], now_ms)
    words = _WAITS.get(str(wait["why"]), str(wait["why"]))
    return printable(words.format(until=until, **facts))


_WAITS: Final = {
    "not_before": "its sender does not want it earlier than {until}",
    "retry": "failed attempts: {attempts}; the pause after the last one ends {until}",
    "deferred": "fetch could not start it in time; it goes again {until}",
    "interval": "its next poll, number {poll}, is due {until}",
    "backoff": "{cause}: incident {level} in a row, since {since}{last}; no request before {until}",
    "hold": "the site has named a time: no request before {until}",
    "rate_limit": "the site's rate limit leaves a request every {delay}; the next one {until}",
    "slots": "{out} tasks of the domain are out, at most {window} may be: one has to end first",
    "delay": "the pause of {delay} between requests ({made_by}) ends {until}",
}


def _domain_lines(domain: str, state: Row, now_ms: int) -> Iterator[str]:
    if not state["known"]:
        yield f"domain {domain}: nothing is known of it"
        return
    waiting = state["waiting"]
    counts = "" if waiting is None else ", ".join(f"{_count(count)} {lane}" for lane, count in waiting.items() if count)
    queue = "waiting tasks not counted" if waiting is None else f"waiting: {counts or 'none'}"
    made_by = max(state["delays_ms"], key=state["delays_ms"].__getitem__)
    pause = f"pause {_span(state['delays_ms'][made_by])} ({printable(made_by)})"
    parked = "parked; " if state["parked"] else ""
    yield f"domain {domain}: {parked}{queue}; out: {state['out']}; {pause}"
    for wait in state["waits"]:
        yield f"  {domain_wait(wait, now_ms)}"
    due_ms = min(state["next_due_ms"].values(), default=0)
    if due_ms > now_ms:
        yield f"  its first task is due {_until(due_ms, now_ms)}"


def _origin(told: Row) -> str:
    moment = rfc3339(told["as_of_ms"])
    if told["answered_by"] is None:
        return f"read from the frontier's state as of its last commit, {moment}; partition {told['partition']}"
    return f"told by {told['answered_by']}, which owns partition {told['partition']}, {moment}"


def _count(number: int) -> str:
    return f"{number} or more" if number >= COUNTED else str(number)


def _until(moment_ms: int, now_ms: int) -> str:
    return f"{rfc3339(moment_ms)} (in {_span(moment_ms - now_ms)})" if moment_ms > now_ms else rfc3339(moment_ms)


def _span(span_ms: int) -> str:
    """Return a length of time in the unit that suits it."""
    if span_ms < _MINUTE_MS:
        return f"{span_ms / _SECOND_MS:g} s"
    if span_ms < _HOUR_MS:
        return f"{span_ms / _MINUTE_MS:.1f} min"
    return f"{span_ms / _HOUR_MS:.1f} h"
