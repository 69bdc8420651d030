"""Judge a pipeline that has come to rest by its topics: every accepted record has its outputs once, or a dead letter.

Pure: records in, findings out. It knows the contracts, what answers what, and nothing of how stages work.

| record | is answered by |
|---|---|
| lane record | one outcome of the same delivery |
| outcome FETCHED | one page |
| outcome REDIRECTED | one task that names the URL as the last it came from |
| page | one parsed record |
| parsed record | the document it names, and a link record for each partition number in it |
| tasks, links, parsed records, outcomes | the counts in the newest progress of each crawl and partition |
| document | one range of one finished file's manifest row |
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeVar

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.local.topic_reader import ReadRecord
from pipeline.local.topic_rows import GIVEN_UP, Delivery, Rows, place_of
from pipeline.web.url import canonical_form

EXAMPLES = 3
UNANSWERED = 1 << 63
_COUNTED = ("tasks_received", "redirects_received", "redirects_sent", "pages_fetched", "pages_parsed", "links_received")
_LANES = tuple(lane.name for lane in topics.LANES.values())

K = TypeVar("K", bound=Hashable)


class CommitSeen(NamedTuple):
    """What a group had committed at some moment of the run.

    Attributes:
        topic, partition: of the input.
        base: committed offset.
        end: position after the last record that was started.
        unfinished: offsets in [base, end) that were not finished.
        answers_end: high watermark of the same partition of the topic that holds the answers, read after the commit.
    """

    topic: str
    partition: int
    base: int
    end: int
    unfinished: tuple[int, ...]
    answers_end: int


@dataclass(frozen=True, slots=True)
class TopicFindings:
    """What the topics tell.

    Attributes:
        records: topic -> how many committed records.
        dead_letters: topic -> reason -> how many.
        faults: rule -> how often it was broken, and examples; empty where all is well.
    """

    records: Mapping[str, int]
    dead_letters: Mapping[str, Mapping[str, int]]
    faults: Mapping[str, tuple[int, tuple[str, ...]]]


def judge_topics(
    held: Mapping[str, Sequence[ReadRecord]],
    codecs: Codecs,
    commits: Iterable[CommitSeen] = (),
    *,
    reasons: frozenset[str] = frozenset(),
) -> TopicFindings:
    """Judge all topics of a pipeline in which nothing is left to do.

    Args:
        held: topic -> its committed records, by partition and offset, none removed by retention or compaction.
        codecs: of the contracts.
        commits: what was seen committed on the way.
        reasons: of dead letters that may be there.
    """
    rows = Rows(held, codecs)
    faults = [
        *_letters(rows, reasons),
        *_fetches(rows),
        *_pages(rows),
        *_progress(rows),
        *_files(rows),
        *_commits(rows, commits),
    ]
    return TopicFindings(
        records={name: len(records) for name, records in held.items() if records},
        dead_letters={name: dict(Counter(letter.reason for letter in found)) for name, found in rows.letters.items()},
        faults={rule: (len(broken), tuple(map(_shown, broken[:EXAMPLES]))) for rule, broken in faults if broken},
    )


_Fault = tuple[str, Sequence[object]]


def _letters(rows: Rows, reasons: frozenset[str]) -> list[_Fault]:
    """Each dead letter has its origin, untouched, and is the only one of it; what can't be read is one."""
    letters = [letter for found in rows.letters.values() for letter in found]
    values = {place_of(record): record.value for name in topics.INPUTS.values() for record in _inputs(rows.held, name)}
    changed = [
        letter.origin
        for letter in letters
        if letter.reason not in GIVEN_UP
        and (letter.origin not in values or (letter.is_whole and values[letter.origin] != letter.value))
    ]
    return [
        ("dead letters of a record", _more_than_once(letter.identity for letter in letters)),
        ("dead letters unlike their origin", changed),
        ("dead letters without a reason", [letter for letter in letters if letter.reason not in reasons]),
        ("undecodable records without a dead letter", [place for place in rows.undecodable if place not in rows.dead]),
    ]


