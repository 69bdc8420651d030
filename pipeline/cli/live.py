"""Progress for people: redrawn in place on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live

LOGGED_EVERY_S = 10.0


@contextmanager
def progress(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield the function that shows the newest state; it may be called as often as one likes."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=2) as live:
            yield live.update
        return
    shown_s = float("-inf")
    newest: RenderableType | None = None

    def show(state: RenderableType) -> None:
        nonlocal shown_s, newest
        newest = state
        if time.monotonic() - shown_s >= LOGGED_EVERY_S:
            shown_s, newest = time.monotonic(), None
            console.print(state)

    yield show
    if newest is not None:
        console.print(newest)
