"""All stages together on a real broker: every document once, through poison, lost disks and kills."""

from __future__ import annotations

import json
import re
import shutil
import time

import httpx
import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.config import client_options
from pipeline.delivery.open_transactions import OFFSETS_TOPIC
from pipeline.ops.submission import Submission
from pipeline.topics import DOCUMENTS, FRONTIER_STATE, INPUTS, PAGES, STAGES, TASKS, TASKS_URGENT
from tests.pipeline_world import PipelineWorld

FIRST, SECOND = "first", "second"
PARTITION = 3
POISON = b"\xffneither a frame nor a record\x00"
INPUT_TOPICS = [topic for topics in INPUTS.values() for topic in topics]
STAGE_OF = {topic.name: stage for stage, topics in INPUTS.items() for topic in topics}
SERIES = (
    "records_total", "outputs_total", "commits_total", "aborts_total", "fenced_total", "skipped_total",
    "cancelled_total", "unreadable_offset_maps_total", "restored_changes_total", "restore_seconds_total", "in_flight",
    "assigned_partitions", "breaker_open", "last_commit_timestamp_seconds", "transaction_seconds_bucket",
    "stage_latency_seconds_bucket",
)  # fmt: skip

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Everything, running; shared by all tests of this file, which follow each other."""
    with PipelineWorld(tmp_path_factory.mktemp("pipeline"), seed=6, hosts=6, pages=10) as running:
        yield running


@pytest.fixture(scope="module")
def crawled(world):
    """The world after its first crawl; the crawl's last status is `world.first`."""
    run = world.begin(FIRST)
    world.until_ended(run)
    world.first = run
    yield world
    run.close()


def figure(world, stage, series):
    """Return a figure of a worker's endpoint, None while it has none."""
    text = world.worker(stage).read("/metrics").decode()
    found = re.search(rf"^headrace_{series}{{.*}} (\S+)$", text, re.MULTILINE)
    return found and float(found[1])


def dead_letter(world, topic, key):
    """Return the dead letter with a key, None while there is none."""
    return next((record for record in world.read(topic.dlq) if record.key == key), None)


def submit(world, *urls):
    """Submit tasks to the first crawl."""
    made = Submission(client_options(world.settings.broker), world.codecs)
    made.submit(urls, FIRST, 3, time.time())
    made.flush()


def test_a_crawl_publishes_exactly_the_expected_documents(crawled):
    """The whole promise, judged from the topics and the sites' own log."""
    report = crawled.judge(FIRST)
    assert report.ok, report.as_json()
    assert len(crawled.expectation.documents) == report.published
    assert () == report.asked_twice


def test_each_document_is_in_one_finished_file(crawled):
    """What people read is the files."""
    assert dict.fromkeys(crawled.expectation.documents, 1) == dict(crawled.documents_in_files(FIRST))
    assert [] == list((crawled.documents / ".unfinished").iterdir())


def test_lag_02_an_idle_group_has_no_lag_in_spite_of_transaction_markers(crawled):
    """A marker takes an offset that is never delivered: counted, an idle deployment could never scale to zero."""
    crawled.until_idle(limit_s=30)
    for stage in STAGES:
        assert {0} == {lag.lag for lag in crawled.lags(stage)}
    written = {lag.partition: lag.end for lag in crawled.lags("store")}
    documents = crawled.read(DOCUMENTS.name)
    assert sum(written.values()) > len(documents)  # the markers are there
    assert 0 == sum(lag.high_watermark - lag.end for stage in STAGES for lag in crawled.lags(stage))


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_answers_for_its_health_and_its_figures(crawled, stage):
    """An operator watches strangers' code by these; a series that is renamed breaks alerts silently."""
    worker = crawled.worker(stage)
    assert {"ok": True, "reason": "commits go on"} == json.loads(worker.read("/healthz"))
    said = worker.read("/metrics").decode()
    for name in SERIES:
        assert re.search(rf'^headrace_{name}{{.*stage="{stage}".*}} ', said, re.MULTILINE), name
    assert 6 == figure(crawled, stage, "assigned_partitions")
    assert figure(crawled, stage, "records_total") > 0
    assert figure(crawled, stage, "commits_total") > 0
    assert 0 == figure(crawled, stage, "aborts_total")
    assert 0 == figure(crawled, stage, "in_flight")
    series = rb"^headrace_lag{.*} (\S+)$"
    partitions = 6 * len(INPUTS[stage])

    def lags():
        found = [float(value) for value in re.findall(series, worker.read("/metrics"), re.MULTILINE)]
        return found if partitions == len(found) else None

    crawled.until_idle()
    crawled.until(lambda: [0.0] * partitions == lags(), "a worker's own lag of 0 in all its partitions")


