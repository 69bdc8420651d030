"""`headrace fetch`: one page, as the fetch stage sees it, without a broker."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import Fetch, load
from pipeline.errors import ConfigurationError, SiteError
from pipeline.fetch.body import Body
from pipeline.fetch.client import Client, Response
from pipeline.fetch.endings import Ending, judge, judge_error
from pipeline.fetch.guard import AddressGuard
from pipeline.fetch.redirects import STATUSES, SamePage
from pipeline.fetch.wishes import read_wishes
from pipeline.web.url import CanonicalUrl, canonicalize


@click.command()
@click.argument("url")
@json_option
@click.option(
    "--body",
    "body_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Keep the decoded body there.",
)
@click.option(
    "--allow-address",
    "allow_addresses",
    metavar="CIDR",
    multiple=True,
    help="Reach this network although it is private: CIDR, or CIDR:port; may be given more than once.",
)
@config_option
def fetch(
    url: str, as_json: bool, body_file: Path | None, allow_addresses: tuple[str, ...], config_file: Path | None
) -> None:
    """Fetch URL once, following redirects, and say how it ended.

    Limits and the address guard hold as in the fetch stage, for every hop; robots.txt and the domain's pace, which
    belong to a crawl, are not looked at.
    """
    settings = load(config_file).settings.fetch
    start = canonicalize(url)
    guard = AddressGuard([*settings.allow_addresses, *allow_addresses])
    look = asyncio.run(_look(start, settings, guard))
    if body_file is not None and look.response is not None:
        try:
            body_file.write_bytes(look.response.body.data)
        except OSError as exc:
            raise ConfigurationError(f"--body {body_file}: {exc.strerror}") from exc
    row = _row(url, look)
    if as_json:
        print_json(row)
        return
    for name, value in row.items():
        click.echo(f"{name:>14}  {'' if value is None else ' '.join(value) if isinstance(value, list) else value}")


@dataclass(frozen=True, slots=True)
class _Look:
    """What came of it.

    Attributes:
        url: the last one that was asked for.
        chain: URLs that led to it, the oldest first.
        response: the last answer; None where the last request had none.
        ending: how it ended.
        elapsed_s: all requests together.
    """

    url: str
    chain: list[str]
    response: Response | None
    ending: Ending
    elapsed_s: float


async def _look(start: CanonicalUrl, settings: Fetch, guard: AddressGuard) -> _Look:
    page, chain, turns = SamePage(start), list[str](), 0
    began_s = time.monotonic()
    async with Client(settings, guard) as client:
        while True:
            url = page.url.wire
            try:
                response = await client.get(url, headers=page.headers(), wants=_is_final)
            except SiteError as exc:
                return _Look(url, chain, None, judge_error(exc), time.monotonic() - began_s)
            if turns < settings.max_redirects and page.goes_on(response):
                turns += 1
                continue
            ending = judge(
                response,
                url=url,
                chain=chain,
                max_redirects=settings.max_redirects,
                longest_refresh_s=settings.max_refresh_s,
                is_conditional=False,
                retry_truncated=False,
                asked=read_wishes(response, time.time()),
            )
            if ending.location is None:
                return _Look(url, chain, response, ending, time.monotonic() - began_s)
            chain.append(url)
            page, turns = SamePage(ending.location), 0


def _is_final(response: Response) -> bool:
    return response.status not in STATUSES


def _row(url: str, look: _Look) -> dict[str, Any]:
    response = look.response
    has_body = response is not None and _is_final(response) and response.error is None
    body = response.body if response is not None else Body()
    return {
        "url": url,
        "final_url": look.url,
        "outcome": look.ending.outcome.lower(),
        "status": response.status if response is not None else None,
        "reason": look.ending.reason,
        "redirects": look.chain,
        "address": response.address if response is not None else None,
        "content_type": response.content_type if response is not None else "",
        "bytes_wire": body.bytes_wire,
        "bytes_decoded": len(body.data),
        "truncated": body.truncated,
        "body_sha256": hashlib.sha256(body.data).hexdigest() if has_body else None,
        "elapsed_ms": round(look.elapsed_s * 1000),
    }
