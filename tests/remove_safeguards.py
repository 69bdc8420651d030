"""Removes the safeguards of the delivery core one at a time, in a copy of the tree, and runs the tests that must fail.

A test that passes without what it is said to protect is worth nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.safeguards import ROOT, SAFEGUARDS, Safeguard, without

LEFT_OUT = (
    ".git", ".venv", ".headrace", "out", "build", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis",
)  # fmt: skip
TEST_LIMIT_S = 90
RUN_LIMIT_S = 300
TESTS_FAILED = 1
"""Exit status of pytest; other ones mean that it could not run them."""


def copy_tree(target: Path) -> None:
    """Copy the working tree without what it was made with or has made."""
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))


def fails_whole(tree: Path, chosen: Sequence[Safeguard], environment: Mapping[str, str]) -> str:
    """Run all tests in a whole tree; returns what pytest said where one failed: it would notice anything."""
    tests = sorted({test for safeguard in chosen for test in safeguard.tests})
    done = run_tests(tree, tests, environment, limit_s=RUN_LIMIT_S * len(tests))
    return done.stdout[-2_000:] + done.stderr[-500:] if done.returncode else ""


def run_tests(
    tree: Path, tests: Sequence[str], environment: Mapping[str, str], *, limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run tests in a tree, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", f"--timeout={TEST_LIMIT_S}", *tests]
    return subprocess.run(
        command, cwd=tree, env=dict(environment), capture_output=True, text=True, timeout=limit_s, check=False
    )


def survivors(tree: Path, tests: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Run each test in a tree; returns those that did not fail, or could not be run."""
    passed = []
    for test in tests:
        done = run_tests(tree, [test], environment, limit_s=RUN_LIMIT_S)
        if done.returncode == 0:
            passed.append(test)
        elif done.returncode != TESTS_FAILED:
            passed.append(f"{test} (pytest ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]})")
    return passed


def check(safeguard: Safeguard, tree: Path, environment: Mapping[str, str]) -> list[str]:
    """Remove a safeguard from a tree, run its tests and put it back; returns the tests that did not fail."""
    path = tree / safeguard.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(without(safeguard, tree), encoding="utf-8")
    try:
        return survivors(tree, safeguard.tests, environment)
    finally:
        path.write_text(whole, encoding="utf-8")


def main(wanted: Sequence[str]) -> int:
    """Check all safeguards, or those whose names contain one of the words; returns how many are not tested."""
    from pipeline.local.kafka import LocalBroker  # noqa: PLC0415  # the list itself needs no broker

    chosen = [one for one in SAFEGUARDS if not wanted or any(word in one.name for word in wanted)]
    untested = 0
    with tempfile.TemporaryDirectory() as scratch, LocalBroker(Path(scratch) / "kafka") as broker:
        tree = Path(scratch) / "tree"
        copy_tree(tree)
        environment = {**os.environ, "HEADRACE_TEST_BOOTSTRAP": broker.bootstrap, "PYTHONPATH": str(tree)}
        if failed := fails_whole(tree, chosen, environment):
            print(f"these tests fail although nothing was removed:\n{failed}")  # noqa: T201  # a tool
            return len(chosen)
        for safeguard in chosen:
            began_s = time.monotonic()
            passed = check(safeguard, tree, environment)
            untested += bool(passed)
            verdict = f"NOT NOTICED by {', '.join(passed)}" if passed else f"noticed by {len(safeguard.tests)}"
            print(f"{time.monotonic() - began_s:6.1f} s  {safeguard.name}: {verdict}", flush=True)  # noqa: T201  # a tool
    print(f"{len(chosen) - untested} of {len(chosen)} removals were noticed")  # noqa: T201  # a tool
    return untested


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
