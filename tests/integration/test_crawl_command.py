"""`headrace crawl` on a person's own site, as a terminal sees it; what was asked is counted at the site."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from pipeline.config import Broker, Settings, client_options
from pipeline.local.stack import LocalStack
from pipeline.ops import topics
from tests.chaos.process import until

HOST = "127.0.0.1"
COMMAND = [sys.executable, "-m", "pipeline.cli", "crawl"]
RUN_S = 60.0
TREE = 40
INTERRUPT_AT = 20
DEPTH = 3
EXCLUDE = "/t/*1"
BUDGET = 7

pytestmark = pytest.mark.broker


class Site(ThreadingHTTPServer):
    """A tree of pages, a redirect, a missing page, a forbidden one, and a link to another site; counts requests.

    Args:
        elsewhere: a URL of another site.

    Attributes:
        asked: path -> how often.
    """

    daemon_threads = True

    def __init__(self, elsewhere: str = "") -> None:
        super().__init__((HOST, 0), _Handler)
        self.asked: Counter[str] = Counter()
        self.links = {f"/t/{n}": [f"/t/{m}" for m in (2 * n + 1, 2 * n + 2) if m < TREE] for n in range(TREE)}
        for page, links in self.links.items():
            links += ["/", f"{page}#part", "/t/0"]
        self.links["/"] = [
            "/t/0", "/moved", "/missing", "/private/x", "mailto:me@site.test", "/search?q=a&p=1", elsewhere,
        ]  # fmt: skip
        self.links["/target"] = ["/t/5"]
        self.links["/search?q=a&p=1"] = ["/"]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Of its front page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def pages(self, max_depth: int = 99, excluded: tuple[str, ...] = ()) -> set[str]:
        """Return the URLs that a right crawl publishes: a walk of our own, breadth first."""
        depths = {"/": 0}
        waiting = deque(depths)
        while waiting:
            page = waiting.popleft()
            for link in self.links[page]:
                path = "/target" if link == "/moved" else link.partition("#")[0]
                if path in self.links and path not in depths and path not in excluded and depths[page] < max_depth:
                    depths[path] = depths[page] + 1
                    waiting.append(path)
        return {self.url.rstrip("/") + path for path in depths}

    def page_requests(self) -> Counter[str]:
        """Return URL -> how often, for the pages."""
        return Counter({self.url.rstrip("/") + path: n for path, n in self.asked.items() if path in self.links})

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about a client that goes away: interrupted crawls do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        self.server.asked[self.path] += 1
        if self.path in self.server.links:
            links = "".join(f'<a href="{link}">x</a>' for link in self.server.links[self.path])
            self._answer(200, f"<title>{self.path}</title><p>Text of {self.path}</p>{links}", "text/html")
        elif self.path == "/robots.txt":
            self._answer(200, "User-agent: *\nDisallow: /private/", "text/plain")
        elif self.path == "/moved":
            self._answer(301, "", "text/plain", ("Location", "/target"))
        else:
            self._answer(404, "no such page", "text/plain")

    def _answer(self, status: int, body: str, content_type: str, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", content_type), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in the base class
        """Requests are counted, not printed."""


class Ended(NamedTuple):
    """How a run of the command ended, and what there was then."""

    status: int
    said: str
    documents: Counter[str]
    asked: Counter[str]


class Command:
    """The command with a data and an output directory of its own, over several runs."""

    def __init__(self, directory: Path, site: Site, *options: str, bootstrap: str = "") -> None:
        self._directory = directory
        self._site = site
        self._arguments = [*COMMAND, site.url, "--out", str(directory / "out"), *options]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self._environ = inherited | {
            "HEADRACE_CONFIG": os.devnull,
            "HEADRACE_WORKER__DATA_DIR": str(directory / "data"),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        if bootstrap:
            self._environ["HEADRACE_BROKER__BOOTSTRAP"] = bootstrap

    def run(self, interrupt_at: int | None = None) -> Ended:
        """Run it to its end, or press Ctrl-C once so many pages were asked for."""
        with (
            (self._directory / "said").open("w+", encoding="utf-8") as said,
            subprocess.Popen(self._arguments, env=self._environ, stdout=said, stderr=said) as process,
        ):
            try:
                if interrupt_at is not None:
                    until(lambda: self._site.page_requests().total() >= interrupt_at, "requests")
                    children = psutil.Process(process.pid).children(recursive=True)
                    process.send_signal(signal.SIGINT)
                status = process.wait(RUN_S)
                if interrupt_at is not None:
                    assert [] == [child for child in children if child.is_running()]
            finally:
                process.kill()
            said.seek(0)
            return Ended(status, said.read(), self._documents(), self._site.page_requests())

    def _documents(self) -> Counter[str]:
        files = (self._directory / "out").glob("*.jsonl")
        return Counter(json.loads(line)["url"] for file in files for line in file.read_bytes().splitlines())


def interrupt_and_resume(directory: Path) -> tuple[Site, Site, list[Ended]]:
    """Crawl on a broker of the command's own: interrupted, run to its end, run once more."""
    elsewhere = Site()
    site = Site(elsewhere.url)
    command = Command(directory, site)
    return site, elsewhere, [command.run(INTERRUPT_AT), command.run(), command.run()]


