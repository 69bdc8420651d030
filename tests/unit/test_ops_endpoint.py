from __future__ import annotations

import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge

from pipeline.errors import ConfigurationError
from pipeline.ops.endpoint import Health, serve

HOST = "127.0.0.1"


class Process:
    """A process with an endpoint whose health the test decides."""

    def __init__(self, status=None):
        self.health = Health(True, "commits go on")
        registry = CollectorRegistry()
        Gauge("headrace_example", "An example.", registry=registry).set(3)
        self.port = serve(HOST, 0, registry, lambda: self.health, status)

    def get(self, path):
        """Ask it."""
        return httpx.get(f"http://{HOST}:{self.port}{path}", timeout=5)


def test_metrics_are_in_the_form_that_prometheus_reads():
    """Without the content type a scraper refuses them."""
    answer = Process().get("/metrics")
    assert 200 == answer.status_code
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "headrace_example 3.0" in answer.text.splitlines()


def test_health_is_green_and_turns_red_with_a_reason():
    """Whoever restarts the process reads the status, whoever asks why reads the reason."""
    process = Process()
    assert (200, {"ok": True, "reason": "commits go on"}) == (
        process.get("/healthz").status_code,
        process.get("/healthz").json(),
    )
    process.health = Health(False, "no commit for 61 s")
    assert (503, {"ok": False, "reason": "no commit for 61 s"}) == (
        process.get("/healthz").status_code,
        process.get("/healthz").json(),
    )


def test_status_is_json_where_there_is_one():
    """A worker has none, the monitor has."""
    assert {"round": 7} == Process(lambda: {"round": 7}).get("/status").json()
    assert 404 == Process().get("/status").status_code


def test_other_paths_say_what_there_is():
    """A person who opens the address in a browser finds the way."""
    answer = Process().get("/")
    assert 404 == answer.status_code
    assert "/metrics" in answer.text


@pytest.mark.parametrize("path", ["/metrics?name[]=x", "/healthz?verbose"])
def test_a_query_does_not_hide_the_path(path):
    """Prometheus adds parameters where its job has some."""
    assert 200 == Process().get(path).status_code


def test_a_port_in_use_is_named():
    """The second worker on a machine with a fixed port is a common slip."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"worker\.metrics_port {port} on {HOST}: Address already in use"):
            serve(HOST, port, CollectorRegistry(), lambda: Health(True, ""))


def test_an_address_that_is_not_ours_is_named():
    """`metrics_host` is written by hand too."""
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.1"):
        serve("192.0.2.1", 0, CollectorRegistry(), lambda: Health(True, ""))
