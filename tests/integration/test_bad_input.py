"""What people meet when something is wrong: a plain message that names it, a status, and nothing lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.config import Broker, Settings, client_options
from pipeline.delivery.exits import ExitCode
from pipeline.local.stack import LocalStack
from pipeline.ops import topics
from tests.chaos.process import until

pytestmark = pytest.mark.broker

HOST = "127.0.0.1"
COMMAND_S = 10.0
COMMAND = [sys.executable, "-m", "pipeline.cli"]
NEED_A_BROKER = {
    "submit": ("submit", "http://site.test/"),
    "pending": ("pending", "fetch"),
    "topics plan": ("topics", "plan"),
    "topics apply": ("topics", "apply"),
    "crawl": ("crawl", f"http://{HOST}:9/"),
}


def environment(directory, bootstrap, **settings):
    """Return the environment of a command: nothing configured but what is named."""
    names = {"broker__bootstrap": bootstrap, "worker__data_dir": str(directory), **settings}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return (
        inherited
        | {f"HEADRACE_{name.upper()}": value for name, value in names.items()}
        | {
            "HEADRACE_CONFIG": os.devnull,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
    )


def run(environ, *arguments):
    """Run a command to its end; returns status, what it said on standard error, and how long it took, seconds."""
    began_s = time.monotonic()
    done = subprocess.run([*COMMAND, *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr, time.monotonic() - began_s


class Running:
    """A command that goes on until it is ended."""

    def __init__(self, log, environ, *arguments):
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen([*COMMAND, *arguments], env=environ, stdout=out, stderr=out)

    @property
    def log(self):
        return self._log.read_text(encoding="utf-8", errors="replace")

    def says(self, text):
        """Wait until it has said it."""
        until(lambda: text in self.log, f"{text!r}:\n{self.log[-2_000:]}")

    def end(self):
        self.process.terminate()
        return self.process.wait(30)


@pytest.fixture
def running(tmp_path):
    """Start commands: `running(environ, "worker", "parse")`; ended after the test."""
    made = []

    def start(environ, *arguments):
        made.append(Running(tmp_path / f"{len(made)}.log", environ, *arguments))
        return made[-1]

    yield start
    for command in made:
        command.process.kill()
        command.process.wait()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """Start a local broker with all topics; `stack.early` is a worker that was there before the broker and its topics.

    Its port must be known before it starts.
    """
    directory = tmp_path_factory.mktemp("late")
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    bootstrap = f"{HOST}:{port}"
    early = Running(directory / "early.log", environment(directory, bootstrap), "worker", "parse")
    early.says(f"no broker answers at {bootstrap}: waiting for it")
    assert early.process.poll() is None
    with LocalStack(directory / "local", registry=False, port=port) as local:
        early.process.wait(30)
        local.early = early
        settings = Settings(broker=Broker(bootstrap=bootstrap))
        topics.apply(client_options(settings.broker), settings)
        yield local


@pytest.fixture
def configured(stack, tmp_path):
    """Return the environment of a worker on the broker: `configured(fetch__robots="false")`."""
    return lambda **settings: environment(tmp_path, stack.addresses.bootstrap, **settings)


@pytest.fixture(scope="module")
def without_broker(tmp_path_factory):
    """Run every command that needs a broker, at the same time, where none is and where something else listens."""
    directory = tmp_path_factory.mktemp("nobody")
    with socket.create_server((HOST, 0)) as silent, socket.create_server((HOST, 0)) as closed:
        addresses = {
            kind: f"{HOST}:{server.getsockname()[1]}" for kind, server in (("silent", silent), ("closed", closed))
        }
        closed.close()
        with ThreadPoolExecutor(len(NEED_A_BROKER)) as threads:
            futures = {
                (name, kind): threads.submit(run, environment(directory, address, broker__wait_s="2"), *arguments)
                for name, arguments in NEED_A_BROKER.items()
                for kind, address in addresses.items()
            }
            ends = {key: future.result() for key, future in futures.items()}
    return addresses, ends


@pytest.mark.parametrize("kind", ["closed", "silent"])
@pytest.mark.parametrize("name", NEED_A_BROKER)
def test_a_command_without_a_broker_ends_with_the_address_and_what_to_do(without_broker, name, kind):
    """Whoever waits at a terminal must not wait for ever, and must know where to look."""
    addresses, ends = without_broker
    status, said, took_s = ends[name, kind]
    assert 3 == status, said
    assert took_s < COMMAND_S
    assert addresses[kind] in said
    assert "headrace up" in said
    assert "Traceback" not in said


def test_the_usual_wait_ends_within_ten_seconds(tmp_path):
    """What is not configured is what most people have."""
    status, said, took_s = run(environment(tmp_path, f"{HOST}:1"), "submit", "http://site.test/")
    assert 3 == status, said
    assert took_s < COMMAND_S


def test_a_command_without_an_address_says_so_at_once(tmp_path):
    """Nothing is configured and no local stack runs: nothing to wait for."""
    environ = environment(tmp_path, "")
    del environ["HEADRACE_BROKER__BOOTSTRAP"]
    status, said, _ = run(environ, "pending", "fetch")
    assert 2 == status
    assert "broker.bootstrap is not set" in said
    assert "headrace up" in said


def test_a_worker_waits_for_the_broker_and_refuses_topics_that_are_not_there(stack):
    """It dies of no outage; what is wrong with the topics it says with the command that mends it."""
    assert ExitCode.CONFIGURATION == stack.early.process.returncode
    assert "missing on the broker: " in stack.early.log
    assert "headrace topics apply" in stack.early.log
    assert "Traceback" not in stack.early.log


def test_a_worker_refuses_another_partition_count(configured):
    """Its domains would be in the wrong places."""
    status, said, _ = run(configured(topics__partitions="7"), "worker", "fetch")
    assert ExitCode.CONFIGURATION == status
    assert "6 partitions instead of the configured 7" in said


def test_two_workers_of_one_name_cannot_share_a_data_directory(configured, running):
    """The second is refused before it touches anything; the first goes on."""
    first = running(configured(), "worker", "store")
    first.says("metrics and health on http://")
    status, said, _ = run(configured(), "worker", "store")
    assert ExitCode.CONFIGURATION == status
    assert "is in use by another worker named store-0" in said
    assert "worker.name" in said
    assert "Traceback" not in said
    assert None is first.process.poll()
    assert 0 == first.end()


def test_a_metrics_port_in_use_is_named(configured):
    """The second worker on a machine with a fixed port is a common slip."""
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        status, said, _ = run(configured(worker__metrics_port=port), "worker", "parse")
    assert ExitCode.CONFIGURATION == status
    assert f"worker.metrics_port {port} on {HOST}: Address already in use" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fetch__total": "1"}, "unknown key 'fetch.total'; the nearest is 'fetch.total_s'"),
        ({"broker__bootstrap": "localhost"}, "'localhost' is not host:port"),
        ({"worker__data_dir": os.devnull}, "/dev/null/state/fetch-0"),
        ({"fetch__allow_addresses": '["10.0.0.0/33"]'}, "fetch.allow_addresses: '10.0.0.0/33'"),
        ({"registry__lock": "/nowhere/lock.json"}, "/nowhere/lock.json"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_worker_names_the_key_that_is_wrong_and_is_not_started_again(configured, settings, words):
    """Status 78: a supervisor that started it again would only repeat the message."""
    status, said, _ = run(configured(**settings), "worker", "fetch")
    assert ExitCode.CONFIGURATION == status, said
    assert words in said
    assert "Traceback" not in said


def test_a_directory_of_documents_that_cannot_be_made_is_named(configured, running, tmp_path):
    """Found when the first partition is opened, not at the first document."""
    (tmp_path / "out").touch()
    worker = running(configured(store__directory=str(tmp_path / "out")), "worker", "store")
    assert ExitCode.CONFIGURATION == worker.process.wait(40)
    assert f"(exit status 78): store.directory {tmp_path}/out" in worker.log
    assert "Traceback" not in worker.log


def test_a_monitor_without_a_broker_says_so_and_waits(running, tmp_path):
    """It is there for the time when nothing else works."""
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
    monitor = running(environment(tmp_path, address), "monitor")
    monitor.says(f"no broker answers at {address}: waiting for it")
    monitor.process.send_signal(signal.SIGINT)
    monitor.process.wait(10)
    assert "Traceback" not in monitor.log
