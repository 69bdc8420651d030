from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc, json, resource
from pipeline.process import calm_garbage_collection, raise_file_limit
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))
raise_file_limit()
calm_garbage_collection()
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_freeze_count() > 0, gc.get_threshold()[0], hard]))
"""

TALKS = """
import os, sys
from pipeline.process import outlive_output
outlive_output()
print("x" * 100_000)
print("said", file=sys.stderr)
sys.stdout.flush()
os.write(int(sys.argv[1]), b"done")
print("last words, still to be flushed")
"""
FULL = Path("/dev/full")


def test_a_process_takes_all_files_and_leaves_its_imports_to_themselves():
    """Kept connections are open files; what was imported never becomes garbage."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60)
    limits, frozen, threshold, hard = json.loads(done.stdout)
    assert ([hard, hard], True) == (limits, frozen)
    assert threshold > 700


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
def test_a_process_outlives_a_full_disk_behind_its_output():
    """A log that can't be written is no reason to stop work, nor to end with a status that says nothing."""
    with FULL.open("wb") as full:
        assert (0, b"done") == talk(stdout=full, stderr=full)


def test_a_process_outlives_the_reader_of_its_output():
    """A pager that was closed, a supervisor that died."""
    reading, writing = os.pipe()
    os.close(reading)
    assert (0, b"done") == talk(stdout=writing, stderr=writing)
    os.close(writing)


def test_a_process_starts_with_its_output_closed():
    """As a daemon does."""
    assert (0, b"done") == talk(close="exec 1>&- 2>&-; ")


def test_output_that_can_be_written_is():
    """Line by line where it was so before, and the rest at the end."""
    done = subprocess.run([sys.executable, "-c", TALKS, "1"], check=True, capture_output=True, timeout=60)
    assert b"said\n" == done.stderr
    assert done.stdout.endswith(b"x\ndonelast words, still to be flushed\n")


def talk(close="", **outputs):
    """Run the program; returns its status and what it told beside its output."""
    reading, writing = os.pipe()
    shell = ["/bin/sh", "-c", close + 'exec "$@"', "sh", sys.executable, "-c", TALKS, str(writing)]
    status = subprocess.run(shell, check=False, pass_fds=[writing], timeout=60, **outputs).returncode
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        return status, told.read()
