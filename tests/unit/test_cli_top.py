from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli import top as command
from pipeline.cli.top import top

NOW_MS = 1_700_000_000_000
SEEN = {
    "at_ms": NOW_MS, "workers": ["frontier-0"], "partitions": 6, "partitions_told": 4,
    "totals": {"waiting": 1234, "domains": 3, "held": 5, "out": 6, "done": 70, "failed": 8, "refused": 9},
    "per_s": {"seen": 20.4, "links_received": 3.0, "done": 1.0}, "lanes": {"urgent": 0, "normal": 12, "bulk": 7},
    "per_min": {"pages": 600.0, "errors": 30.0, "outcomes": 660.0},
    "domains": [
        {
            "domain": "a.test", "waiting": {"urgent": 0, "normal": 1_000, "bulk": 2}, "out": 1,
            "due_ms": NOW_MS - 5_000,
            "delay_ms": 1_500, "made_by": "learned", "why": "backoff", "until_ms": NOW_MS + 1_000,
            "per_min": {"pages": 12.0, "errors": 1.0, "outcomes": 13.0},
        },
        {
            "domain": "b.test", "waiting": {"urgent": 1, "normal": 0, "bulk": 0}, "out": 0, "due_ms": NOW_MS - 5_000,
            "delay_ms": 0, "made_by": "configured", "why": "", "until_ms": None,
            "per_min": {"pages": 0.0, "errors": 0.0, "outcomes": 0.0},
        },
    ],
}  # fmt: skip


@pytest.fixture
def run(monkeypatch):
    """Run the command; it sees the same at each look, `run.looks` times, before somebody stops it."""

    class Top:
        def __init__(self, settings, codecs, domains):
            self.left = run.looks

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            pass

        def look(self):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return SEEN

    def run(*arguments, columns=160):
        return CliRunner().invoke(top, arguments, env={"COLUMNS": str(columns)})

    run.looks = 10
    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "nobody.test:9092")
    monkeypatch.setattr(command, "verify", lambda settings, names: None)
    monkeypatch.setattr(command, "Top", Top)
    monkeypatch.setattr(command.time, "sleep", lambda s: None)
    return run


def test_one_look_is_a_table_with_its_sums(run):
    """Also into a file, or a ticket."""
    said = run("--once")
    assert 0 == said.exit_code
    lines = said.output.splitlines()
    assert "1234 waiting in 3 domains, 5 of them held; 6 out; 70 done, 8 of them failed; 9 refused" == lines[0].strip()
    assert "lag of the lanes: urgent 0, normal 12, bulk 7" == lines[1].strip()
    assert "3 link records/s, 20 new URLs/s; 11.0 outcomes/s, 600 pages/min, 30 errors/min" == lines[2].strip()
    assert "nobody answers for 2 of 6 partitions" == lines[3].strip()
    rows = {line.split()[0]: line.split()[1:] for line in lines[5:] if line.strip()}
    expected = ["0", "1000+", "2", "1", "12", "1", "1.5", "s", "(learned)", "backoff,", "1", "s", "more"]
    assert expected == rows["a.test"]
    assert ["its", "turn,", "for", "5", "s"] == rows["b.test"][-5:]


def test_the_usual_terminal_shows_each_domain_whole_in_one_line(run):
    """Eighty columns: the lanes as one sum; a long name is cut, nothing that is counted is."""
    said = run("--once", columns=80)
    lines = said.output.splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("a.test", "b.test"))}
    assert ["1002+", "1", "12", "1.5", "s", "backoff,", "1", "s", "more"] == rows["a.test"]
    assert ["1", "0", "0", "0", "s", "its", "turn,", "for", "5", "s"] == rows["b.test"]


def test_each_look_is_an_object_a_line(run):
    """For a program that watches, until it is stopped."""
    run.looks = 4
    said = run("--json")
    assert 0 == said.exit_code
    assert [SEEN] * 3 == [json.loads(line) for line in said.output.splitlines()]
    assert [SEEN] == [json.loads(line) for line in run("--json", "--once").output.splitlines()]


def test_it_goes_on_until_it_is_stopped(run):
    """By Ctrl-C, which is no error."""
    run.looks = 3
    said = run()
    assert 0 == said.exit_code
    assert "a.test" in said.output
