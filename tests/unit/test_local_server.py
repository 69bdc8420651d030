"""The ground that broker and registry stand on, tried with a server of a few lines that starts in no time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.errors import BrokerError, ConfigurationError
from pipeline.local.server import PORT_RANGE, JavaServer, PortTakenError, check_port, free_ports, is_open

LIMIT_S = 15.0
LISTEN = """
import os, pathlib, socket, sys
starts = pathlib.Path("starts")
starts.write_text(starts.read_text() + "+" if starts.exists() else "+")
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""
OWNER = """
import sys, threading, time
from pathlib import Path
from tests.unit.test_local_server import ScriptServer

server = ScriptServer(Path(sys.argv[1]))
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pid, flush=True)
time.sleep(600)
"""


class ScriptServer(JavaServer):
    """Listens on its port; `script` may be anything else."""

    name = "script"

    def __init__(self, directory: Path, port: int | None = None, script: str = LISTEN) -> None:
        super().__init__(directory, port)
        self.script = script

    def _prepare(self, ports: list[int]) -> list[str]:
        return [sys.executable, "-c", self.script, *map(str, ports)]

    def _is_ready(self, port: int) -> bool:
        return is_open(f"127.0.0.1:{port}")


def wait_for_the_end_of(pid: int) -> None:
    """Return when the process is gone; one that nobody has reaped yet counts as gone."""
    deadline = time.monotonic() + LIMIT_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def wait_until_it_is_over(server: JavaServer) -> None:
    """Return when the server's guard is gone too: it ends after the server, with its status."""
    deadline = time.monotonic() + LIMIT_S
    while server.pid is not None:
        assert time.monotonic() < deadline, "the guard still runs"
        time.sleep(0.02)


def test_it_answers_when_started_and_is_gone_when_left(tmp_path):
    """Who leaves the `with` block may start another at once: process and port must be free by then."""
    with ScriptServer(tmp_path) as server:
        pid = server.pid
        assert pid is not None
        assert is_open(server.address)
    assert not psutil.pid_exists(pid)
    assert not is_open(server.address)
    assert server.pid is None


def test_a_second_start_of_a_running_server_changes_nothing(tmp_path):
    """Start is called by whoever needs the server; it must not cost the others theirs."""
    with ScriptServer(tmp_path) as server:
        pid = server.pid
        assert server.address == server.start()
        assert pid == server.pid


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_comes_back_on_the_same_port(tmp_path, end):
    """Clients know the address and wait there."""
    with ScriptServer(tmp_path) as server:
        address = server.address
        getattr(server, end)()
        assert not is_open(address)
        assert address == server.start()
    assert "++" == (tmp_path / "starts").read_text()


def test_another_owner_gets_the_port_of_the_last_start(tmp_path):
    """An address that was copied to another terminal stays right after a restart."""
    with ScriptServer(tmp_path) as first:
        pass
    with ScriptServer(tmp_path) as second:
        assert first.address == second.address


def test_a_port_that_was_taken_meanwhile_is_replaced_for_a_new_owner(tmp_path):
    """The last start's port is a habit, not a promise, to somebody who was never told of it."""
    with ScriptServer(tmp_path) as first:
        host, _, port = first.address.partition(":")
    with socket.create_server((host, int(port))), ScriptServer(tmp_path) as second:
        assert first.address != second.address


def test_a_port_that_was_taken_meanwhile_stops_a_restart(tmp_path):
    """Coming back elsewhere would leave the clients at the old address for ever."""
    server = ScriptServer(tmp_path)
    host, _, port = server.start().partition(":")
    server.stop()
    with socket.create_server((host, int(port))), pytest.raises(PortTakenError, match=f"port {port} is in use"):
        server.start()


