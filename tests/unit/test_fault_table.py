"""The page about faults says what was measured, and each of its rows has a test."""

from __future__ import annotations

import ast

import pytest

from tests.fault_run import Observed
from tests.fault_table import FAULTS, PAGE, TESTS, read_figures, record, render
from tests.fault_traffic import source_of

CALM = Observed(100, 0, 0, 0, 0, 0, 0.14, 0.12, [])


def test_every_row_has_its_test_and_every_test_its_row():
    """A row without a test is a claim."""
    tree = ast.parse(TESTS.read_text(encoding="utf-8"))
    tests = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert {f"test_{fault.name}" for fault in FAULTS} == tests


def test_the_page_says_what_was_recorded():
    """`make faults` writes both; nobody edits the page by hand."""
    assert render(read_figures()) == PAGE.read_text(encoding="utf-8")


def test_what_was_recorded_keeps_the_promise():
    """A page that says otherwise must not be published."""
    for kinds in read_figures().values():
        for observed in kinds.values():
            assert (0, 0, 0) == (observed.rolled_back, observed.read_twice, observed.lost)


def test_a_broken_promise_would_stand_out():
    """A table in which every cell says no must be able to say yes."""
    rows = {fault.name: dict.fromkeys(fault.kinds, CALM) for fault in FAULTS}
    calm = render(rows)
    assert "yes" not in calm.partition("| fault |")[2]
    struck = Observed(100, 7, 9, 1, 2, 3, 4.0, None, [69, 69])
    (line,) = (
        line for line in render(rows | {"deadline": {"parallel": struck}}).splitlines() if line not in calm.splitlines()
    )
    cells = [cell.strip() for cell in line.strip("|").split("|")][2:]
    assert "yes: 7 of 100 records; 9 outputs written twice, visible once" == cells[0]
    assert ["**yes: 1**", "**yes: 2**", "**yes: 3**", "yes, with 69", "4.0 s", "-"] == cells[1:]


def test_figures_are_recorded_only_when_asked_for(tmp_path, monkeypatch):
    """An ordinary test run leaves the tree alone; a run of one row leaves the other rows."""
    path = tmp_path / "figures.json"
    monkeypatch.delenv("HEADRACE_FAULTS", raising=False)
    record("zombie", "parallel", CALM)
    assert not path.exists()
    monkeypatch.setenv("HEADRACE_FAULTS", str(path))
    record("zombie", "parallel", CALM)
    record("zombie", "ordered", CALM)
    monkeypatch.setattr("tests.fault_table.FIGURES", path)
    assert {"zombie": {"parallel": CALM, "ordered": CALM}} == read_figures()


@pytest.mark.parametrize("output", [b"v:t-1", b"beside:v:t-1", b"first:12:v:t-1", b"timer:v:t-1"])
def test_an_output_leads_to_its_record(output):
    """Else nothing would be counted."""
    assert b"v:t-1" == source_of(output)
