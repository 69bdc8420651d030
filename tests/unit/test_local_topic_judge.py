"""The judge finds each broken rule where it is broken, and none where all is well: topics made by hand."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from pipeline import topics
from pipeline.contracts import load_codec
from pipeline.local.topic_judge import CommitSeen, judge_topics
from pipeline.local.topic_reader import ReadRecord
from pipeline.web.url import canonical_form

ROOT = Path(__file__).parents[2]
CODECS = load_codec()
LANE, FETCHES, PAGES = topics.LANE_NORMAL.name, topics.FETCHES.name, topics.PAGES.name
PARSED, LINKS, DOCUMENTS = topics.PARSED.name, topics.LINKS.name, topics.DOCUMENTS.name
TASKS, PROGRESS, SEGMENTS = topics.TASKS.name, topics.PROGRESS.name, topics.SEGMENTS.name
SUBJECTS = {topic.name: topic.subject for topic in topics.TABLE}
FIRST, SECOND, MOVED = (f"http://a.test/{name}" for name in ("1", "2", "moved"))
KEYS = {FIRST: b"1" * 16, SECOND: b"2" * 16, MOVED: b"3" * 16}


def named(url, delivery=1):
    """What names a delivery in every record of it."""
    return {"crawl": "c", "url": url, "url_key": KEYS[canonical_form(url)], "delivery": delivery}


def lane(url, delivery=1):
    """A task given out."""
    return {**named(url, delivery), "priority": 3}


def outcome(url, kind, delivery=1):
    """How a fetch ended."""
    return {**named(url, delivery), "outcome": kind}


def parsed(url, links=(), **fields):
    """What parsing says of a page; its document's id is the URL's key."""
    return {**named(url), "kind": "HTML", "document_id": KEYS[url], "link_records": list(links), **fields}


def task(url, *redirects):
    """A wish for a URL."""
    return {"crawl": "c", "url": url, "redirects": list(redirects)}


def document(url):
    """A published document."""
    return {"id": KEYS[url], "crawl": "c", "url": url}


def segment(first, end, documents, partition=0):
    """A manifest row."""
    return {
        "name": f"{partition}-{first}-{end}", "partition": partition,
        "first_offset": first, "end_offset": end, "documents": documents,
    }  # fmt: skip


def progress(partition, **counts):
    """The frontier's counts of one partition."""
    return {"crawl": "c", "partition": partition, "links_sent": [0, 0], **counts}


# A crawl of three URLs: the first was put off once, the second is reached by a redirect, the links of the first go to
# both partitions. Rows are (partition, record).
RIGHT = {
    TASKS: [(0, task(FIRST)), (0, task(MOVED)), (0, task(SECOND, MOVED))],
    LANE: [(0, lane(FIRST)), (0, lane(MOVED)), (0, lane(FIRST, 2)), (0, lane(SECOND))],
    FETCHES: [
        (0, outcome(FIRST, "DEFERRED")), (0, outcome(MOVED, "REDIRECTED")),
        (0, outcome(FIRST, "FETCHED", 2)), (0, outcome(SECOND, "FETCHED")),
    ],
    PAGES: [(0, named(FIRST, 2)), (0, named(SECOND))],
    PARSED: [(0, {**parsed(FIRST, [0, 1]), "delivery": 2}), (0, parsed(SECOND))],
    LINKS: [(0, {"crawl": "c", "page": FIRST}), (1, {"crawl": "c", "page": FIRST})],
    DOCUMENTS: [(0, document(FIRST)), (0, document(SECOND))],
    SEGMENTS: [(0, segment(0, 1, 1)), (0, segment(1, 2, 1))],
    PROGRESS: [
        (0, progress(0, tasks_received=1, waiting=4)),  # an older report
        (0, progress(0, tasks_received=2, redirects_received=1, redirects_sent=1, pages_fetched=2, pages_parsed=2,
                     links_received=1, links_sent=[1, 1])),
        (1, progress(1, links_received=1)),
    ],
}  # fmt: skip


def filled(subject, fields):
    """Encode a record; fields that don't matter here are empty."""
    schema = json.loads((ROOT / "avro" / subject / "v1.avsc").read_text(encoding="utf-8"))
    return CODECS.encode(subject, {**{field["name"]: empty(field["type"]) for field in schema["fields"]}, **fields})


