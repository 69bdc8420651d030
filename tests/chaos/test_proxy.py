from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from tests.chaos.process import until
from tests.chaos.proxy import Mode, Proxy

LIMIT_S = 10.0
SHORT_S = 0.2


class Echo:
    """A server that sends back what it gets, and counts it."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.got = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection):
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                self.got += len(data)
                connection.sendall(data)

    def close(self):
        with contextlib.suppress(OSError):  # closed already
            self._server.shutdown(socket.SHUT_RDWR)  # ends the accept of the other thread
        self._server.close()
        self._thread.join(LIMIT_S)


@pytest.fixture
def echo():
    """A server behind the proxy."""
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo):
    """A proxy before the server."""
    with Proxy() as made:
        made.start(echo.address)
        yield made


def connected(proxy):
    """A client of the proxy."""
    return socket.create_connection(("127.0.0.1", proxy.port), LIMIT_S)


def answers(client, data):
    """Send and wait for as many bytes."""
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        got += client.recv(1 << 20)
    return got


def is_silent(client):
    """Whether nothing comes for a while."""
    client.settimeout(SHORT_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(LIMIT_S)
    return False


def test_what_goes_in_comes_out(proxy):
    """Large and small, on several connections, closed at the end."""
    with connected(proxy) as one, connected(proxy) as other:
        big = bytes(range(256)) * (1 << 12)
        assert b"small" == answers(other, b"small")
        sending = threading.Thread(target=one.sendall, args=(big,))
        sending.start()
        got = b""
        while len(got) < len(big):
            got += one.recv(1 << 20)
        sending.join(LIMIT_S)
        assert big == got
        assert 2 == proxy.connections
    until(lambda: not proxy.connections, "both closed", LIMIT_S)


@pytest.mark.parametrize(
    ("mode", "arrives"), [(Mode.STALL, False), (Mode.HOLD_REQUESTS, False), (Mode.HOLD_ANSWERS, True)]
)
def test_a_stall_holds_bytes_and_loses_none(proxy, echo, mode, arrives):
    """A cut that heals: TCP sends what was held. Held answers are what leaves a commit's outcome unknown."""
    with connected(proxy) as client:
        assert b"before" == answers(client, b"before")
        proxy.set(mode)
        client.sendall(b"during")
        if arrives:
            until(lambda: len(b"beforeduring") == echo.got, "the request at the server", LIMIT_S)
        assert is_silent(client)
        assert len(b"beforeduring") * arrives or len(b"before") == echo.got
        with connected(proxy) as late:  # accepted, as by a host that answers and a path that does not
            late.sendall(b"late")
            assert is_silent(late)
            proxy.set(Mode.PASS)
            assert b"late" == late.recv(100)
        assert b"during" == client.recv(100)


def test_a_delay_makes_each_byte_late_and_keeps_their_order(proxy):
    """The network is slow, not broken."""
    proxy.set(Mode.DELAY, SHORT_S)
    with connected(proxy) as client:
        began_s = time.monotonic()
        for number in range(10):
            client.sendall(b"%d" % number)
        got = b""
        while len(got) < 10:
            got += client.recv(100)
        elapsed_s = time.monotonic() - began_s
        assert b"0123456789" == got
        assert elapsed_s >= 2 * SHORT_S  # there and back


def test_a_reset_ends_connections_and_refuses_new_ones(proxy):
    """The client is told, and tries again until it is over."""
    with connected(proxy) as client:
        assert b"before" == answers(client, b"before")
        proxy.set(Mode.RESET)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionError), connected(proxy) as late:
            late.recv(1)
    proxy.set(Mode.PASS)
    with connected(proxy) as client:
        assert b"after" == answers(client, b"after")


def test_a_server_that_comes_back_is_found_again(proxy, echo):
    """The broker restarts behind the proxy, on the same port."""
    echo.close()
    with connected(proxy) as client, contextlib.suppress(ConnectionResetError):
        assert b"" == client.recv(1)  # closed: nobody listens
    back = socket.create_server(("127.0.0.1", int(echo.address.rpartition(":")[2])))
    try:
        with connected(proxy) as client:
            far, _ = back.accept()
            client.sendall(b"again")
            assert b"again" == far.recv(100)
            far.close()
    finally:
        back.close()
