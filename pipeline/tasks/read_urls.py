"""Reader of plain lists: one URL a line."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.tasks.rows import Row

COMMENT = "#"


def read_urls(text: str) -> Iterator[Row]:
    """Yield a row for each line but blank ones and those that begin with `#`."""
    for number, line in enumerate(text.split("\n"), 1):
        url = line.strip()
        if url and not url.startswith(COMMENT):
            yield Row(number, number, {"url": url})
