from __future__ import annotations

import json

import pytest

from pipeline import topics
from pipeline.contracts.schemas import read_schemas
from pipeline.errors import BugError, InputError
from pipeline.frontier.answers import answer_explain, answer_top
from tests.frontier_world import CODECS, START, Bench, make_crawl, make_links, make_outcome, make_parsed, make_stage
from tests.frontier_world import make_task as task

A = "http://a.test/"
BUDGETS = {
    "max_pages": 5, "max_bytes": 10**6, "max_pages_per_day": 5,
    "max_pages_per_domain": 5, "max_bytes_per_domain": 10**6, "max_pages_per_domain_per_day": 5,
}  # fmt: skip
EXTREMES = {
    "int": (-(2**31), -1, 0, 256, 65_536, 2**31 - 1),
    "long": (-(2**63), -1, 0, 2**31, 2**53, 253_402_300_800_000, 2**62, 2**63 - 1),  # one is the year 10000
    "string": ("", "\0", "a\0b", "x" * 300, "http://", "nan", "\uffff"),
    "boolean": (False, True),
}
"""Values of each type at which something might end: of the type, of a packing, of a clock."""
KINDS = {
    topics.FETCHES: [
        {"outcome": "FETCHED"}, {"outcome": "HTTP_ERROR", "status": 503}, {"outcome": "RATE_LIMITED", "status": 429},
        {"outcome": "DEFERRED"}, {"outcome": "NETWORK_ERROR"}, {"outcome": "REDIRECTED"}, {"outcome": "NOT_MODIFIED"},
    ],
    topics.GRANTS: [{"kind": "ASK"}, {"kind": "GIVE"}, {"kind": "RETURN"}],
    topics.TASKS: [{}, {"interval_ms": 60_000}, {"replay": True}, {"redirects": ["http://b.test/"]}],
    topics.LINKS: [{}],
    topics.PARSED: [{}],
}  # fmt: skip


def begun(budgets):
    """A partition with a URL and a polled one under way, and their first lane record."""
    bench = Bench(make_stage({"c": make_crawl("c", **budgets)}, delay_s=0.0))
    bench.task(A, "c")
    bench.task(A + "polled", "c", interval_ms=3_600_000)
    return bench, bench.emitted()[0]


def right(topic, lane):
    """A record of a topic that means something."""
    records = {
        topics.TASKS: task(A + "x", "c"),
        topics.LINKS: make_links([A + "y", "http://b.test/"], "c"),
        topics.PARSED: make_parsed(lane, [0]),
        topics.FETCHES: make_outcome(lane, "FETCHED", START),
        topics.GRANTS: {"crawl": "c", "kind": "GIVE", "partition": 0, "pages": 1, "bytes": 1, "day": 0},
    }
    return records[topic]


def strange(topic, lane):
    """Records of which one field is at an extreme, as far as the schema takes them."""
    (*_, schema) = read_schemas()[topic.subject]
    for field in schema.document["fields"]:
        types = field["type"] if isinstance(field["type"], list) else [field["type"]]
        values = [value for kind in types if isinstance(kind, str) for value in EXTREMES.get(kind, ())]
        for kind in KINDS[topic]:
            for value in values:
                record = {**right(topic, lane), **kind, field["name"]: value}
                try:
                    yield record, CODECS.encode(topic.subject, record)
                except BugError:
                    continue


def live_on(bench):
    """Days pass, memory is lost, and people ask."""
    for pause_s in (0.0, 1.0, 100.0, 90_000.0, 90_000.0):
        bench.tick(pause_s)
        bench.tick()
    bench.reopen()
    bench.tick(1.0)
    for answer, argument in (
        (answer_explain, {"url": A, "domain": "a.test"}),
        (answer_explain, {"domain": "a.test"}),
        (answer_top, {"domains": 20}),
    ):
        json.dumps(answer(bench.frontier, argument, bench.now))


@pytest.mark.parametrize("budgets", [{}, BUDGETS], ids=["without budgets", "with budgets"])
@pytest.mark.parametrize("topic", KINDS, ids=lambda topic: topic.name)
def test_a_record_with_one_absurd_value_is_handled_or_refused_and_harms_nothing_later(topic, budgets):
    """What gets in is written again by timers, which no dead letter can save: it would end every owner, for ever."""
    _, lane = begun(budgets)
    for record, value in strange(topic, lane):
        bench, _ = begun(budgets)
        try:
            for _ in range(2):  # sums overflow at the second
                bench.send(topic, value)
            live_on(bench)
        except InputError:
            continue
        except Exception as exc:
            raise AssertionError(f"{record} ends a worker") from exc
