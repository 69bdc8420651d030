"""What sites have asked to be left alone for, kept with the partition, so that its next owner knows it too.

The frontier decides by the same wishes, but a lane record that it wrote before it heard of one may be read by the next
owner of the partition first. The wish is committed with the outcome that brought it, so whoever reads the record
after that outcome finds it here. Only what a killed process had been told and had not committed is lost.

A row is a robots entry of the domain: CLOSED until it expires.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.delivery.api import Change, StateView
from pipeline.errors import InputError
from pipeline.fetch.gate import DomainGate

TABLE: Final = "h"

log = logging.getLogger(__name__)


class Holds:
    """Wishes by registrable domain.

    Args:
        gate: is told of them.
        codecs: of the contracts.
        now: wall clock, s since the epoch.
    """

    def __init__(self, gate: DomainGate, codecs: Codecs, now: Callable[[], float]) -> None:
        self._gate = gate
        self._encode = codecs.encoder(topics.ROBOTS.subject)
        self._decode = codecs.decoder(topics.ROBOTS.subject)
        self._now = now
        self._until_ms: dict[tuple[int, str], int] = {}

    def opened(self, partition: int, view: StateView | None) -> None:
        """The partition is ours: tell the gate what its domains wanted."""
        self.closed(partition)
        for key, value in view.items(TABLE) if view is not None else ():
            domain = key.decode(errors="replace")  # no domain of ours has a replacement character
            try:
                until_ms: int = self._decode(value)["expires_at_ms"]
            except InputError as exc:
                log.warning("what %s asked for can't be read: %s", domain, exc)
                continue
            self._tell(domain, partition, until_ms)

    def closed(self, partition: int) -> None:
        """Forget the partition."""
        for key in [key for key in self._until_ms if key[0] == partition]:
            del self._until_ms[key]

    def hold(self, domain: str, partition: int, origin: str, status: int | None, pause_s: float) -> Change:
        """Leave a domain alone.

        Args:
            domain: registrable domain.
            partition: the one it belongs to.
            origin: that answered so.
            status: HTTP status of the answer.
            pause_s: from now.

        Returns:
            The state change that is to travel with the outcome.
        """
        now_ms = int(self._now() * 1000)
        until_ms = max(now_ms + math.ceil(pause_s * 1000), self._until_ms.get((partition, domain), 0))
        self._tell(domain, partition, until_ms)
        entry = {
            "origin": origin,
            "state": "CLOSED",
            "status": status,
            "body": b"",
            "fetched_at_ms": now_ms,
            "expires_at_ms": until_ms,
        }
        return Change(TABLE, domain.encode(), self._encode(entry))

    def over(self, domain: str, partition: int) -> list[Change]:
        """Return the change that forgets a wish that has passed; none where there is nothing to forget."""
        until_ms = self._until_ms.get((partition, domain))
        if until_ms is None or until_ms > self._now() * 1000:
            return []
        del self._until_ms[partition, domain]
        return [Change(TABLE, domain.encode(), None)]

    def _tell(self, domain: str, partition: int, until_ms: int) -> None:
        self._until_ms[partition, domain] = until_ms
        self._gate.hold(domain, partition, self._gate.now() + until_ms / 1000 - self._now())
