"""The server of the simulated web: what it answers, what it logs, and that nothing which clients do can end it."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from email.utils import parsedate_to_datetime

import psutil
import pytest

from pipeline.errors import ConfigurationError
from pipeline.local.loop_watch import STANDSTILL_NS
from pipeline.local.request_log import LoggedRequest, line, prefix, read_log
from pipeline.local.simulated_plan import month_target
from pipeline.local.simulated_web import MONTHS_MADE, ServedWeb

LIMIT_S = 10.0
SECOND_NS = 10**9


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A web with every trap, for all tests of this file."""
    with ServedWeb(seed=35, hosts=5, pages=30, log=tmp_path_factory.mktemp("web") / "requests.jsonl") as served:
        yield served


def wait_for(condition):
    """Return the first true value of `condition`, asked again and again for a bounded time."""
    deadline = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)
    return value


@contextlib.contextmanager
def connected(served):
    """A connection to the server."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)
    try:
        yield connection
    finally:
        connection.close()


def get(connection, url, method="GET"):
    """Ask for a URL on a connection; return the response and its body."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection.request(method, f"/{path}", headers={"Host": host})
    response = connection.getresponse()
    return response, response.read()


def logged(served, url, count=1):
    """Return the requests for a URL once so many are in the log."""
    return wait_for(
        lambda: (rows := [row for row in read_log(served.log) if row.url == url]) and len(rows) >= count and rows
    )


def a_resource(served, wanted):
    """Return some resource of the web that has what the test is about."""
    return next(r for site in served.web.sites for r in site.resources.values() if wanted(r))


def test_hosts_share_a_port_and_a_connection_serves_many_requests(served):
    """One listening socket stands for a web; a crawler keeps its connections."""
    with connected(served) as connection:
        for site in served.web.sites:
            response, body = get(connection, site.front.url)
            assert 200 == response.status
            assert site.front.title.encode() in body
    connections = {row.connection for site in served.web.sites for row in logged(served, site.front.url)}
    assert 1 == len(connections)


def test_a_page_is_served_under_other_spellings_of_its_url(served):
    """Sites ignore tracking parameters and mind no escapes; the log says what was asked for."""
    front = served.web.sites[0].front.url
    story = a_resource(served, lambda r: r.kind == "article" and "-" in r.target and "?" not in r.target).url
    written = f"{story.replace('-', '%2d', 1)}?utm_source=front"
    with connected(served) as connection:
        assert get(connection, story)[1] == get(connection, written)[1]
        assert 404 == get(connection, f"{front}?utm_source=a&other=1")[0].status
        connection.request("OPTIONS", "*%41", headers={"Host": "x"})
        assert 404 == connection.getresponse().status
    assert [story] == [row.page for row in logged(served, written)]


def test_a_request_is_in_the_log_while_the_server_runs(served):
    """The judge reads the log of a running site; times enclose the request."""
    url = served.web.start_urls[0].removesuffix("/") + "/missing"
    before_ns = time.time_ns()
    with connected(served) as connection:
        assert 404 == get(connection, url)[0].status
    after_ns = time.time_ns()
    (row,) = logged(served, url)
    assert (404, None) == (row.status, row.retry_after_ns)
    assert before_ns <= row.start_ns <= row.end_ns <= after_ns


def test_a_limited_page_says_when_to_come_back_and_the_log_says_the_same(served):
    """Both forms of Retry-After (RFC 9110 10.2.3); then the page is there."""
    for form in ("seconds", "date"):
        page = a_resource(
            served,
            lambda r, form=form: (
                r.first_answers and r.first_answers[0].retry_after and r.first_answers[0].retry_after[0] == form
            ),
        )
        with connected(served) as connection:
            for answer in page.first_answers:
                response, _ = get(connection, page.url)
                assert answer.status == response.status
                row = logged(served, page.url)[-1]
                written = response.headers["Retry-After"]
                if form == "seconds":
                    assert int(written) * SECOND_NS == pytest.approx(
                        row.retry_after_ns - row.start_ns, abs=SECOND_NS / 10
                    )
                else:
                    assert round(parsedate_to_datetime(written).timestamp()) * SECOND_NS == row.retry_after_ns
                    assert row.retry_after_ns > row.end_ns
            assert 200 == get(connection, page.url)[0].status


def test_some_pages_fail_once_and_some_for_ever(served):
    """A crawler that gives up early misses the first, one that never gives up hangs on the second."""
    once = a_resource(served, lambda r: [a.status for a in r.first_answers] == [500])
    (forever,) = served.web.failing
    with connected(served) as connection:
        assert [500, 200, 200] == [get(connection, once.url)[0].status for _ in range(3)]
        assert [500, 500, 500] == [get(connection, forever)[0].status for _ in range(3)]


def test_redirects_lead_where_the_plan_says(served):
    """Location may be relative (RFC 9110 10.2.2)."""
    redirect = a_resource(served, lambda r: r.target == "/hop/1")
    with connected(served) as connection:
        response, _ = get(connection, redirect.url)
    assert (301, "/hop/2") == (response.status, response.headers["Location"])


