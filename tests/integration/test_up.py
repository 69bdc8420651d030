"""`headrace up` as its own process, as a terminal sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from pipeline.contracts.lock import read_lock
from pipeline.topics import TABLE

LIMIT_S = 60.0
COMMAND = [sys.executable, "-c", "from pipeline.cli import main; main()"]

pytestmark = pytest.mark.broker


@pytest.fixture
def environment(tmp_path):
    """An environment without a named broker, and a data directory of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return env | {"HEADRACE_WORKER__DATA_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}


@contextmanager
def up(environment: dict[str, str], *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run it until it is ready; yields the process and the addresses it printed."""
    process = subprocess.Popen(
        [*COMMAND, "up", *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout
        assert process.stderr
        try:
            lines = [process.stderr.readline()]
            while not lines[-1].startswith("running"):
                lines.append(process.stderr.readline())
                assert lines[-1], "".join(lines)
            addresses = [process.stdout.readline() for _ in range(2 - ("--no-registry" in arguments))]
            yield process, dict(line.strip().split("=", 1) for line in addresses)
        finally:
            process.kill()


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def servers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the guards and servers below a process."""
    return psutil.Process(process.pid).children(recursive=True)


def test_the_stack_is_ready_for_other_terminals_and_ends_on_sigterm(environment):
    """Two lines to copy, all topics there, the registry filled with the ids that workers have built in."""
    with up(environment) as (process, addresses):
        servers = servers_of(process)
        assert {"HEADRACE_BROKER__BOOTSTRAP", "HEADRACE_REGISTRY__URL"} == addresses.keys()
        planned = run(environment, "topics", "plan")
        assert (0, "") == (planned.returncode, planned.stderr)
        assert "topics are as they should be" in planned.stdout
        url = addresses["HEADRACE_REGISTRY__URL"]
        assert {f"{topic.name}-value" for topic in TABLE} == set(httpx.get(f"{url}/subjects").json())
        subject = read_lock().subjects["crawl.tasks.v1-value"]
        latest = httpx.get(f"{url}/subjects/crawl.tasks.v1-value/versions/latest").json()
        assert subject.versions[subject.writes].id == latest["id"]
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(LIMIT_S)
        assert not [server for server in servers if server.is_running()]
    refused = run(environment, "topics", "plan")
    assert 2 == refused.returncode
    assert "headrace up" in refused.stderr


def test_a_second_one_is_refused_and_a_killed_one_leaves_nothing_behind(environment):
    """The same terminal twice is a slip; a kill -9 must free memory, port and directory for the next start."""
    with up(environment, "--no-registry") as (process, addresses):
        servers = servers_of(process)
        second = run(environment, "up", "--no-registry")
        assert 2 == second.returncode
        assert f"is in use by process {process.pid}" in second.stderr
        process.kill()
    deadline = time.monotonic() + LIMIT_S
    while [server for server in servers if server.is_running() and server.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with up(environment, "--no-registry") as (process, again):
        assert addresses == again
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(LIMIT_S)
        assert process.stderr
        assert re.search("^stopped$", process.stderr.read(), re.MULTILINE)