def crawl_within_limits(directory: Path) -> list[tuple[Site, Ended]]:
    """Crawl on a broker that is there already: with a depth and an exclusion; with a budget."""
    ends = []
    with LocalStack(directory / "local", registry=False) as stack:
        settings = Settings(broker=Broker(bootstrap=stack.addresses.bootstrap))
        topics.apply(client_options(settings.broker), settings)
        for options in (("--depth", str(DEPTH), "--exclude", EXCLUDE), ("--max-pages", str(BUDGET))):
            site = Site()
            own = directory / options[0]
            own.mkdir()
            ends.append((site, Command(own, site, *options, bootstrap=stack.addresses.bootstrap).run()))
    return ends


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All runs of the command, two at a time."""
    with ThreadPoolExecutor(2) as threads:
        interrupted = threads.submit(interrupt_and_resume, tmp_path_factory.mktemp("interrupted"))
        limited = threads.submit(crawl_within_limits, tmp_path_factory.mktemp("limited"))
        return interrupted.result(), limited.result()


@pytest.fixture
def interrupted(runs):
    """The site, another one, and the ends of the three runs."""
    return runs[0]


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(interrupted):
    """Nothing is left running, and what is finished is in files."""
    site, _, (first, _, _) = interrupted
    assert 130 == first.status, first.said
    assert "the same command goes on from here" in first.said
    assert "Traceback" not in first.said
    assert len(first.documents) < len(site.pages())


def test_the_same_command_resumes_and_publishes_exactly_the_reachable_pages(interrupted):
    """Over both runs each page is a document once; the crawl ends by itself."""
    site, _, (_, second, _) = interrupted
    assert 0 == second.status, second.said
    assert dict.fromkeys(site.pages(), 1) == dict(second.documents)
    assert f"{len(site.pages())} documents in " in second.said
    assert "Traceback" not in second.said


def test_no_finished_page_is_asked_for_twice(interrupted):
    """Counted at the site: a person's site must not pay for an interruption."""
    _, _, (first, second, _) = interrupted
    assert first.documents
    assert {1} == {second.asked[url] for url in first.documents}


def test_a_crawl_that_has_ended_asks_for_nothing_when_it_is_run_again(interrupted):
    """It says the same and changes nothing."""
    _, _, (_, second, third) = interrupted
    assert (0, second.asked, second.documents) == (third.status, third.asked, third.documents)


def test_what_robots_txt_forbids_and_what_is_elsewhere_is_not_asked_for(interrupted):
    """A crawl of one site is no crawl of its neighbours."""
    site, elsewhere, _ = interrupted
    assert 0 == site.asked["/private/x"]
    assert 1 == site.asked["/missing"]
    assert {} == elsewhere.asked


def test_depth_and_exclude_bound_what_is_published(runs):
    """Pages beyond the depth, and excluded ones, are not asked for at all."""
    site, ended = runs[1][0]
    excluded = tuple(path for path in site.links if path.startswith("/t/") and path.endswith("1"))
    expected = site.pages(DEPTH, excluded)
    assert 0 == ended.status, ended.said
    assert dict.fromkeys(expected, 1) == dict(ended.documents)
    assert dict.fromkeys(expected, 1) == dict(ended.asked)


def test_a_budget_is_used_up_and_never_exceeded(runs):
    """Counted at the site."""
    site, ended = runs[1][1]
    assert 0 == ended.status, ended.said
    assert BUDGET == len(ended.documents)
    assert BUDGET == site.page_requests().total()