def test_a_slow_page_takes_its_time_and_holds_nobody_else(served):
    """Slow sites are common; requests on other connections are answered meanwhile."""
    slow_pages = [r for site in served.web.sites for r in site.resources.values() if r.delay_s]
    page = min(slow_pages, key=lambda r: r.delay_s)
    with connected(served) as slow, connected(served) as quick:
        host, _, path = page.url.removeprefix("http://").partition("/")
        slow.request("GET", f"/{path}", headers={"Host": host})
        assert get(quick, served.web.start_urls[1])[0].status in {200, 301}
        assert 200 == slow.getresponse().status
    row = logged(served, page.url)[-1]
    assert row.end_ns - row.start_ns >= page.delay_s * 0.99 * SECOND_NS
    assert [r for r in read_log(served.log) if row.start_ns < r.start_ns < row.end_ns]


def test_a_client_that_vanishes_before_the_answer_is_logged_as_gone(served):
    """For the judge the request ended then: the site does nothing any more."""
    page = a_resource(served, lambda r: r.delay_s)
    known = len([row for row in read_log(served.log) if row.url == page.url])
    host, _, path = page.url.removeprefix("http://").partition("/")
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    row = logged(served, page.url, known + 1)[-1]
    assert 0 == row.status
    assert row.end_ns - row.start_ns < page.delay_s * SECOND_NS