def empty(kind):
    """Return a value of an Avro type."""
    if isinstance(kind, list):
        return None
    name = kind["type"] if isinstance(kind, dict) else kind
    fixed = {"fixed": lambda: bytes(kind["size"]), "enum": lambda: kind["symbols"][0]}
    plain = {"string": "", "bytes": b"", "array": [], "map": {}, "boolean": False, "int": 0, "long": 0}
    return fixed[name]() if name in fixed else plain[name]


def held(rows):
    """Encode rows as a reader of the topics finds them."""
    found = {}
    for topic, records in rows.items():
        found[topic] = []
        for partition, content, *headers in records:
            offset = sum(1 for record in found[topic] if record.partition == partition)
            value = content if isinstance(content, bytes) else filled(SUBJECTS[topic], content)
            found[topic].append(ReadRecord(topic, partition, offset, 0, None, value, tuple(headers)))
    return found


def letter(topic, offset, reason="crash_loop", partition=0, identity=b"x"):
    """Headers of a dead letter."""
    rows = {
        "reason": reason.encode(), "id": identity, "origin-topic": topic.encode(),
        "origin-partition": b"%d" % partition, "origin-offset": b"%d" % offset,
    }  # fmt: skip
    return [(f"dlq-{name}", value) for name, value in rows.items()]


def changed(**topics_by_name):
    """Return the right rows with some topics' rows replaced: by a list, or by a function of the old ones."""
    rows = copy.deepcopy(RIGHT)
    for name, change in topics_by_name.items():
        topic = globals()[name]
        rows[topic] = change(rows[topic])
    return rows


def broken(rows, commits=(), reasons=()):
    """Rules that are broken."""
    return set(judge_topics(held(rows), CODECS, commits, reasons=frozenset(reasons)).faults)


def without(number):
    """Leave out a row."""
    return lambda rows: rows[:number] + rows[number + 1 :]


def twice(number):
    """Add a row once more at the end."""
    return lambda rows: [*rows, rows[number]]


def test_records_of_one_page_belong_together_however_its_url_is_written():
    """What is fetched names the URL as it was found, what was parsed the canonical one."""
    other = "?utm_source=x"
    changed = copy.deepcopy(RIGHT)
    changed[TASKS] = [(0, task(FIRST + other)), (0, task(MOVED)), (0, task(SECOND, MOVED))]
    changed[FETCHES][1] = (0, outcome(MOVED + other, "REDIRECTED"))
    changed[FETCHES][2] = (0, outcome(FIRST + other, "FETCHED", 2))
    changed[PAGES][0] = (0, named(FIRST + other, 2))
    assert {} == judge_topics(held(changed), CODECS).faults


def test_a_right_crawl_breaks_no_rule():
    """A judge that cries wolf is switched off."""
    findings = judge_topics(held(RIGHT), CODECS)
    assert {} == findings.faults
    assert {LANE: 4, DOCUMENTS: 2} == {name: findings.records[name] for name in (LANE, DOCUMENTS)}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"FETCHES": without(0)}, "lane records without outcomes"),
        ({"FETCHES": twice(0)}, "outcomes without or beyond lane records"),
        ({"LANE": without(0)}, "outcomes without or beyond lane records"),
        ({"LANE": twice(1)}, "deliveries given out twice"),
        ({"LANE": without(0), "FETCHES": without(0)}, "URLs with a hole in their deliveries"),
        ({"PAGES": without(0)}, "outcomes with a page without pages"),
        ({"PAGES": twice(1)}, "pages without or beyond outcomes with a page"),
        ({"TASKS": without(2)}, "outcomes with a redirect without tasks of redirects"),
        ({"TASKS": twice(2)}, "tasks of redirects without or beyond outcomes with a redirect"),
        ({"PARSED": without(0)}, "pages without parsed records"),
        ({"PARSED": twice(1)}, "parsed records without or beyond pages"),
        ({"DOCUMENTS": without(0)}, "documents named by parsed records without documents"),
        ({"DOCUMENTS": twice(0)}, "documents without or beyond documents named by parsed records"),
        ({"LINKS": without(1)}, "link records announced without link records"),
        ({"LINKS": twice(1)}, "link records without or beyond link records announced"),
        ({"TASKS": without(0)}, "counts of the frontier unlike its input"),
        ({"TASKS": twice(0)}, "counts of the frontier unlike its input"),
        ({"PROGRESS": without(2)}, "counts of the frontier unlike its input"),
        ({"PROGRESS": lambda rows: [*rows, (1, progress(1, links_received=1, out=1))]},
         "tasks that wait or are out at the end"),
        ({"SEGMENTS": without(1)}, "documents in no file"),
        ({"SEGMENTS": lambda rows: [*rows, (0, segment(1, 3, 1))]}, "files with documents of another"),
        ({"SEGMENTS": lambda rows: [rows[0], (0, segment(1, 2, 2))]},
         "files that count other documents than there are"),
        ({"PAGES": lambda rows: [*rows, (1, b"garbage")]}, "undecodable records without a dead letter"),
    ],
)  # fmt: skip
def test_each_broken_rule_is_found(changes, rule):
    """Lost and doubled, at each step of a URL's way: these are what the pipeline promises not to happen."""
    assert rule in broken(changed(**changes))


