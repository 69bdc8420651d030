"""The list of safeguards fits the code: what is to be removed is there, and so are the tests that must notice."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.safeguards import ROOT, SAFEGUARDS, Safeguard, without


@cache
def functions_in(file: str) -> set[str]:
    """Names of the functions in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda safeguard: safeguard.name)
def test_a_safeguard_can_be_removed_and_somebody_would_notice(safeguard):
    """A list that has rotted proves nothing: `make safeguards` is long, this is not."""
    ast.parse(without(safeguard))
    assert safeguard.tests
    for test in safeguard.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in functions_in(file)


def test_names_are_told_apart():
    """They choose what is run."""
    assert len(SAFEGUARDS) == len({safeguard.name for safeguard in SAFEGUARDS})


def test_a_text_that_has_gone_is_reported(tmp_path):
    """And so is one that is there twice: the wrong place might be removed."""
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n", encoding="utf-8")
    for text in ("y", "x = 1"):
        with pytest.raises(ValueError, match=r"its text is [02] times in a\.py"):
            without(Safeguard("s", "a.py", text, "", ("t",)), tmp_path)
