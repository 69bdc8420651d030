"""The fetch stage before a site on this machine."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pipeline import topics
from pipeline.config import Fetch, Settings
from pipeline.contracts import load_codec
from pipeline.delivery.api import Result
from pipeline.fetch.slots import GateClock
from pipeline.fetch.stage import FetchStage
from pipeline.web.url import canonical_form, url_key
from tests.fakes import FakeRecord, MemoryView
from tests.raw_site import RawSite, response

CODECS = load_codec()
PARTITION = 4
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the usual ones takes longer than most tests here."""
PAGE = b"<html><title>news</title>" + b"<p>text</p>" * 500


@dataclass
class Handled:
    """What came of one record, decoded."""

    result: Result
    outcome: dict[str, Any]
    pages: list[dict[str, Any]]
    tasks: list[tuple[str, bytes, dict[str, Any]]]

    @property
    def kind(self) -> tuple[str, str]:
        """Outcome and reason."""
        return self.outcome["outcome"], self.outcome["reason"]


@dataclass
class World:
    """The stage before a site on this machine; names under site.test lead there."""

    site: RawSite
    stage: FetchStage
    fresh: bool = True
    freshness_asked: int = 0
    view: MemoryView = field(default_factory=lambda: MemoryView(("r", "h")))

    def is_fresh(self) -> bool:
        """Whether the membership is good."""
        self.freshness_asked += 1
        return self.fresh

    def record(self, url: str, lane: str = "normal", **fields: Any) -> FakeRecord:
        """A lane record."""
        task = {
            "crawl": "c", "url": url, "url_key": url_key(canonical_form(url)), "delivery": 2, "attempt": 0,
            "priority": 3, "depth": 1, "source": "s", "submitted_at_ms": 111, "emitted_at_ms": 222, "not_before_ms": 0,
            "delay_ms": 0, "timeout_ms": 0, "redirects": [], "etag": None, "last_modified": None, **fields,
        }  # fmt: skip
        value = CODECS.encode(topics.LANE_NORMAL.subject, task)
        return FakeRecord(topics.LANES[lane].name, value, b"site.test", PARTITION, offset=9)

    async def handle(self, target: str = "/a", host: str = "site.test", **fields: Any) -> Handled:
        """Fetch a page of the site."""
        return await self.handle_url(self.site.url(target, host), **fields)

    async def handle_url(self, url: str, *, backlog: bool = False, **fields: Any) -> Handled:
        """Fetch any page."""
        return decoded(await self.stage.handle(self.record(url, **fields), backlog=backlog))


def decoded(result: Result) -> Handled:
    """Read what a result publishes; there is exactly one outcome, to the partition that is to hear of it."""
    outcomes, pages, tasks = [], [], []
    for output in result.outputs:
        if output.topic == topics.FETCHES.name:
            outcomes.append(CODECS.decode(topics.FETCHES.subject, output.value))
        elif output.topic == topics.PAGES.name:
            pages.append(CODECS.decode(topics.PAGES.subject, output.value))
        else:
            tasks.append((output.topic, output.key, CODECS.decode(topics.TASKS.subject, output.value)))
            continue
        assert (b"site.test", PARTITION) == (output.key, output.partition)
    (outcome,) = outcomes
    assert (len(pages) == 1) == (outcome["outcome"] == "FETCHED")
    assert (len(tasks) == 1) == (outcome["outcome"] == "REDIRECTED")
    return Handled(result, outcome, pages, tasks)


def settings(**fetch) -> Settings:
    """Short times, names under site.test on this machine."""
    given = {"connect_s": 2, "idle_s": 2, "total_s": 3, "resolve": {"*site.test": "127.0.0.1"}, **fetch}
    return Settings(fetch=Fetch(allow_addresses=["127.0.0.1"], user_agent="headrace/9 (+test)", **given))


@asynccontextmanager
async def fetch_world(
    gate_clock: GateClock | None = None, tls: ssl.SSLContext = NO_AUTHORITIES, **fetch: Any
) -> AsyncIterator[World]:
    """A world whose partition has just been taken over; `fetch` are settings."""
    async with RawSite({"/a": response(PAGE)}, keep_alive=True) as site:
        stage = FetchStage(
            settings(**fetch),
            CODECS,
            membership_is_fresh=lambda: made.is_fresh(),  # noqa: PLW0108 - made right below
            gate_clock=gate_clock,
            tls=tls,
        )
        made = World(site, stage)
        await stage.start()
        stage.opened(PARTITION, made.view)
        yield made
        await stage.stop()