def test_a_named_port_in_use_is_a_plain_message(tmp_path):
    """The operator named it and can name another."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ConfigurationError, match="is in use by another process: name another one"),
    ):
        ScriptServer(tmp_path, other.getsockname()[1]).start()


def test_a_second_owner_is_refused_and_told_the_first(tmp_path):
    """Two brokers on one data directory would destroy it."""
    with (
        ScriptServer(tmp_path),
        pytest.raises(ConfigurationError, match=f"{tmp_path} is in use by process {os.getpid()}"),
    ):
        ScriptServer(tmp_path).start()


def test_a_killed_owner_takes_its_server_with_it(tmp_path):
    """A broker that nobody owns holds memory, a port and the directory.

    The owner starts it from a thread that has ended by then, and is killed: neither may keep the server alive, nor
    may the end of the thread end it. The next owner waits for the directory instead of being refused.
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert psutil.pid_exists(pid)
        owner.kill()
    with ScriptServer(tmp_path) as next_owner:
        assert pid != next_owner.pid
        assert not psutil.pid_exists(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the death signal is Linux's")
def test_a_killed_guard_takes_the_server_with_it(tmp_path):
    """When memory runs out the kernel may choose the guard."""
    with ScriptServer(tmp_path) as server:
        pid = server.pid
        assert pid is not None
        psutil.Process(pid).parent().kill()
        wait_for_the_end_of(pid)
        assert server.pid is None


def test_a_server_that_ends_at_once_shows_its_last_words(tmp_path):
    """Without them the operator would have to know where the log is."""
    script = "import sys; [print('line', n, file=sys.stderr) for n in range(40)]; sys.exit(3)"
    with pytest.raises(BrokerError, match=r"(?s)ended with status 3; the end of .*script\.log:\nline 25\n.*line 39"):
        ScriptServer(tmp_path, script=script).start()


def test_a_server_that_does_not_answer_is_ended(tmp_path, monkeypatch):
    """A start that hangs must not leave a process behind."""
    monkeypatch.setattr(ScriptServer, "start_s", 0.3)
    server = ScriptServer(tmp_path, script="import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    with pytest.raises(BrokerError, match="did not answer within 0 s"):
        server.start()
    assert not psutil.pid_exists(int(server.log.read_text()))


def test_a_server_that_ignores_the_request_to_stop_is_killed(tmp_path, monkeypatch):
    """Nobody waits for ever at the end of a command."""
    monkeypatch.setattr(ScriptServer, "stop_s", 0.3)
    ignoring = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LISTEN
    with ScriptServer(tmp_path, script=ignoring) as server:
        pid = server.pid
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_stopped_process_is_killed_all_the_same(tmp_path):
    """A fault test may hold the server (SIGSTOP) and then end it."""
    with ScriptServer(tmp_path) as server:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        server.kill()
        assert not is_open(server.address)


@pytest.mark.parametrize(
    ("last_words", "message"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("java.nio.file.FileSystemException: x: Read-only file system", "the disk is read-only"),
        ("java.io.FileNotFoundException: x (Permission denied)", "a file may not be written"),
    ],
)
def test_a_disk_at_fault_is_named_in_plain_words(tmp_path, last_words, message):
    """The operator must not have to read a Java trace to learn that the disk is full."""
    script = f"import sys; sys.exit({last_words!r})"
    with pytest.raises(ConfigurationError, match=f"script in {tmp_path}: {message}"):
        ScriptServer(tmp_path, script=script).start()


def test_a_disk_too_full_for_the_log_is_named_too(tmp_path, monkeypatch):
    """The log lies on the same disk: when that is full the server dies without a word."""
    monkeypatch.setattr("pipeline.local.server.FULL_BYTES", 1 << 62)
    with pytest.raises(ConfigurationError, match=f"script in {tmp_path}: the disk is full"):
        ScriptServer(tmp_path, script="import sys; sys.exit(1)").start()


def test_an_end_in_the_middle_is_explained(tmp_path):
    """`headrace up` looks every second: a broker whose disk filled up must not be missed in silence."""
    script = LISTEN.replace("while True:", "while b'end' not in server.accept()[0].recv(9):").replace(
        "    server.accept()[0].close()", "    pass\nsys.exit('No space left on device')"
    )
    with ScriptServer(tmp_path, script=script) as server:
        server.check()
        host, _, port = server.address.partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"end")
        wait_until_it_is_over(server)
        with pytest.raises(ConfigurationError, match="the disk is full"):
            server.check()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    """A data directory below a file is the operator's slip."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/local: Not a directory"):
        ScriptServer(tmp_path / "file" / "local").start()


def test_the_log_before_is_kept(tmp_path):
    """After a restart by hand the reason for it can still be read."""
    server = ScriptServer(tmp_path, script="import sys; sys.exit('first')")
    with pytest.raises(BrokerError):
        server.start()
    server.script = "import sys; sys.exit('second')"
    with pytest.raises(BrokerError):
        server.start()
    assert "second\n" == server.log.read_text()
    assert "first\n" == server.log.with_suffix(".old").read_text()


def test_free_ports_differ_and_are_not_those_of_outgoing_connections():
    """A port of that range could be taken by any client while the server is down for a moment."""
    ports = free_ports(50)
    assert 50 == len(set(ports))
    assert set(ports) <= set(PORT_RANGE)
    for port in ports:
        check_port(port)


def test_the_address_before_the_first_start_is_an_error(tmp_path):
    """An address made up would send clients to somebody else."""
    with pytest.raises(BrokerError, match="was not started"):
        _ = ScriptServer(tmp_path).address
