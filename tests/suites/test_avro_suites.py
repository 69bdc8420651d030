"""The Avro project's own cases. Its container files are not among them: a topic carries single records."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fastavro.schema import to_parsing_canonical_form

from pipeline.contracts.compatibility import unreadable

SUITES = Path(os.environ.get("HEADRACE_SUITES") or Path(__file__).parents[3] / "shared" / "suites") / "avro"


def rows(name: str) -> list[object]:
    """Rows of one file; without the suites one row that skips with the reason."""
    file = SUITES / name
    if not file.is_file():
        reason = f"no Avro suite at {SUITES}; set HEADRACE_SUITES"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    parsed = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(row, id=row["id"]) for row in parsed]


@pytest.mark.parametrize("row", rows("compatibility.jsonl"))
def test_a_pair_is_judged_as_by_the_reference_implementation(row):
    """Our check stands between a contract change and every running reader."""
    found = unreadable(row["reader"], row["writer"])

    assert row["verdict"] == ("incompatible" if found else "compatible"), found


@pytest.mark.parametrize("row", rows("canonical.jsonl"))
def test_the_canonical_form_is_the_specification_s(row):
    """The lock tells schemas apart by the hash of this form: another registry client must get the same."""
    assert row["canonical"] == to_parsing_canonical_form(json.loads(row["schema"]))
