from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipeline.delivery.exits import ExitCode
from pipeline.errors import ConfigurationError
from pipeline.local import supervisor
from pipeline.local.demo import worker_counts
from pipeline.local.supervisor import Fleet, WorkerProcess
from pipeline.topics import STAGES

LIMIT_S = 10.0
WAITS = "import signal; print('ready', flush=True); signal.pause()"
BURNS = """
import signal, time
while time.process_time() < 0.15:
    pass
print("ready", flush=True)
signal.pause()
"""
HAS_A_CHILD = f"""
import subprocess, sys
code = {BURNS.replace("signal.pause()", "input()")!r}  # ends with its parent, whose pipe it reads
subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE).wait()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


@pytest.fixture
def started(tmp_path):
    """Start a process that runs some Python: `started(code)`; ended after the test."""
    made = []

    def start(code, **environ):
        worker = WorkerProcess(f"toy-{len(made)}", ["-c", code], environ, tmp_path / "logs" / f"{len(made)}.log")
        made.append(worker)
        worker.start()
        return worker

    yield start
    for worker in made:
        worker.kill()
        worker.wait(5)


def until(condition, what):
    """Wait for a condition; says what did not come."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {LIMIT_S} s for {what}"
        time.sleep(0.01)


def says(worker, text, times=1):
    """Wait until its log has the text so often."""
    until(lambda: worker.tail().count(text) >= times, f"{text!r} from {worker.label}: {worker.tail()}")


def ended(worker):
    """Wait until its process has ended."""
    until(lambda: worker.pid is None, f"the end of {worker.label}")


def test_a_process_gets_the_environment_and_its_output_is_kept(started):
    """What a worker said before it died is all there is to find out why."""
    worker = started(
        "import os; print(os.environ['WISH'], os.environ['PATH'] > '', flush=True); raise SystemExit('alas')", WISH="x"
    )
    ended(worker)
    assert "x True\nalas\n" == worker.tail()


def test_how_a_process_ended_is_known_until_the_next_one_starts(started):
    """A fault test counts what its workers end with; a signal is told from a status."""
    worker = started(WAITS)
    says(worker, "ready")
    assert worker.exit_status is None
    worker.send(signal.SIGINT)
    ended(worker)
    assert -signal.SIGINT == worker.exit_status
    worker.send(signal.SIGTERM)  # nobody there to get it
    worker.start()
    assert worker.exit_status is None


def test_each_worker_of_a_fleet_has_its_own_name_and_environment(tmp_path):
    """A fault test starts workers of its own, each behind its own proxy."""
    fleet = Fleet(
        tmp_path,
        {"SHARED": "1"},
        {"fetch": 2},
        command=["-c", "import os, sys; print(sys.argv[1], os.environ['HEADRACE_WORKER__NAME'], os.environ['OWN'])"],
        own=lambda label: {"OWN": f"of {label}"},
    )
    fleet.start()
    until(lambda: all(worker.exit_status == 0 for worker in fleet.all), "the ends of both")
    assert ["fetch 0 of fetch-0\n", "fetch 1 of fetch-1\n"] == [worker.tail() for worker in fleet.all]


def test_a_killed_worker_comes_back_at_once(started):
    """A power cut has no reason that lasts."""
    worker = started(WAITS)
    first = worker.pid
    worker.kill()
    until(lambda: worker.look_after() or worker.restarts, "a restart")
    assert 1 == worker.restarts
    assert worker.pid not in {first, None}
    says(worker, "ready")


def test_a_worker_that_ended_by_itself_comes_back_after_a_pause(started, monkeypatch):
    """The reason may last: starting it again without a pause would only heat the machine."""
    worker = started("raise SystemExit(70)")
    ended(worker)
    monkeypatch.setattr(supervisor, "RESTART_PAUSE_S", 3_600.0)
    worker.look_after()
    worker.look_after()
    assert (0, None) == (worker.restarts, worker.pid)
    monkeypatch.setattr(supervisor, "RESTART_PAUSE_S", 0.0)
    worker.look_after()
    assert 1 == worker.restarts


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("INFO x\nheadrace: missing: a, b;\nmend it\n", "missing: a, b;\nmend it"),
        ("CRITICAL this worker ends (exit status 78): out: the disk is full\nTraceback\n  x\nINFO Stopping\n",
         "out: the disk is full"),
        ("Segmentation fault\n", "Segmentation fault\n"),
    ],
)  # fmt: skip
def test_a_worker_that_ended_because_of_its_configuration_is_not_started_again(started, log, words):
    """It would say the same for ever; the person at the terminal must read why, and no more than that."""
    worker = started(f"print({log!r}, end=''); raise SystemExit({int(ExitCode.CONFIGURATION)})")
    ended(worker)
    with pytest.raises(ConfigurationError) as refused:
        worker.look_after()
    assert f"toy-0 can't work: {words} (its log: {worker.log})" == str(refused.value)
    assert 0 == worker.restarts


