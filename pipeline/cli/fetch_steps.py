"""Steps of a fetch in words, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pipeline.cli.dlq_rows import printable
from pipeline.fetch.steps import Step

Facts = Mapping[str, Any]

SHOWN_FIELDS: Final = frozenset({
    "content-type", "content-encoding", "content-length", "transfer-encoding", "location", "refresh", "retry-after",
    "etag", "last-modified", "ratelimit", "server", "cf-mitigated", "set-cookie",
})  # fmt: skip
"""Fields of an answer that decide something; --json has all of them."""
SHOWN_REQUEST_FIELDS: Final = frozenset({"cookie", "if-none-match", "if-modified-since"})


def lines_of_steps(steps: Iterable[tuple[int, Step]]) -> Iterator[str]:
    """Yield a line for each step.

    Args:
        steps: when, ms since the start, and what.
    """
    for at_ms, (name, facts) in steps:
        say = _WORDS.get(name)
        words = say(facts) if say is not None else _facts(facts)
        yield printable(f"{at_ms:>7} ms  {name:<10}  {words}")


def _robots(facts: Facts) -> str:
    if facts["state"] == "closed":
        return f"{facts['origin']}: can't be had ({facts['reason']}), so nothing may be asked for"
    if facts["state"] == "open":
        return f"{facts['origin']}: has none (status {facts['status']}), so everything may be asked for"
    verdict = "allowed" if facts["allowed"] else "disallowed"
    line = f"line {facts['line']}: {facts['rule']}" if facts["line"] else "no rule matches"
    delay_s = facts["crawl_delay_s"]
    return f"{facts['origin']}: {verdict} ({line})" + (f", Crawl-delay {delay_s:g} s" if delay_s else "")


def _gate(facts: Facts) -> str:
    if facts["come_again_s"] is not None:
        return f"{facts['domain']} may be asked in {facts['come_again_s']:.1f} s, which is too long to wait"
    return f"{facts['domain']} may be asked, after {facts['waited_ms']} ms"


def _dns(facts: Facts) -> str:
    origin = " (configured)" if facts["configured"] else ""
    return f"{facts['host']} is {', '.join(facts['addresses']) or 'nowhere'}{origin}"


def _guard(facts: Facts) -> str:
    verdict = "may be connected to" if facts["allowed"] else f"is not connected to: {facts['kind']}"
    return f"{facts['address']} port {facts['port']} {verdict}"


def _connection(facts: Facts) -> str:
    tls = facts["tls"]
    secure = f"{tls['version']} {tls['cipher']}, certificate by {tls['issuer']}" if tls else "no TLS"
    return f"{facts['address']} port {facts['port']}, {secure}" + (", used before" if facts["reused"] else "")


def _request(facts: Facts) -> str:
    return f"GET {facts['url']}{_fields(facts['headers'], SHOWN_REQUEST_FIELDS)}"


def _response(facts: Facts) -> str:
    if "error" in facts:
        return f"none: {facts['error']} ({facts['message']})"
    return f"{facts['status']}{_fields(facts['headers'], SHOWN_FIELDS)}"


def _fields(headers: Iterable[tuple[str, str]], shown: frozenset[str]) -> str:
    return "".join(f"; {name}: {value}" for name, value in headers if name.lower() in shown)


def _body(facts: Facts) -> str:
    unpacked = f", {' in '.join(facts['codings'])} undone" if facts["codings"] else ""
    size = f"{facts['bytes_wire']} bytes received, {facts['bytes_decoded']} decoded{unpacked}, {facts['took_ms']} ms"
    limits = facts["limits"]
    most = f"at most {limits['wire_bytes']}, {limits['decoded_bytes']}, ratio {limits['ratio']:g}"
    ending = facts["error"] or facts["truncated"]
    return f"{size} ({most})" + (f"; not whole: {ending}" if ending else "")


def _hop(facts: Facts) -> str:
    if facts["kind"] == "same_page":
        return f"back to the same page: {facts['url']}"
    return f"number {facts['number']}, by {facts['kind']}, to {facts['url']}"


def _limit(facts: Facts) -> str:
    return f"a refusal in disguise, by the rule {facts['rule']}"


def _result(facts: Facts) -> str:
    return f"{facts['outcome']} {facts['reason']}".strip()


def _facts(facts: Facts) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


_WORDS: Final = {
    "robots": _robots,
    "gate": _gate,
    "dns": _dns,
    "guard": _guard,
    "connection": _connection,
    "request": _request,
    "response": _response,
    "body": _body,
    "hop": _hop,
    "limit": _limit,
    "result": _result,
}