def test_a_dead_letter_is_an_answer_where_the_records_beside_it_are_there():
    """A record that ends as a dead letter ends for the crawl, too."""
    dlq = f"{PAGES}-dlq"
    value = filled(SUBJECTS[PAGES], named(SECOND))
    rows = changed(
        PARSED=lambda rows: [rows[0], (0, parsed(SECOND, kind="DEAD_LETTER", document_id=None))],
        DOCUMENTS=without(1),
        SEGMENTS=without(1),
    )
    rows[dlq] = [(0, value, *letter(PAGES, 1))]
    assert set() == broken(rows, reasons=["crash_loop"])
    assert {"dead letters without a reason"} == broken(rows)
    found = held(rows)
    assert {dlq: {"crash_loop": 1}} == judge_topics(found, CODECS).dead_letters
    found[dlq].append(ReadRecord(dlq, 0, 9, 0, None, None, (("dlq-marker", b"purged"), ("dlq-id", b"x"))))
    assert {dlq: {"crash_loop": 1}} == judge_topics(found, CODECS).dead_letters
    rows[dlq] *= 2
    assert {"dead letters of a record"} == broken(rows, reasons=["crash_loop"])
    rows[dlq] = [(0, value[:-1], *letter(PAGES, 1))]
    assert {"dead letters unlike their origin"} == broken(rows, reasons=["crash_loop"])
    rows[dlq] = [(0, value[:-1], *letter(PAGES, 1), ("dlq-cut", b"1"))]
    assert set() == broken(rows, reasons=["crash_loop"])
    rows[dlq] = [(0, filled(SUBJECTS[PAGES], named(FIRST, 2)), *letter(PAGES, 0))]
    expected = {
        "dead pages without parsed records that say so",
        "parsed records that say so without or beyond dead pages",
    }
    assert expected == broken(rows, reasons=["crash_loop"])


def test_what_cannot_be_read_is_answered_by_its_dead_letter():
    """Anybody may write garbage; it is neither lost nor counted."""
    rows = changed(LANE=lambda rows: [*rows, (1, b"garbage")])
    rows[f"{LANE}-dlq"] = [(1, b"garbage", *letter(LANE, 0, "undecodable", partition=1))]
    assert set() == broken(rows, reasons=["undecodable"])


def test_a_task_that_was_given_up_is_no_record_that_died():
    """Its letter names the outcome that ended it, and holds the task."""
    rows = copy.deepcopy(RIGHT)
    value = filled(SUBJECTS[TASKS], task(FIRST))
    rows[f"{TASKS}-dlq"] = [(0, value, *letter(FETCHES, 0, "retries_exhausted"))]
    assert set() == broken(rows, reasons=["retries_exhausted"])


@pytest.mark.parametrize(
    ("base", "end", "unfinished", "answers_end", "early"),
    [
        (2, 2, (), 2, False),
        (3, 3, (), 2, True),  # the third lane record's answer is the third outcome
        (0, 3, (0,), 3, False),
        (0, 3, (0,), 2, True),  # finished ahead, and not answered
        (0, 3, (0, 2), 2, False),
        (0, 0, (), 0, False),
    ],
)
def test_an_offset_that_was_committed_before_its_answer_is_found(base, end, unfinished, answers_end, early):
    """A base that passes an unfinished record is a loss that shows only if the worker dies right then."""
    seen = CommitSeen(LANE, 0, base, end, unfinished, answers_end)
    assert ({"offsets committed before their answer"} if early else set()) == broken(RIGHT, [seen])
