"""What a site asks for in the headers of any answer: a time to stay away, requests that it still allows."""

from __future__ import annotations

from typing import Final, NamedTuple

from pipeline.fetch.client import Response
from pipeline.fetch.gate import DomainGate
from pipeline.fetch.rate_limit import RateLimit, announced
from pipeline.fetch.retry_after import retry_after_s, site_clock


class Wishes(NamedTuple):
    """What an answer asks for.

    Attributes:
        wish_s: how long the site wants to be left alone (Retry-After), s from now; None where it said nothing.
        limit: what it still allows; None where it announced nothing.
        limits_ignored: limits that it announced and that can't be believed.
    """

    wish_s: float | None = None
    limit: RateLimit | None = None
    limits_ignored: int = 0

    @property
    def rest_s(self) -> float | None:
        """How long it is to be left alone by its own word: its wish, or the rest of a window that is used up."""
        if self.limit is None or self.limit.remaining:
            return self.wish_s
        return max(self.limit.reset_s, self.wish_s or 0.0)

    def heed(self, gate: DomainGate, domain: str, partition: int) -> None:
        """Let the gate keep to it from now on, for what is on its way already."""
        if self.rest_s is not None:
            gate.hold(domain, partition, gate.now() + self.rest_s)
        if self.limit is not None and self.limit.remaining:
            gate.share(domain, partition, self.limit.pause_s, gate.now() + self.limit.reset_s)


NOTHING: Final = Wishes()


def read_wishes(response: Response, now: float) -> Wishes:
    """Read the headers of an answer; `now` is the wall clock, s since the epoch."""
    site_now = site_clock(_texts(response, b"date"), now)
    wish_s = retry_after_s(_texts(response, b"retry-after"), now, site_now=site_now)
    return Wishes(wish_s, *announced(response.values, now, site_now=site_now))


def _texts(response: Response, name: bytes) -> list[str]:
    return [value.decode("latin-1") for value in response.values(name)]
