"""Minimum rate: a body that drips is given up, though each byte restarts the idle limit."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Self

from pipeline.errors import SiteError


class MinimumRate:
    """Judges how fast the chunks of one body come.

    Counted is the time in which a chunk is waited for: what decoding takes, or others in the same process, is no fault
    of the site's. A chunk counts in full in the window in which it comes, so a site that thinks for long and then sends
    quickly passes, and a body that ends within the first window is never judged.

    Args:
        bytes_per_s: least number of bytes as received, on average over each window; 0 for no minimum.
        window_s: time after which the average is looked at.
    """

    def __init__(self, bytes_per_s: float, window_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._window_s = window_s
        self._waited_s = 0.0
        self._bytes = 0

    def took(self, waited_s: float, chunk_bytes: int) -> None:
        """Note a chunk.

        Args:
            waited_s: how long it was waited for.
            chunk_bytes: its length as received.

        Raises:
            SiteError: `slow_body`.
        """
        self._waited_s += waited_s
        self._bytes += chunk_bytes
        if self._waited_s < self._window_s:
            return
        if self._bytes < self._bytes_per_s * self._waited_s:
            said = f"{self._bytes} bytes in {self._waited_s:.1f} s; at least {self._bytes_per_s:g} a second"
            raise SiteError("slow_body", said)
        self._waited_s, self._bytes = 0.0, 0


class RatedChunks:
    """The chunks of a body, each judged as it comes.

    Args:
        chunks: as received.
        rate: judges them; raises through the iteration.
        clock: s, monotonic.

    Attributes:
        received_bytes: so far.
    """

    def __init__(
        self, chunks: AsyncIterator[bytes], rate: MinimumRate, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._chunks = chunks
        self._rate = rate
        self._clock = clock
        self.received_bytes = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        began_s = self._clock()
        chunk = await anext(self._chunks)
        self.received_bytes += len(chunk)
        self._rate.took(self._clock() - began_s, len(chunk))
        return chunk