def test_the_monitor_shows_lag_and_progress_from_outside(crawled):
    """It is what is left when every worker is dead."""
    base = crawled.until(crawled.monitor.endpoint, "the monitor's address")

    def settled():
        status = json.loads(crawled.monitor.read("/status") or "{}")
        return status if status.get("lag") and not any(map(sum, map(dict.values, status["lag"].values()))) else None

    status = crawled.until(settled, "a round of the monitor without lag")
    assert set(STAGES) == set(status["lag"])
    fetched = sum(row["pages_fetched"] for row in status["crawls"][FIRST])
    assert fetched >= len(crawled.expectation.documents)
    said = crawled.monitor.read("/metrics").decode()
    labels = f'group="headrace-store",partition="{PARTITION}",topic="{DOCUMENTS.name}"'
    for name in ("group_lag", "group_never_committed"):
        assert f"headrace_{name}{{{labels}}} 0.0" in said.splitlines()
    for topic in (DOCUMENTS.name, DOCUMENTS.dlq, FRONTIER_STATE.name, OFFSETS_TOPIC):
        for name in ("uncommitted_tail", "held_back_seconds"):
            assert re.search(rf'^headrace_partition_{name}{{partition="0",topic="{topic}"}} 0.0$', said, re.MULTILINE)
    assert 200 == httpx.get(f"{base}/healthz").status_code


@pytest.mark.parametrize("stage", STAGES)
def test_pending_shows_each_partition_of_a_stage(crawled, stage, monkeypatch):
    """The offset map is bytes in commit metadata; this is how people read it."""
    for name, value in crawled.environ.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli, ["pending", stage])
    assert 0 == shown.exit_code, shown.output
    lines = shown.output.splitlines()
    assert [f"{t.name}/{n}" for t in INPUTS[stage] for n in range(6)] == [line.split(":")[0] for line in lines]
    assert all("lag 0" in line for line in lines)
    rows = [json.loads(line) for line in CliRunner().invoke(cli, ["pending", stage, "--json"]).output.splitlines()]
    assert {0} == {row["lag"] for row in rows}
    assert {True} == {row["readable"] for row in rows}
    assert {worker.label for worker in crawled.fleet.by_stage[stage]} == {row["owner"] for row in rows}
    assert [] == [offset for row in rows for offset in row["unfinished"]]


def test_an_order_that_nobody_can_obey_says_who_was_asked(crawled, monkeypatch):
    """The record is finished, or the partition goes on: nothing is done, and nobody is left in doubt."""
    for name, value in crawled.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pipeline.cli.pending.ORDER_S", 2.0)
    for command, place, words in (
        ("release", f"{PAGES.name}/0/5", "is not in hand in any worker that answered: parse-0"),
        ("resume", f"{PAGES.name}/0", "is not stopped in any worker that answered: parse-0"),
        ("resume", "crawl.pages/0", "'crawl.pages/0' is not TOPIC/PARTITION; the topics are crawl.pages.v1"),
    ):
        told = CliRunner().invoke(cli, ["pending", command, "parse", place])
        assert 0 != told.exit_code
        assert words in str(told.exception) + told.output


def test_the_doctor_finds_nothing_wrong_with_a_pipeline_that_works(crawled, monkeypatch):
    """Open transactions come and go, groups have members: a finding that is none would teach people not to look."""
    for name, value in crawled.environ.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(cli, ["doctor"])
    assert (0, "all is well\n") == (shown.exit_code, shown.output)