def _inputs(held: Mapping[str, Sequence[ReadRecord]], names: Iterable[topics.Topic]) -> Iterable[ReadRecord]:
    return (record for topic in names for record in held.get(topic.name, ()))


def _fetches(rows: Rows) -> list[_Fault]:
    """Lane records, outcomes, pages and redirects belong together one to one."""
    lanes, outcomes = rows.of(*_LANES), rows.of(topics.FETCHES.name)
    deliveries = Counter(row.delivery for row in lanes)
    numbers: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for crawl, key, number in deliveries:
        numbers[crawl, key].append(number)
    brought = Counter(row.delivery for row in outcomes if row.fields["outcome"] == "FETCHED")
    moved = Counter(row.page for row in outcomes if row.fields["outcome"] == "REDIRECTED")
    tasks = rows.of(topics.TASKS.name, topics.TASKS_URGENT.name)
    went_on = Counter(
        (row.fields["crawl"], canonical_form(row.fields["redirects"][-1]))
        for row in tasks
        if row.fields["redirects"] and not row.fields["replay"]
    )
    dead = Counter(row.delivery for row in lanes if row.place in rows.dead)
    said_dead = Counter(row.delivery for row in outcomes if row.fields["outcome"] == "DEAD_LETTER")
    return [
        ("deliveries given out twice", _more_than_once(deliveries.elements())),
        ("URLs with a hole in their deliveries", [key for key, found in numbers.items() if max(found) != len(found)]),
        *_paired("lane records", deliveries, "outcomes", Counter(row.delivery for row in outcomes)),
        *_paired("dead lane records", dead, "outcomes that say so", said_dead),
        *_paired("outcomes with a page", brought, "pages", Counter(row.delivery for row in rows.of(topics.PAGES.name))),
        *_paired("outcomes with a redirect", moved, "tasks of redirects", went_on),
    ]


def _pages(rows: Rows) -> list[_Fault]:
    """Pages, parsed records, documents and links belong together one to one."""
    pages, parsed = rows.of(topics.PAGES.name), rows.of(topics.PARSED.name)
    named = Counter((*row.page, row.fields["document_id"]) for row in parsed if row.fields["document_id"] is not None)
    documents = Counter((*row.page, row.fields["id"]) for row in rows.of(topics.DOCUMENTS.name))
    announced = Counter((*row.page, number) for row in parsed for number in row.fields["link_records"])
    links = Counter((row.fields["crawl"], row.fields["page"], row.place[1]) for row in rows.of(topics.LINKS.name))
    dead = Counter(row.delivery for row in pages if row.place in rows.dead)
    said_dead = Counter(row.delivery for row in parsed if row.fields["kind"] == "DEAD_LETTER")
    return [
        *_paired(
            "pages", Counter(row.delivery for row in pages), "parsed records", Counter(r.delivery for r in parsed)
        ),
        *_paired("dead pages", dead, "parsed records that say so", said_dead),
        *_paired("documents named by parsed records", named, "documents", documents),
        *_paired("link records announced", announced, "link records", links),
    ]


def _progress(rows: Rows) -> list[_Fault]:
    """The frontier has counted every record once, and nothing waits or is out."""
    counted: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    for row in rows.of(topics.TASKS.name, topics.TASKS_URGENT.name, dead=False):
        is_redirect = bool(row.fields["redirects"]) and not row.fields["replay"]
        counted[row.fields["crawl"], row.place[1]]["redirects_received" if is_redirect else "tasks_received"] += 1
    for row in rows.of(topics.FETCHES.name, dead=False):
        kind = {"FETCHED": "pages_fetched", "REDIRECTED": "redirects_sent"}.get(row.fields["outcome"])
        counted[row.fields["crawl"], row.place[1]][kind or "other outcomes"] += 1
    for row in rows.of(topics.PARSED.name, dead=False):
        counts = counted[row.fields["crawl"], row.place[1]]
        counts["pages_parsed"] += 1
        for number in row.fields["link_records"]:
            counts[f"links_sent to {number}"] += 1
    for row in rows.of(topics.LINKS.name, dead=False):
        counted[row.fields["crawl"], row.place[1]]["links_received"] += 1
    newest = {(row.fields["crawl"], row.fields["partition"]): row.fields for row in rows.of(topics.PROGRESS.name)}
    wrong, restless = [], []
    for crawl, number in counted.keys() | newest.keys():
        said = newest.get((crawl, number))
        if said is None:
            wrong.append(f"{crawl}/{number}: never reported")
            continue
        told = {name: said[name] for name in _COUNTED}
        told |= {f"links_sent to {target}": count for target, count in enumerate(said["links_sent"])}
        found = counted[crawl, number]
        wrong += [
            f"{crawl}/{number}: {name} is {count}, and there are {found[name]}"
            for name, count in told.items()
            if count != found[name]
        ]
        if said["out"] or said["waiting"]:
            restless.append(f"{crawl}/{number}: {said['waiting']} wait, {said['out']} are out")
    return [("counts of the frontier unlike its input", wrong), ("tasks that wait or are out at the end", restless)]


