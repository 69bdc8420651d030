from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import __file__ as tests_file

ROOT = Path(tests_file).parents[1]
SOURCES = sorted(
    path for package in ("pipeline/delivery", "pipeline/state", "agents") for path in (ROOT / package).glob("*.py")
)
CALLS = {
    "pause_partitions": "Faust drops records that it has fetched already of a partition that is paused",
    "noack": "what it leaves unacknowledged stops every later commit of the stream",
    "take": "it acknowledges records before they are handled",
    "Table": "recovery takes minutes, and its store knows nothing of our transactions",
    "GlobalTable": "the same",
}
KEYWORDS = {
    "processing_guarantee": "Faust's own transactions don't fence a member that lost its partitions",
    "concurrency": "records of one partition would finish in any order and be acknowledged in none",
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_loses_records_is_not_used(path):
    """These parts of Faust lose or double records; none of them may come back unseen."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in CALLS, f"line {node.lineno}: {CALLS[node.func.attr]}"
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                assert keyword.arg not in KEYWORDS, f"line {node.lineno}: {KEYWORDS[keyword.arg]}"
