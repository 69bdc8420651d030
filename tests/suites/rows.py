"""Where the suites of other projects are, and how their rows become parameters of a test.

They are not part of this repository: `HEADRACE_SUITES` names their directory; without it `shared/suites` beside the
repository is looked at. A suite that is not there skips its tests with that reason.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SUITES = Path(os.environ.get("HEADRACE_SUITES") or Path(__file__).parents[3] / "shared" / "suites")


def suite_rows(name: str) -> list[Any]:
    """Rows of one file, such as `html5lib/encoding.jsonl`, each a parameter with the row's id."""
    file = SUITES / name
    if not file.is_file():
        reason = f"no suite {name} in {SUITES}; set HEADRACE_SUITES"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows]


def document(value: Mapping[str, str]) -> bytes:
    """Bytes of a document: `{"text": ...}` or, where it is no clean UTF-8, `{"b64": ...}`."""
    return base64.b64decode(value["b64"]) if "b64" in value else value["text"].encode()
