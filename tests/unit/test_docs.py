"""What the documentation names is there: links, commands, options, targets, modules, paths, series, reasons."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest
from faust.types import TP
from prometheus_client import CollectorRegistry

from pipeline.api.metrics import ApiMetrics
from pipeline.cli import cli
from pipeline.config import Settings, known_keys
from pipeline.delivery.dead_letters import HEADER_PREFIX, REASONS
from pipeline.delivery.exits import ExitCode
from pipeline.delivery.metrics import DeliveryMetrics
from pipeline.ops.monitor import Monitor
from pipeline.ops.parked_gauges import ParkedGauges
from pipeline.ops.stage_counters import StageCounters
from pipeline.ops.state_gauges import StateGauges
from pipeline.ops.uncommitted import TailWatch
from pipeline.state.memory import StoreMemory
from tests.generated_docs import DOCS, GENERATED, with_part

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "avro" / "README.md"])
PICTURES = sorted(DOCS.rglob("*.svg"))

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
BY_MAKE = re.compile(r"""make (demo|up) ARGS=(?:(["'])(.*?)\2|(\S+))""")
COMMAND = re.compile(r"(?:^|[\s(/])headrace ((?:[a-z]+)(?: [^\n|;&`#]*)?)")


def ids(paths):
    """Name parametrised tests by path."""
    return [str(path.relative_to(ROOT)) for path in paths]


@cache
def text_of(page: Path) -> str:
    """Read a page once."""
    return page.read_text(encoding="utf-8")


def code_of(page: Path) -> Iterator[str]:
    """Yield what a page shows as code: spans, and the lines of fenced blocks."""
    text = text_of(page)
    for block in FENCE.findall(text):
        yield from block.splitlines()[1:-1]
    yield from SPAN.findall(FENCE.sub("", text))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of headings as a forge makes them."""
    headings = HEADING.findall(FENCE.sub("", text_of(page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_relative_links_lead_somewhere(page):
    """A reader who follows one must arrive, at the heading too."""
    broken = []
    for target in LINK.findall(FENCE.sub("", text_of(page))):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors_of(there)):
            broken.append(target)
    assert [] == broken


def invocations(page: Path) -> Iterator[list[str]]:
    """Yield the words after `headrace` of each command that a page shows, and what `make` hands on to it."""
    for line in code_of(page):
        for found in COMMAND.findall(line):
            yield found.split()
        for target, _, quoted, word in BY_MAKE.findall(line):
            yield [target, *(quoted or word).split()]


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_commands_and_their_options_exist(page):
    """A command that is copied from a page must run."""
    unknown = []
    for words in invocations(page):
        context = click.Context(cli, info_name="headrace")
        command: click.Command | None = cli
        rest = list(words)
        while isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]):
            name = rest.pop(0)
            command = command.commands.get(name) if command is not cli else None
            command = command or (cli.get_command(context, name) if name in cli.list_commands(context) else None)
        if command is None or command is cli:
            unknown.append(" ".join(words))
            continue
        known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
        for word in rest:
            option = word.partition("=")[0].rstrip(",.)")
            if option.startswith("--") and option not in {*known, "--help"}:
                unknown.append(f"{' '.join(words)}: {option}")
    assert [] == unknown


def test_a_command_that_does_not_exist_would_be_found(tmp_path):
    """The search above must be able to fail."""
    page = tmp_path / "page.md"
    page.write_text(
        "`headrace fetch URL --body FILE`, `headrace topics plan` and\n```sh\n$ headrace url - --json\n```\n"
    )
    assert [["url", "-", "--json"], ["fetch", "URL", "--body", "FILE"], ["topics", "plan"]] == list(invocations(page))


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_make_targets_and_modules_exist(page):
    """The same for `make` and `python -m`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    shown = "\n".join(code_of(page))
    assert set(re.findall(r"(?:^|\s)make ([a-z-]+)", shown, re.MULTILINE)) <= targets
    modules = re.findall(r"python -m ([a-z_.]*[a-z_])(?![\w.]|<)", shown)
    assert [] == [name for name in modules if not importlib.util.find_spec(name)]


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_keys_of_the_configuration_exist(page):
    """A key that is copied from a page must not end in `unknown key`, unless that is what is shown."""
    sections = "|".join(Settings.model_fields)
    shown = "\n".join(SPAN.findall(FENCE.sub("", text_of(page))))
    named = set(re.findall(rf"^({sections})\.([a-z_]+)(?= |$|=)", shown, re.MULTILINE))
    files = {"py", "md", "toml"}
    assert set() == {".".join(pair) for pair in named if pair[1] not in files} - set(known_keys())


ARCHITECTURE = sorted((DOCS / "architecture").glob("*.md"))


@pytest.mark.parametrize("page", ARCHITECTURE, ids=ids(ARCHITECTURE))
def test_paths_that_the_architecture_names_exist(page):
    """Whoever looks for the file of a thing must find it; a bare name is beside a path named on the same page."""
    spans = [span for span in SPAN.findall(FENCE.sub("", text_of(page))) if re.fullmatch(r"[\w./-]+", span)]
    paths = [
        span for span in spans if "/" in span and span.split("/")[0] in {"pipeline", "agents", "avro", "tests", "docs"}
    ]
    assert [] == [path for path in paths if not (ROOT / path).exists()]
    directories = {(ROOT / path) if (ROOT / path).is_dir() else (ROOT / path).parent for path in paths}
    directories |= {ROOT, *(path for path in (ROOT / "pipeline").iterdir() if path.is_dir())}
    bare = {span for span in spans if "/" not in span and span.endswith(".py")}
    assert set() == {name for name in bare if not any((directory / name).exists() for directory in directories)}


def test_classes_in_the_table_of_places_are_where_it_says():
    """The table is the map of the code: `Name.method` in `file` must be true."""
    rows = [line for line in text_of(DOCS / "architecture" / "README.md").splitlines() if line.startswith("| ")]
    wrong = []
    for row in rows:
        for name, path in re.findall(r"`([A-Z]\w+(?:\.\w+)?)`[^`|]* in `(pipeline/[\w/]+\.py)`", row):
            owner, _, method = name.partition(".")
            source = text_of(ROOT / path)
            if not re.search(rf"^class {owner}\b", source, re.MULTILINE) or (method and f"def {method}(" not in source):
                wrong.append(f"{name} in {path}")
    assert [] == wrong


@pytest.mark.parametrize(("page", "name"), GENERATED)
def test_tables_are_what_the_code_says(page, name):
    """`python -m tests.generated_docs` writes them anew."""
    text = text_of(DOCS / page)
    assert with_part(text, name, GENERATED[page, name]()) == text


def test_every_series_is_described_and_no_other():
    """Dashboards are made from the page; a series that is not there is looked for in vain."""
    registry = CollectorRegistry()
    metrics = DeliveryMetrics(registry, "stage")
    metrics.dead_letter("policy")
    metrics.lags({TP("topic", 0): 1})
    registry.register(StageCounters("stage", {"event": 1}))
    registry.register(ParkedGauges({}))
    registry.register(StateGauges("stage", StoreMemory()))
    monitor = Monitor.__new__(Monitor)  # its clients would look for a broker
    monitor._lags, monitor._read_at, monitor._tails = {}, {}, TailWatch()
    api = CollectorRegistry()
    ApiMetrics(api)
    families = [*registry.collect(), *monitor.collect(), *api.collect()]
    exported = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    described = set(re.findall(r"^\| `(headrace_\w+)`", text_of(DOCS / "operations" / "monitoring.md"), re.MULTILINE))
    assert {name for name in exported if not name.endswith("_created")} == described


def test_reasons_headers_and_statuses_are_all_explained():
    """What an operator meets in a header or as a status must be on the page about failures."""
    failures = text_of(DOCS / "operations" / "failures.md")
    assert set(REASONS) == set(re.findall(r"^\| `(\w+)` \| ", failures, re.MULTILINE))
    services = failures.partition("which run until a signal")[2].partition("## ")[0]
    assert {0, *map(int, ExitCode)} == set(map(int, re.findall(r"^\| (\d+) \|", services, re.MULTILINE)))
    delivery = text_of(DOCS / "architecture" / "delivery.md")
    assert set(REASONS) <= set(SPAN.findall(delivery))
    assert {HEADER_PREFIX + "reason", HEADER_PREFIX + "cut"} <= set(SPAN.findall(delivery))


@pytest.mark.parametrize("picture", PICTURES, ids=ids(PICTURES))
def test_pictures_are_whole_and_fetch_nothing(picture):
    """A picture must show without the network, and without running anything."""
    root = ET.parse(picture).getroot()  # noqa: S314 - our own file
    assert root.tag.endswith("svg")
    text = picture.read_text(encoding="utf-8")
    assert not re.search(r"<script|<image|<foreignObject|@import|@font-face|url\((?!#)|href=(?!.#)", text)
