from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.harness import ChaosRun
from tests.chaos.pipeline_run import PipelineRun
from tests.chaos.report import Report
from tests.chaos.settings import from_environment, names_from

ROUND_S = 120.0
MINUTES = float(os.environ.get("CHAOS_MINUTES", "10"))
ROUNDS = ("toys", "pipeline")


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_the_promises_hold_for_long(tmp_path, capsys):
    """Toy stages and the whole pipeline in turn, for `make chaos MINUTES=…`; each round with a seed of its own."""
    first = from_environment(os.environ, ROUND_S)
    rounds = names_from(os.environ, "CHAOS_ROUNDS", list(ROUNDS))
    deadline_s = time.monotonic() + MINUTES * 60
    toys, verdicts, number = Report(), [], 0
    while number < len(rounds) or time.monotonic() < deadline_s:
        seed = first.seed + number
        directory = tmp_path / str(seed)
        if rounds[number % len(rounds)] == "toys":
            toys.add(ChaosRun(directory, replace(first, seed=seed)).run())
            assert [] == toys.wrong, f"CHAOS_ROUNDS=toys CHAOS_SEED={seed}\n{toys.table()}"
        else:
            verdicts.append(PipelineRun(directory, seed, ROUND_S, first.weights).run())
            assert [] == verdicts[-1].wrong, f"CHAOS_ROUNDS=pipeline CHAOS_SEED={seed}"
        shutil.rmtree(directory)  # of a round that was right nothing is needed any more
        number += 1
    total = sum(toys.disruptions.values()) + sum(sum(verdict.happened.disruptions.values()) for verdict in verdicts)
    with capsys.disabled():
        print(f"\n{toys.table()}" if toys.rounds else "")  # noqa: T201  # what the run was for
        for verdict in verdicts:
            Console().print(verdict.table())
        print(f"{total} disruptions in {number} rounds: 0 lost, 0 doubled, 0 impolite")  # noqa: T201
    if file := os.environ.get("CHAOS_JSON"):
        rows = {"disruptions": total, "rounds": number, "pipeline": [verdict.as_json() for verdict in verdicts]}
        Path(file).write_text(json.dumps(rows), encoding="utf-8")
