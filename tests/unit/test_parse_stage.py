from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.config import Settings
from pipeline.contracts import load_codec
from pipeline.delivery.api import ANSWERED_HEADER, is_answered
from pipeline.errors import InputError
from pipeline.parse.stage import ParseStage, worker_command
from tests.fakes import FakeRecord
from tests.unit.parse_pages import page_value

CODECS = load_codec()


def record(value, headers=()):
    """A page record as the transport reads it."""
    return FakeRecord(topics.PAGES.name, value, b"n.test", 4, headers=headers)


@pytest.fixture
async def stage():
    """The stage of the default configuration, with a clock that stands."""
    stage = ParseStage.from_settings(Settings(), lambda: 1_717_172_776.5)
    await stage.start()
    yield stage
    await stage.stop()


async def test_a_page_is_parsed_by_a_worker_process(stage):
    """The whole way but for the broker."""
    result = await stage.handle(record(page_value(b"<title>T</title>")), backlog=False)
    records = {output.topic: CODECS.decode(f"{output.topic}-value", output.value) for output in result.outputs}
    assert "T" == records[topics.DOCUMENTS.name]["title"]
    assert 1_717_172_776_500 == records[topics.PARSED.name]["parsed_at_ms"]
    assert ([], False) == (result.changes, result.urgent)


@pytest.mark.parametrize("value", [None, b"", b"junk"])
async def test_what_is_no_page_record_is_a_dead_letter(stage, value):
    """Its bytes stay untouched, and the partition goes on."""
    with pytest.raises(InputError) as caught:
        await stage.handle(record(value), backlog=True)
    assert "undecodable" == caught.value.reason
    assert [] == await stage.dead_letter_outputs(record(value), "undecodable")


async def test_a_dead_letter_of_a_readable_page_is_answered(stage):
    """The frontier counts pages by their answers."""
    (output,) = await stage.dead_letter_outputs(record(page_value(b"x")), "parse_crash")
    assert (topics.PARSED.name, b"n.test", 4) == (output.topic, output.key, output.partition)
    parsed = CODECS.decode(topics.PARSED.subject, output.value)
    assert ("DEAD_LETTER", "https://n.test/", []) == (parsed["kind"], parsed["url"], parsed["link_records"])


async def test_the_answer_of_a_page_that_had_one_before_says_so(stage):
    """Its dead letter was answered; counted once more it would keep the crawl from ending."""
    again = record(page_value(b"<title>T</title>"), ((ANSWERED_HEADER, b"1"),))
    outputs = [
        *(await stage.handle(again, backlog=False)).outputs,
        *(await stage.dead_letter_outputs(again, "parse_crash")),
    ]
    assert [(topics.DOCUMENTS.name, False), (topics.PARSED.name, True), (topics.PARSED.name, True)] == sorted(
        (output.topic, is_answered(output.headers)) for output in outputs
    )


async def test_a_page_with_a_url_that_is_none_is_a_dead_letter_without_an_answer(stage):
    """Nobody would know whom to answer."""
    value = CODECS.encode(
        topics.PAGES.subject, {**CODECS.decode(topics.PAGES.subject, page_value(b"x")), "url": "nonsense"}
    )
    with pytest.raises(InputError, match="url") as caught:
        await stage.handle(record(value), backlog=False)
    assert "invalid_task" == caught.value.reason
    assert [] == await stage.dead_letter_outputs(record(value), "invalid_task")


def test_a_worker_gets_what_the_configuration_says(tmp_path):
    """Partitions decide where links go; a worker that disagreed would send them to other partitions."""
    settings = Settings.model_validate(
        {
            "topics": {"partitions": 12},
            "fetch": {"user_agent": "millbot/2 (+https://mill.test)"},
            "frontier": {"max_url_bytes": 99},
            "registry": {"lock": str(tmp_path / "lock.json")},
        }
    )
    command = list(worker_command(settings))
    given = dict(zip(command[3::2], command[4::2], strict=True))
    assert {
        "--partitions": "12",
        "--agent": "millbot",
        "--max-url-bytes": "99",
        "--memory-limit-bytes": str(1 << 30),
        "--time-limit-s": "10.0",
        "--lock": str(tmp_path / "lock.json"),
    } == given
