"""`headrace fetch`: one page by the way of the fetch stage, without a broker, each step told."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from pipeline.cli.fetch_steps import lines_of_steps
from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Settings, load
from pipeline.contracts import load_codec
from pipeline.errors import ConfigurationError
from pipeline.fetch.body import Body
from pipeline.fetch.client import Client, Response
from pipeline.fetch.endings import Ending
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.guard import AddressGuard
from pipeline.fetch.redirects import STATUSES
from pipeline.fetch.robots_cache import RobotsCache
from pipeline.fetch.steps import Step, tell, watched
from pipeline.fetch.told_limits import ToldLimits
from pipeline.fetch.visit import Visit, Visitor
from pipeline.web.domains import registrable_domain
from pipeline.web.url import CanonicalUrl, canonicalize

PATIENCE_S: Final = 60.0
"""How long a person waits for a domain's pace; what takes longer is `deferred`."""
PARTITION: Final = 0


@click.command()
@click.argument("url")
@json_option
@click.option(
    "--body",
    "body_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Keep the decoded body there, that of an error too.",
)
@click.option(
    "--allow-address",
    "allow_addresses",
    metavar="CIDR",
    multiple=True,
    help="Reach this network although it is private: CIDR, or CIDR:port; may be given more than once.",
)
@click.option("--robots/--no-robots", default=None, help="Obey robots.txt; else as configured, which is to obey.")
@config_option
def fetch(
    url: str,
    as_json: bool,
    body_file: Path | None,
    allow_addresses: tuple[str, ...],
    robots: bool | None,
    config_file: Path | None,
) -> None:
    """Fetch URL once, by the way of the fetch stage, and say how it ended and why.

    Everything holds as in a crawl, for every hop of a redirect: the address guard, robots.txt, the pause between two
    requests to a domain (politeness.delay_s, or its Crawl-delay), TLS verification, all limits. So a page may take some
    seconds; what would have to wait longer than a minute ends as deferred.

    \b
    A server on this machine, such as one of a test, is reached by an exception alone:
      --allow-address 127.0.0.1         any port from 1024 on, 80 and 443
      --allow-address 127.0.0.1:8765    this port alone, whatever it is
    or by the configuration: fetch.allow_addresses, HEADRACE_FETCH__ALLOW_ADDRESSES='["127.0.0.0/8"]'. SSL_CERT_FILE
    names certificates to trust instead of the usual authorities; fetch.resolve gives names under .test an address.

    With --json one object is printed: url, final_url, outcome, status, reason, redirects, address, content_type,
    bytes_wire, bytes_decoded, truncated, body_sha256, elapsed_ms (of the requests for pages), and steps.

    Exit status: 0 where there is an outcome, whatever it is; 2 for a wrong call or configuration.
    """  # noqa: D301 - click takes the character as a mark: no lines are joined below it
    settings = _settings(config_file, allow_addresses, robots)
    look = asyncio.run(_look(canonicalize(url), settings))
    if body_file is not None and look.response is not None:
        try:
            body_file.write_bytes(look.response.body.data)
        except OSError as exc:
            raise ConfigurationError(f"--body {body_file}: {exc.strerror}") from exc
    row = _row(url, look)
    if as_json:
        steps = [{"step": step.name, "at_ms": at_ms, **step.facts} for at_ms, step in look.steps]
        print_json({**row, "steps": steps})
        return
    for name, value in row.items():
        click.echo(f"{name:>14}  {'' if value is None else ' '.join(value) if isinstance(value, list) else value}")
    click.echo()
    for line in lines_of_steps(look.steps):
        click.echo(line)


def _settings(config_file: Path | None, allow_addresses: tuple[str, ...], robots: bool | None) -> Settings:
    settings = load(config_file).settings
    fetch = settings.fetch
    changed = {
        "allow_addresses": [*fetch.allow_addresses, *allow_addresses],
        "robots": fetch.robots if robots is None else robots,
    }
    return settings.model_copy(update={"fetch": fetch.model_copy(update=changed)})


@dataclass(slots=True)
class _Look:
    """What came of it.

    Attributes:
        url: the last one that was asked for, or would have been.
        chain: URLs that led to it, the oldest first.
        response: the last answer; None where the last page had none.
        ending: how it ended.
        spent_s: requests for pages together.
        steps: when, ms since the start, and what.
    """

    url: str
    chain: list[str]
    response: Response | None
    ending: Ending
    spent_s: float
    steps: list[tuple[int, Step]] = field(default_factory=list)


async def _look(start: CanonicalUrl, settings: Settings) -> _Look:
    steps: list[tuple[int, Step]] = []
    began_s = time.monotonic()

    def note(step: Step) -> None:
        steps.append((round((time.monotonic() - began_s) * 1000), step))

    with watched(note):
        async with Client(settings.fetch, AddressGuard(settings.fetch.allow_addresses)) as client:
            look = await _follow(start, settings, client)
        tell("result", outcome=look.ending.outcome.lower(), reason=look.ending.reason)
    look.steps = steps
    return look


async def _follow(url: CanonicalUrl, settings: Settings, client: Client) -> _Look:
    """Go the way of a page and, as the frontier would, of each page that it is redirected to."""
    visitor = _visitor(settings, client)
    chain: list[str] = []
    spent_s = 0.0
    while True:
        visit = Visit(
            url,
            registrable_domain(url.host),
            PARTITION,
            int(time.time() * 1000),
            chain=tuple(chain),
            delay_s=settings.politeness.delay_s,
        )
        ending = await visitor.go(visit)
        spent_s += visit.spent_s
        if ending.location is None:
            return _Look(visit.url.wire, chain, visit.response, ending, spent_s)
        chain.append(url.wire)
        url = ending.location
        tell("hop", kind=ending.reason or "redirect", url=url.wire, number=len(chain))


def _visitor(settings: Settings, client: Client) -> Visitor:
    fetch = settings.fetch
    gate = DomainGate(max_wait_s=PATIENCE_S, per_domain=fetch.per_domain)
    gate.opened(PARTITION, is_rested=True)
    robots = RobotsCache(
        client,
        gate,
        load_codec(settings.registry.lock),
        max_wait_s=PATIENCE_S,
        max_ratio=fetch.max_ratio,
        now=time.time,
    )
    return Visitor(
        fetch,
        client=client,
        gate=gate,
        robots=robots,
        told_limits=ToldLimits(fetch.told_limits),
        unsaid_rest_s=settings.politeness.backoff_s,
        now=time.time,
        counters=Counter(),
        wants=_is_final,
    )


def _is_final(response: Response, url: str) -> bool:
    """Want more than the stage does: of errors and files too a person may want to see what came."""
    del url
    return response.status not in STATUSES


def _row(url: str, look: _Look) -> dict[str, Any]:
    response = look.response
    has_body = response is not None and response.status not in STATUSES and response.error is None
    body = response.body if response is not None else Body()
    return {
        "url": url,
        "final_url": look.url,
        "outcome": look.ending.outcome.lower(),
        "status": response.status if response is not None else look.ending.status,
        "reason": look.ending.reason,
        "redirects": look.chain,
        "address": response.address if response is not None else None,
        "content_type": response.content_type if response is not None else "",
        "bytes_wire": body.bytes_wire,
        "bytes_decoded": len(body.data),
        "truncated": body.truncated,
        "body_sha256": hashlib.sha256(body.data).hexdigest() if has_body else None,
        "elapsed_ms": round(look.spent_s * 1000),
    }
