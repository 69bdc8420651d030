from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pipeline.cli import crawl as command
from pipeline.cli.crawl import crawl
from pipeline.config import load
from pipeline.errors import BrokerError
from pipeline.local.crawl_plan import plan_crawl
from pipeline.local.crawl_run import CrawlStatus
from pipeline.local.stack import Addresses

ENDED = CrawlStatus(
    seen=3, done=3, waiting=0, parked=0, out=0, pages=2, failed=1, refused={"scope": 4}, ended=True
)  # fmt: skip
URL = "http://127.0.0.1:8000/"


class Crawl:
    """What the command was given, with everything it starts replaced.

    Attributes:
        stages: workers by stage.
        environ: added to theirs.
        name: first part of their names.
        events: in order.
    """

    def __init__(self):
        self.events = []
        self.broker_error = None

    def fleet(self, directory, environ, workers, *, name):
        self.directory, self.environ, self.stages, self.name = directory, environ, workers, name
        return SimpleNamespace(
            start=lambda: self.events.append("workers start"),
            look_after=lambda: None,
            stop=lambda: self.events.append("workers stop"),
        )

    def run(self, settings, codecs, definition):
        self.settings, self.definition = settings, definition
        return SimpleNamespace(
            begin=lambda urls: self.events.append(("begin", urls)),
            status=lambda: ENDED,
            documents_left=lambda: 0,
            close=lambda: None,
        )

    def stack(self, directory, *, registry):
        world = self

        class Stack:
            addresses = Addresses("127.0.0.1:29092", None)

            def __enter__(self):
                world.events.append("broker starts")
                return self

            def __exit__(self, *exc_info):
                world.events.append("broker stops")

            def check(self):
                if world.broker_error:
                    raise world.broker_error

        return Stack()


@pytest.fixture
def world(monkeypatch, tmp_path):
    """Run the command in an empty directory, with nothing real behind it: `world.invoke(…)`."""
    made = Crawl()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_CONFIG", raising=False)
    monkeypatch.delenv("HEADRACE_BROKER__BOOTSTRAP", raising=False)
    monkeypatch.setattr(command, "Fleet", made.fleet)
    monkeypatch.setattr(command, "CrawlRun", made.run)
    monkeypatch.setattr(command, "LocalStack", made.stack)
    monkeypatch.setattr(command.topics, "apply", lambda options, settings: [])
    monkeypatch.setattr(command.topics, "verify", lambda settings, names: None)
    monkeypatch.setattr(command.signal, "signal", lambda number, handler: None)
    made.invoke = lambda *arguments: CliRunner().invoke(crawl, arguments)
    return made


def test_a_crawl_ends_by_itself_and_says_what_came_of_it(world, tmp_path):
    """The last lines are what a person remembers: pages, failures, refusals with their reason, where the files are."""
    (tmp_path / "out").mkdir()
    usual = {"include": (), "exclude": (), "max_depth": None, "delay_s": None, "now": 0.0}
    ours = plan_crawl([URL], **usual).definition["crawl"]
    lines = [json.dumps({"url": URL, "crawl": crawl_id}) + "\n" for crawl_id in (ours, "another crawl")]
    (tmp_path / "out" / "documents-0a-0000-x.jsonl").write_text("".join(lines))
    answer = world.invoke(URL)
    assert 0 == answer.exit_code, answer.output
    assert "2 pages fetched, URLs without a page: 1, refused: 4 {'scope': 4}" in answer.output
    assert "1 documents in out" in answer.output
    assert ["broker starts", "workers start", ("begin", [URL]), "workers stop", "broker stops"] == world.events


def test_workers_are_configured_as_the_command_is_and_find_the_local_broker_themselves(world, tmp_path):
    """An address in their environment would keep a configured lock of another cluster in force."""
    (tmp_path / "headrace.toml").write_text('[fetch]\nallow_addresses = ["10.0.0.0/8"]\n')
    world.invoke(URL, "--out", "here", "--allow-address", "192.168.0.0/16")
    settings = load(environ=world.environ).settings
    assert ["10.0.0.0/8", "127.0.0.1/32:8000", "192.168.0.0/16"] == settings.fetch.allow_addresses
    assert tmp_path / "here" == settings.store.directory
    assert None is settings.broker.bootstrap
    assert 0.05 == settings.politeness.delay_s
    assert dict.fromkeys(("frontier", "fetch", "parse", "store"), 1) == world.stages
    assert world.definition["crawl"] == world.name == world.directory.name


def test_a_named_configuration_file_is_handed_on(world, tmp_path):
    """Relative names would mean other files to processes in other directories."""
    (tmp_path / "mine.toml").write_text("")
    world.invoke(URL, "--config", "mine.toml")
    assert str(tmp_path / "mine.toml") == world.environ["HEADRACE_CONFIG"]


def test_a_configured_broker_is_used_and_none_is_started(world, monkeypatch):
    """A team's cluster; its address comes from the configuration that the workers read too."""
    monkeypatch.setenv("HEADRACE_BROKER__BOOTSTRAP", "kafka.test:9092")
    assert 0 == world.invoke(URL).exit_code
    assert "kafka.test:9092" == world.settings.broker.bootstrap
    assert ["workers start", ("begin", [URL]), "workers stop"] == world.events


def test_a_broker_that_ends_is_said_and_the_workers_are_stopped(world):
    """Waiting for a broker of our own that nobody will start again would last for ever."""
    world.broker_error = BrokerError("kafka ended with status 1; see its log")
    answer = world.invoke(URL)
    assert world.broker_error is answer.exception
    assert ["workers stop", "broker stops"] == world.events[-2:]


def test_an_unusable_start_point_is_refused_before_anything_is_started(world):
    """Half a minute of starting for a slip of the pen."""
    assert 1 == world.invoke("nonsense").exit_code
    assert [] == world.events