def _files(rows: Rows) -> list[_Fault]:
    """Every document lies in the range of exactly one manifest row, which counts it."""
    ranges: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for fields in {row.fields["name"]: row.fields for row in rows.of(topics.SEGMENTS.name)}.values():
        ranges[fields["partition"]].append((fields["first_offset"], fields["end_offset"], fields["documents"]))
    documents: dict[int, list[int]] = defaultdict(list)
    for row in rows.of(topics.DOCUMENTS.name, dead=False):
        documents[row.place[1]].append(row.place[2])
    overlapping, miscounted, left = [], [], []
    for number in documents.keys() | ranges.keys():
        offsets, reached = sorted(documents[number]), 0
        for first, end, count in sorted(ranges[number]):
            if first < reached:
                overlapping.append((number, first, end))
            if count != bisect.bisect_left(offsets, end) - bisect.bisect_left(offsets, first):
                miscounted.append((number, first, end, count))
            left += [(number, offset) for offset in offsets if reached <= offset < first]
            reached = max(reached, end)
        left += [(number, offset) for offset in offsets if offset >= reached]
    return [
        ("files with documents of another", overlapping),
        ("files that count other documents than there are", miscounted),
        ("documents in no file", left),
    ]


def _commits(rows: Rows, commits: Iterable[CommitSeen]) -> list[_Fault]:
    """What a group said it had finished was answered by then."""
    answers: dict[tuple[str, Delivery], int] = {}
    for question, answer in ((_LANES, topics.FETCHES.name), ((topics.PAGES.name,), topics.PARSED.name)):
        found = {row.delivery: row.place[2] for row in rows.of(answer)}
        for row in rows.of(*question):
            answers[row.place[0], row.delivery] = found.get(row.delivery, UNANSWERED)
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    answered: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows.of(*_LANES, topics.PAGES.name):
        topic, partition, offset = row.place
        offsets[topic, partition].append(offset)
        answered[topic, partition].append(answers[topic, row.delivery])
    latest = {place: list(accumulate(found, max)) for place, found in answered.items()}
    early = []
    for seen in commits:
        place = seen.topic, seen.partition
        below = bisect.bisect_left(offsets[place], seen.base)
        if below and latest[place][below - 1] >= seen.answers_end:
            early.append((*place, seen.base))
        ahead = bisect.bisect_left(offsets[place], seen.end)
        open_offsets = set(seen.unfinished)
        early += [
            (*place, offsets[place][at])
            for at in range(below, ahead)
            if offsets[place][at] not in open_offsets and answered[place][at] >= seen.answers_end
        ]
    return [("offsets committed before their answer", early)]


def _paired(first: str, ones: Counter[K], second: str, others: Counter[K]) -> list[_Fault]:
    """Two kinds of records belong together one to one; each rule names what is too few of and too many of."""
    return [
        (f"{first} without {second}", list((ones - others).elements())),
        (f"{second} without or beyond {first}", list((others - ones).elements())),
    ]


def _more_than_once(things: Iterable[K]) -> list[K]:
    return [thing for thing, count in Counter(things).items() if count > 1]


def _shown(thing: object) -> str:
    return thing if isinstance(thing, str) else repr(thing)