def test_undecodable_bytes_on_any_input_topic_become_a_dead_letter_and_the_partition_goes_on(crawled):
    """Anybody may write to a topic; what can't be read must neither stop a partition nor be lost."""
    for topic in INPUT_TOPICS:
        crawled.write(topic.name, POISON, f"key of {topic.name}".encode(), PARTITION)
        crawled.write(topic.name, b"", None, PARTITION)
    for topic in INPUT_TOPICS:
        key = f"key of {topic.name}".encode()
        letter = crawled.until(lambda t=topic, k=key: dead_letter(crawled, t, k), f"the dead letter on {topic.dlq}")
        headers = dict(letter.headers)
        assert (POISON, PARTITION) == (letter.value, letter.partition)
        assert b"undecodable" == headers["dlq-reason"]
        assert topic.name.encode() == headers["dlq-origin-topic"]
        assert str(PARTITION).encode() == headers["dlq-origin-partition"]
        assert STAGE_OF[topic.name].encode() == headers["dlq-stage"]
        assert len(headers) == len(letter.headers)
    crawled.until_idle()
    for topic in INPUT_TOPICS:
        letters = [r for r in crawled.read(topic.dlq) if b"undecodable" == dict(r.headers)["dlq-reason"]]
        assert [(POISON, f"key of {topic.name}".encode()), (b"", None)] == [(r.value, r.key) for r in letters]


@pytest.mark.parametrize("topic", [TASKS, TASKS_URGENT], ids=lambda topic: topic.name)
@pytest.mark.parametrize("url", ["", "not a URL", "ftp://site0001.test/", "http://user:secret@site0001.test/"])
def test_a_task_without_a_usable_url_is_an_invalid_task(crawled, topic, url):
    """Its sender must act, and is told which field."""
    key = f"{topic.name} {url}".encode()
    task = {"crawl": FIRST, "url": url, "submitted_at_ms": 1}
    value = crawled.codecs.encode(topic.subject, task)
    crawled.write(topic.name, value, key, PARTITION)
    letter = crawled.until(lambda: dead_letter(crawled, topic, key), f"the dead letter on {topic.dlq}")
    headers = dict(letter.headers)
    assert (b"invalid_task", value) == (headers["dlq-reason"], letter.value)
    assert headers["dlq-message"].startswith(b"url: ")
    assert b"secret" not in b"".join(headers.values())


def test_a_frontier_that_lost_its_disk_goes_on_as_if_nothing_had_happened(crawled):
    """Its state is in Kafka; a disk that is lost costs the time of a restore."""
    before = crawled.requests()
    seen = crawled.first.status().seen
    worker = crawled.worker("frontier")
    worker.terminate()
    assert worker.wait(20)
    shutil.rmtree(crawled.directory / "state" / "frontier-0")
    worker.start()
    unknown = f"{crawled.web.start_urls[0]}never/linked"
    submit(crawled, *crawled.expectation.documents, unknown)
    crawled.until(lambda: crawled.requests()[unknown], "the request for a new page")
    crawled.until_idle()
    crawled.until(lambda: crawled.first.status().seen == seen + 1, "the count of known pages")
    assert {unknown: 1} == dict(crawled.requests() - before)
    assert figure(crawled, "frontier", "restored_changes_total") > len(crawled.expectation.documents)


def test_documents_are_published_once_though_a_worker_of_each_stage_is_killed(crawled):
    """SIGKILL in the middle of a crawl: what was in flight is done again, what was published is not."""
    run = crawled.begin(SECOND)
    try:
        for stage in STAGES:
            pages = run.status().pages
            crawled.until(lambda p=pages: run.status().pages > p, "progress", pause_s=1.5)
            crawled.kill(stage)
            crawled.until(lambda s=stage: crawled.worker(s).restarts, f"a restart of {stage}")
        assert not run.status().ended
        crawled.until_ended(run)
    finally:
        run.close()
    report = crawled.judge(SECOND)
    assert report.ok, report.as_json()
    assert dict.fromkeys(crawled.expectation.documents, 1) == dict(crawled.documents_in_files(SECOND))
    crawled.until_idle()
