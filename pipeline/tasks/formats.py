"""Formats of task files, by name and by the ending of a file's name."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from pipeline.tasks.read_csv import read_csv
from pipeline.tasks.read_json import read_json
from pipeline.tasks.read_urls import read_urls
from pipeline.tasks.read_yaml import read_yaml
from pipeline.tasks.rows import Reader

URLS: Final = "urls"
READERS: Final[dict[str, Reader]] = {URLS: read_urls, "csv": read_csv, "json": read_json, "yaml": read_yaml}
_ENDINGS: Final = {
    ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip


def format_of(name: str) -> str:
    """Return the format that the ending of a file's name stands for; a list of URLs where it stands for none."""
    return _ENDINGS.get(PurePath(name).suffix.lower(), URLS)
