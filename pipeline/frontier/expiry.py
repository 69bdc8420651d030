"""Expiry: URLs that ended longer ago than the horizon are forgotten, a few at a time.

The seen table is looked through once a day, in steps. To note beside each URL when it is to be forgotten would cost a
row and a change more for every URL; to look at all rows costs a partition of 17 million a second of CPU in 20 minutes.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

from pipeline.delivery.api import StateView
from pipeline.frontier.days import DAY_MS, day_of
from pipeline.frontier.records import META, SEEN, day_of_seen
from pipeline.frontier.seen import SeenTable

STEP_ROWS: Final = 2_000
"""Rows looked at in a step, and at most forgotten."""
STEP_MS: Final = 10_000
"""Pause between steps: with the rows of a step, 17 million rows a day; more take longer than a day."""
_KEY: Final = b"expiry"
_DAY: Final = struct.Struct(">I")
_DONE: Final = b""


class Expiry:
    """Looks through the seen table of a partition.

    The day of the pass and how far it has come are in the state, so that a restart goes on there.

    Args:
        view: the partition's state.
        seen: its seen table; its horizon decides.
    """

    def __init__(self, view: StateView, seen: SeenTable) -> None:
        self._view = view
        self._seen = seen
        stored = view.get(META, _KEY)
        self._day = _DAY.unpack_from(stored)[0] if stored else None
        """Day of the last pass, None before the first."""
        self._next = stored[_DAY.size :] if stored else _DONE
        """Key at which the pass goes on; empty when it has come to its end."""
        self._stepped_ms = 0

    def due_ms(self) -> int | None:
        """Return when `run` has work to do; None before its first call, and without a horizon."""
        if self._day is None or not self._seen.horizon_days:
            return None
        return self._stepped_ms + STEP_MS if self._next else (self._day + 1) * DAY_MS

    def run(self, now_ms: int) -> int:
        """Do a step when it is time for one. Return how many URLs were forgotten."""
        if not self._seen.horizon_days:
            return 0
        today = day_of(now_ms)
        if self._day is None:  # nothing that is known can be too old today
            self._note(today, _DONE)
            return 0
        if now_ms < self._stepped_ms + STEP_MS or (not self._next and today <= self._day):
            return 0
        self._stepped_ms = now_ms
        rows = list(islice(self._view.items(SEEN, b"", self._next), STEP_ROWS))
        oldest_day = self._seen.oldest_day
        forgotten = 0
        for key, packed in rows:
            day = day_of_seen(packed)
            if day is not None and day < oldest_day:
                self._seen.forget(key)
                forgotten += 1
        begun = self._day if self._next else today
        self._note(begun, rows[-1][0] + b"\0" if len(rows) == STEP_ROWS else _DONE)
        return forgotten

    def _note(self, day: int, following: bytes) -> None:
        self._day, self._next = day, following
        self._view.put(META, _KEY, _DAY.pack(day) + following)
