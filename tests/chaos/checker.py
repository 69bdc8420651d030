"""Judges a run by what any reader of the topics sees, and a store by its changelog."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.state.store import PartitionStore
from pipeline.state.view import from_changelog
from tests.chaos.ledger import Row
from tests.chaos.toy import verb_and_name

TABLES = ("s", "t")
SHOWN = 5


def is_poison(row: Row) -> bool:
    """Whether a record asks to be a dead letter."""
    return verb_and_name(row.value or b"")[0] == "poison"


def wrong_letters(inputs: Sequence[Row], letters: Sequence[Row], *, crash_loops: bool) -> list[str]:
    """What is wrong with the dead letters of a stage: each poison record has one, nothing else has.

    Args:
        inputs: all records of the input topic.
        letters: all records of its dead-letter topic.
        crash_loops: whether records that were in flight in many kills may be there, too.
    """
    found = Counter((row.partition, int(row.headers["dlq-origin-offset"])) for row in letters)
    expected = {(row.partition, row.offset) for row in inputs if is_poison(row)}
    allowed = {
        (row.partition, int(row.headers["dlq-origin-offset"]))
        for row in letters
        if crash_loops and row.headers["dlq-reason"] == b"crash_loop"
    }
    return [
        *_say("poison without a letter", expected - found.keys()),
        *_say("a letter without a reason", found.keys() - expected - allowed),
        *_say("more than one letter", [place for place, count in found.items() if count > 1]),
    ]


def wrong_parallel(inputs: Sequence[Row], outputs: Sequence[Row], letters: Sequence[Row]) -> list[str]:
    """What is wrong with a parallel toy's topics: every input has one output or one dead letter."""
    dead = {row.value for row in letters}
    expected = Counter(b"beside:" + (row.value or b"") if row.value in dead else (row.value or b"") for row in inputs)
    found = Counter(row.value or b"" for row in outputs)
    return [
        *_differences(expected, found),
        *wrong_letters(inputs, letters, crash_loops=True),
    ]


def wrong_ordered(inputs: Sequence[Row], outputs: Sequence[Row], letters: Sequence[Row]) -> list[str]:
    """What is wrong with an ordered toy's topics.

    The first record of each key that is no poison was passed on once, with the number of its turn in the partition, and
    once by a timer.
    """
    firsts: dict[bytes, bytes] = {}
    keys: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in sorted(inputs, key=lambda row: (row.partition, row.offset)):
        if not is_poison(row) and (key := row.key or b"") not in firsts:
            firsts[key] = row.value or b""
            keys[row.partition].append(key)
    numbered = {key: number for order in keys.values() for number, key in enumerate(order, 1)}
    expected = Counter(b"first:%d:%s" % (numbered[key], value) for key, value in firsts.items())
    expected.update(b"timer:" + value for value in firsts.values())
    found = Counter(row.value or b"" for row in outputs)
    return [*_differences(expected, found), *wrong_letters(inputs, letters, crash_loops=False)]


def wrong_stores(changelog: Sequence[Row], states: Iterable[Path]) -> list[str]:
    """What is wrong with stores: each holds what its changelog says up to the position it stands for.

    Args:
        changelog: all records of the changelog topic.
        states: folders of workers that have ended; each holds stores by partition number.
    """
    wrong = []
    for path in sorted(path for state in states for path in state.iterdir() if path.name.isdigit()):
        store = PartitionStore(path, TABLES)
        found = {(table, key): value for table in TABLES for key, value in store.items(table)}
        rows = [row for row in changelog if row.partition == int(path.name) and row.offset < store.applied]
        store.close()
        expected: dict[tuple[str, bytes], bytes] = {}
        for row in rows:
            place = from_changelog(row.key or b"")
            if row.value is None:
                expected.pop(place, None)
            else:
                expected[place] = row.value
        wrong += _say(f"{path}: rows that differ from the changelog", _differing(expected, found))
    return wrong


def _differing(expected: dict[tuple[str, bytes], bytes], found: dict[tuple[str, bytes], bytes]) -> list[object]:
    return [place for place in expected.keys() | found.keys() if expected.get(place) != found.get(place)]


def _differences(expected: Counter[bytes], found: Counter[bytes]) -> list[str]:
    return [
        *_say("missing", (expected - found).keys()),
        *_say("doubled", [value for value in found if value in expected and found[value] > expected[value]]),
        *_say("unexpected", found.keys() - expected.keys()),
    ]


def _say(what: str, things: Iterable[object]) -> list[str]:
    listed = sorted(things, key=repr)
    return [f"{what}: {len(listed)}, such as {listed[:SHOWN]}"] if listed else []