def test_cpu_is_counted_over_restarts(started):
    """The price of a crawl includes what its killed workers had done."""
    worker = started(BURNS)
    says(worker, "ready")
    worker.look_after()
    first_s = worker.cpu_s()
    assert first_s >= 0.1
    worker.kill()
    until(lambda: worker.look_after() or worker.restarts, "a restart")
    says(worker, "ready", 2)
    worker.look_after()
    assert worker.cpu_s() >= first_s + 0.1


def test_cpu_used_since_the_last_look_counts_at_the_end(started):
    """A short run would otherwise cost nothing."""
    worker = started(BURNS)
    says(worker, "ready")
    worker.terminate()
    worker.wait(5)
    assert worker.cpu_s() >= 0.1


def test_cpu_of_child_processes_is_counted(started):
    """Parsing is done in children of the worker."""
    worker = started(HAS_A_CHILD)
    says(worker, "ready")
    worker.look_after()
    assert worker.cpu_s() >= 0.1


def test_the_endpoint_is_what_the_present_process_has_said(started, tmp_path):
    """Ports change with each start, and a log may hold the URLs of pages too."""
    port = tmp_path / "port"
    port.write_text("1111")
    worker = started(
        f"print('INFO x: metrics and health on http://127.0.0.1:' + open({str(port)!r}).read());"
        f"print('WARNING dead letter: http://site.test:80/'); {WAITS}"
    )
    says(worker, "ready")
    assert "http://127.0.0.1:1111" == worker.endpoint()
    port.write_text("2222")
    worker.kill()
    until(lambda: worker.look_after() or worker.restarts, "a restart")
    assert worker.endpoint() in {None, "http://127.0.0.1:2222"}
    until(worker.endpoint, "the new endpoint")
    assert "http://127.0.0.1:2222" == worker.endpoint()


def test_an_endpoint_that_does_not_answer_is_empty(started):
    """A display goes on while a worker is away."""
    worker = started(f"print('metrics on http://127.0.0.1:1'); {WAITS}")
    says(worker, "ready")
    assert b"" == worker.read("/metrics")


def test_a_worker_that_never_started_has_nothing_to_say(tmp_path):
    """A display may be drawn before the first start."""
    worker = WorkerProcess("toy", ["-c", ""], {}, tmp_path / "toy.log")
    worker.look_after()
    assert (None, None, b"", 0.0, "(no log)") == (
        worker.pid, worker.endpoint(), worker.read("/"), worker.cpu_s(), worker.tail(),
    )  # fmt: skip
    assert worker.wait(0)


def test_a_fleet_that_stops_names_what_had_to_be_killed(started, tmp_path, monkeypatch):
    """A worker that ignores a deploy's signal is a fault worth a line."""
    monkeypatch.setattr(supervisor, "STOP_LIMIT_S", 0.2)
    fleet = Fleet(tmp_path, {}, {})
    good, stubborn = started(WAITS), started(STUBBORN)
    says(good, "ready")
    says(stubborn, "ready")
    fleet.by_stage = {"toy": [good, stubborn]}
    assert ["toy-1"] == fleet.stop()
    assert (None, None) == (good.pid, stubborn.pid)
    assert [] == fleet.stop()


def test_each_worker_of_a_fleet_has_a_name_and_a_log_of_its_own(tmp_path):
    """Two of the same name would replace each other."""
    fleet = Fleet(tmp_path, {}, {"fetch": 2, "parse": 1}, name="mine")
    assert ["fetch-0", "fetch-1", "parse-0"] == [worker.label for worker in fleet.all]
    assert 3 == len({worker.log for worker in fleet.all})
    assert ["mine-0", "mine-1", "mine-0"] == [worker._environ["HEADRACE_WORKER__NAME"] for worker in fleet.all]


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_workers_end_with_their_supervisor(tmp_path):
    """A killed `headrace demo` must not leave workers behind that go on crawling."""
    code = f"""
import signal
from pathlib import Path
from pipeline.local.supervisor import WorkerProcess
worker = WorkerProcess("toy", ["-c", {WAITS!r}], {{}}, Path({str(tmp_path)!r}) / "toy.log")
worker.start()
print(worker.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        until(lambda: "ready" in (tmp_path / "toy.log").read_text(), "the child")
        os.kill(parent.pid, signal.SIGKILL)
    until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        "the end of a child without parent",
    )


def test_workers_are_counted_by_words():
    """`--workers fetch=2`; what is not named stays."""
    assert dict.fromkeys(STAGES, 1) == worker_counts(())
    assert dict.fromkeys(STAGES, 2) | {"fetch": 3, "parse": 1} == worker_counts(("fetch=3", "parse=1"), default=2)


@pytest.mark.parametrize(
    "word", ["fetch", "fetch=", "fetch=0", "fetch=-1", "fetch=x", "fetch=1.5", "fetsch=1", "=1", ""]
)
def test_a_word_that_is_no_count_is_refused_with_what_would_be(word):
    """A typing slip must not start a demo that measures something else."""
    with pytest.raises(ValueError, match=r"STAGE=N with a stage of frontier, fetch, parse, store"):
        worker_counts((word,))
