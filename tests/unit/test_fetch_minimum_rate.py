from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pipeline.errors import SiteError
from pipeline.fetch.minimum_rate import MinimumRate, RatedChunks


class Site:
    """Sends chunks after pauses, on a clock of its own."""

    def __init__(self, *sent: tuple[float, int]) -> None:
        self.sent = sent
        self.now_s = 1000.0

    def clock(self) -> float:
        """What time it is."""
        return self.now_s

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield them."""
        for pause_s, length in self.sent:
            self.now_s += pause_s
            yield bytes(length)


async def read(site: Site, rate: MinimumRate, think_s: float = 0.0) -> int:
    """Read a body; return how many bytes came before it was given up, or its length. We think after each chunk."""
    read_bytes = 0
    try:
        async for chunk in RatedChunks(site.chunks(), rate, site.clock):
            read_bytes += len(chunk)
            site.now_s += think_s
    except SiteError as exc:
        assert "slow_body" == exc.reason  # noqa: PT017 - what was read before it matters
        return -read_bytes
    return read_bytes


@pytest.mark.parametrize("pause_s", [0.1, 2.0, 14.9])
async def test_a_drip_ends_when_a_window_has_passed(pause_s):
    """Each byte restarts the idle limit: without a rate only the total time would end it."""
    site = Site(*[(pause_s, 1)] * 1000)
    assert await read(site, MinimumRate(100, 20)) < 0
    assert site.now_s < 1000 + 20 + pause_s + 0.001


async def test_a_body_that_is_slow_but_not_too_slow_is_read_to_its_end():
    """A modem's pace is no attack."""
    assert 300 * 100 == await read(Site(*[(1.0, 100)] * 300), MinimumRate(100, 20))


async def test_a_site_that_thinks_for_long_and_then_sends_passes():
    """A page that is made while it is sent pauses where the database is asked."""
    assert 42_000 == await read(Site((0.1, 500), (19.5, 1_500), (0.5, 40_000)), MinimumRate(100, 20))


async def test_a_body_that_ends_within_the_first_window_is_not_judged():
    """There is too little of it to tell."""
    assert 2 == await read(Site((9.0, 1), (9.0, 1)), MinimumRate(100, 20))


async def test_a_body_that_slows_down_ends_too():
    """Each window is judged by itself: a fast start earns no rest."""
    site = Site((0.1, 1 << 20), *[(1.0, 1)] * 1000)
    assert -(1 << 20) > await read(site, MinimumRate(100, 20)) > -(1 << 20) - 50
    assert site.now_s < 1000 + 42


async def test_our_own_slowness_is_not_the_site_s():
    """A worker that decodes, or waits for its processor, would give up every page it has."""
    assert 2000 == await read(Site(*[(0.01, 2)] * 1000), MinimumRate(100, 5), think_s=10.0)


async def test_no_minimum_is_none():
    """It can be switched off."""
    assert 100 == await read(Site(*[(10.0, 1)] * 100), MinimumRate(0, 20))