def test_requests_sent_together_are_answered_in_order(served):
    """HTTP/1.1 allows it (RFC 9112 9.3.2), and a request may come in pieces."""
    host = served.web.start_urls[2].split("/")[2]
    text = "".join(f"GET /nothing/{number} HTTP/1.1\r\nHost: {host}\r\n\r\n" for number in range(3)).encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=LIMIT_S) as client:
        client.sendall(text[:50])
        client.sendall(text[50:] + f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        received = b""
        while part := client.recv(65536):  # HTTP/1.0: the server closes
            received += part
    assert 3 == received.count(b"HTTP/1.1 404")
    assert 4 == received.count(b"HTTP/1.1 ")
    rows = [row for number in range(3) for row in logged(served, f"http://{host}/nothing/{number}")]
    assert rows == sorted(rows, key=lambda row: row.start_ns)


def test_a_calendar_goes_on_beyond_the_months_made_beforehand(served):
    """It is endless for everybody; only depth or robots.txt ends it."""
    site = next(site for site in served.web.sites if site.calendar != "none")
    url = f"http://{site.front.host}:{served.port}{month_target(MONTHS_MADE + 1000)}"
    with connected(served) as connection:
        response, body = get(connection, url)
        assert 200 == response.status
        assert month_target(MONTHS_MADE + 1001).encode() in body
        assert 404 == get(connection, url.rpartition("-")[0] + "-13")[0].status


def test_head_gives_the_head_alone(served):
    """Else the next request on the connection reads the body as an answer."""
    with connected(served) as connection:
        response, body = get(connection, served.web.sites[0].front.url, "HEAD")
        assert (200, b"") == (response.status, body)
        assert int(response.headers["Content-Length"]) > 0
        assert 200 == get(connection, served.web.sites[0].front.url)[0].status


@pytest.mark.parametrize(
    "request_head",
    [b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"],
)
def test_what_is_no_request_is_answered_with_400(served, request_head):
    """And the connection ends: what follows can't be told apart."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=LIMIT_S) as client:
        client.sendall(request_head)
        received = b""
        while part := client.recv(65536):
            received += part
    assert received.startswith(b"HTTP/1.1 400")


def test_clients_that_are_killed_at_any_time_leave_the_server_alive(served):
    """Workers are killed in the middle of everything, by the dozen."""
    front = served.web.sites[0].front
    text = f"GET / HTTP/1.1\r\nHost: {front.host}:{served.port}\r\n\r\n".encode()
    for cut in range(0, 2 * len(text), 3):
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall((text * 2)[:cut])
            if cut % 2:  # reset instead of a close in order
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connected(served) as connection:
        assert 200 == get(connection, front.url)[0].status


def test_an_overloaded_web_refuses_pages_and_names_a_time(tmp_path):
    """What fault tests do to a crawler; robots.txt is answered, else the whole site would be closed for a minute."""
    with ServedWeb(seed=1, hosts=1, pages=3, log=tmp_path / "log") as served, connected(served) as connection:
        url = served.web.start_urls[0]
        served.overload()
        refused = wait_for(lambda: (answer := get(connection, url)[0]).status == 503 and answer)
        assert "2" == refused.headers["Retry-After"]
        assert 503 != get(connection, f"{url}robots.txt")[0].status
        request = logged(served, url)[-1]
        assert 503 == request.status
        assert request.start_ns + 2 * SECOND_NS <= request.retry_after_ns <= request.end_ns + 2 * SECOND_NS
        wait_for(lambda: get(connection, url)[0].status != 503)


def test_the_log_tells_who_asked(tmp_path):
    """Where several crawlers' processes ask one site, each answers for what it was told."""
    with ServedWeb(seed=1, hosts=1, pages=3, log=tmp_path / "log") as served, connected(served) as connection:
        host = served.web.start_urls[0].removeprefix("http://").removesuffix("/")
        for headers in ({"User-Agent": "Headrace/0.1 (fetch-1)"}, {}):
            connection.request("GET", "/", headers={"Host": host, **headers})
            connection.getresponse().read()
        rows = logged(served, served.web.start_urls[0], count=2)
    assert ["headrace/0.1 (fetch-1)", ""] == [row.agent for row in rows]


def test_requests_that_came_in_while_the_server_stood_still_are_logged_as_late(tmp_path):
    """A client that was killed meanwhile and its successor get the stamps of one instant; the log must not accuse."""
    with ServedWeb(seed=1, hosts=1, pages=3, log=tmp_path / "log") as served, connected(served) as connection:
        url = served.web.start_urls[0]
        host = url.removeprefix("http://").removesuffix("/")
        get(connection, url)
        server = psutil.Process(served.pid)
        server.suspend()
        try:
            wait_for(lambda: server.status() == psutil.STATUS_STOPPED)
            sent_ns = time.time_ns()
            connection.request("GET", "/known", headers={"Host": host})
            with socket.create_connection(("127.0.0.1", served.port)) as killed:
                killed.sendall(f"GET /new HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            wait_for(lambda: time.time_ns() - sent_ns > 5 * STANDSTILL_NS)
        finally:
            server.resume()
        connection.getresponse().read()
        for path in ("known", "new"):
            (row,) = logged(served, url + path)
            assert row.start_ns - sent_ns > 5 * STANDSTILL_NS
            assert row.earliest_end_ns <= sent_ns
        wait_for(lambda: get(connection, url)[0].status and logged(served, url)[-1].late_ns == 0)


def test_a_client_that_was_seen_to_be_gone_after_a_standstill_may_have_been_gone_before(tmp_path):
    """Its request was read in time, its end was not."""
    with ServedWeb(seed=35, hosts=5, pages=30, log=tmp_path / "log") as served:
        page = a_resource(served, lambda r: r.delay_s)
        host, _, path = page.url.removeprefix("http://").partition("/")
        server = psutil.Process(served.pid)
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            server.suspend()
            try:
                wait_for(lambda: server.status() == psutil.STATUS_STOPPED)
                gone_ns = time.time_ns()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                wait_for(lambda: time.time_ns() - gone_ns > 5 * STANDSTILL_NS)
            finally:
                server.resume()
        row = logged(served, page.url)[-1]
        assert row.earliest_end_ns <= gone_ns < row.end_ns


def test_a_port_in_use_is_said_in_plain_words(served, tmp_path):
    """No traceback from a child process."""
    with pytest.raises(ConfigurationError, match=rf"port {served.port} of 127\.0\.0\.1"):
        ServedWeb(seed=1, hosts=1, pages=3, log=tmp_path / "log", port=served.port)


def test_a_log_that_cannot_be_written_is_said_in_plain_words(tmp_path):
    """Without its log the site could accuse nobody."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file"):
        ServedWeb(seed=1, hosts=1, pages=3, log=tmp_path / "file" / "log")


def test_stopping_completes_the_log_and_a_second_server_continues_it(tmp_path):
    """What was answered in the last tenth of a second counts, too."""
    log = tmp_path / "requests.jsonl"
    for count in (1, 2):
        with ServedWeb(seed=1, hosts=1, pages=3, log=log) as served, connected(served) as connection:
            get(connection, served.web.start_urls[0])
            assert served.cpu_s() > 0
        assert count == len(read_log(log))


def test_the_server_ends_with_the_process_that_started_it(tmp_path):
    """A demo that is killed leaves no process behind."""
    code = (
        "import sys, time; from pathlib import Path; from pipeline.local.simulated_web import ServedWeb\n"
        "print(ServedWeb(1, 1, 3, Path(sys.argv[1])).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as owner:
        server = psutil.Process(int(owner.stdout.readline()))
        os.kill(owner.pid, signal.SIGKILL)
        wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


def test_a_line_that_does_not_tell_of_lateness_is_in_time(tmp_path):
    """Logs that were written before the field was there are judged as they were."""
    log = tmp_path / "log"
    log.write_bytes(line(prefix(b"h:1", b"/"), (200, 5, 6, None, 1, 4)).replace(b',"late_ns":4', b""))
    assert [0] == [row.late_ns for row in read_log(log)]


def test_any_bytes_of_a_request_can_be_logged(tmp_path):
    """Quotes, backslashes and bytes that are no UTF-8 stand in targets; a half-written last line is left for later."""
    log = tmp_path / "log"
    target = bytes(range(33, 256))
    whole = line(prefix(b"h:1", target), (200, 5, 6, None, 1, 4)) + line(prefix(b"h:1", b"/"), (429, 2, 3, 9, 2, 0))
    log.write_bytes(whole + b'{"host":"cut')
    expected = [
        LoggedRequest("h:1", "/", 429, 2, 3, 9, 2),
        LoggedRequest("h:1", target.decode("latin-1"), 200, 5, 6, None, 1, late_ns=4),
    ]
    assert expected == read_log(log)
    assert [] == read_log(tmp_path / "none")
