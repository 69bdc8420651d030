"""Judges a run by what any reader of the topics sees, and a store by its changelog."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.delivery.journal import MAX_CRASHES
from pipeline.state.store import PartitionStore
from pipeline.state.view import from_changelog
from tests.chaos.ledger import Row
from tests.chaos.samples import Place
from tests.chaos.toy import verb_and_name

TABLES = {"parallel": ("s",), "ordered": ("s", "t")}
SHOWN = 5


def is_poison(row: Row) -> bool:
    """Whether a record asks to be a dead letter."""
    return verb_and_name(row.value or b"")[0] == "poison"


def origin(letter: Row) -> tuple[int, int]:
    """Partition and offset of the record that a dead letter is for."""
    return letter.partition, int(letter.headers["dlq-origin-offset"])


def wrong_letters(
    inputs: Sequence[Row], letters: Sequence[Row], crashes: Mapping[tuple[int, int], int] | None = None
) -> list[str]:
    """What is wrong with the dead letters of a stage: each poison record has one, nothing else has.

    Args:
        inputs: all records of the input topic.
        letters: all records of its dead-letter topic.
        crashes: (partition, offset) → in how many lives of one worker it was left unfinished, as `crashes_by_record`
            says: a record that was in flight in so many may have a letter `crash_loop`. None: no record may.
    """
    found = Counter(map(origin, letters))
    expected = {(row.partition, row.offset) for row in inputs if is_poison(row)}
    looped = {origin(row) for row in letters if row.headers["dlq-reason"] == b"crash_loop"} - expected
    # One life may be missing there: a worker that was killed right after it took the record has not said so yet.
    allowed = {place for place in looped if crashes is not None and crashes.get(place, 0) >= MAX_CRASHES - 1}
    return [
        *_say("poison without a letter", expected - found.keys()),
        *_say("crash_loop without so many crashes", looped - allowed),
        *_say("a letter without a reason", found.keys() - expected - looped),
        *_say("more than one letter", [place for place, count in found.items() if count > 1]),
    ]


def crashes_by_record(journal: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], int]:
    """In how many lives of one worker each record was begun and not ended: (partition, offset) → the most of any.

    Args:
        journal: lines of the toy workers of one stage, in order.
    """
    open_now: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    left: Counter[tuple[str, int, int]] = Counter()
    for line in journal:
        worker, event = line["worker"], line["event"]
        if event == "made":
            left.update((worker, *place) for place in open_now.pop(worker, ()))
        elif event == "begin":
            open_now[worker].add((line["partition"], line["offset"]))
        elif event == "end":
            open_now[worker].discard((line["partition"], line["offset"]))
    most: dict[tuple[int, int], int] = {}
    for (_, partition, offset), count in left.items():
        most[partition, offset] = max(count, most.get((partition, offset), 0))
    return most


def wrong_parallel(
    inputs: Sequence[Row], outputs: Sequence[Row], letters: Sequence[Row], crashes: Mapping[tuple[int, int], int]
) -> list[str]:
    """What is wrong with a parallel toy's topics: every input has one output or one dead letter.

    Args:
        inputs: all records of the input topic.
        outputs: all records of the output topic.
        letters: all records of the dead-letter topic.
        crashes: as `wrong_letters` wants them.
    """
    dead = {row.value for row in letters}
    expected = Counter(b"beside:" + (row.value or b"") if row.value in dead else (row.value or b"") for row in inputs)
    found = Counter(row.value or b"" for row in outputs)
    return [*_differences(expected, found), *wrong_letters(inputs, letters, crashes)]


def firsts(inputs: Sequence[Row]) -> dict[bytes, tuple[Row, int]]:
    """What an ordered toy passes on: key → its first record that is no poison, and the number of its turn."""
    found: dict[bytes, tuple[Row, int]] = {}
    turns: Counter[int] = Counter()
    for row in sorted(inputs, key=lambda row: (row.partition, row.offset)):
        if not is_poison(row) and (row.key or b"") not in found:
            turns[row.partition] += 1
            found[row.key or b""] = row, turns[row.partition]
    return found


def wrong_ordered(inputs: Sequence[Row], outputs: Sequence[Row], letters: Sequence[Row]) -> list[str]:
    """What is wrong with an ordered toy's topics.

    The first record of each key that is no poison was passed on once, with the number of its turn in the partition, and
    once by a timer.
    """
    expected: Counter[bytes] = Counter()
    for row, turn in firsts(inputs).values():
        expected.update([b"first:%d:%s" % (turn, row.value), b"timer:%s" % row.value])
    found = Counter(row.value or b"" for row in outputs)
    return [*_differences(expected, found), *wrong_letters(inputs, letters)]


def evidence_of(
    kind: str, topics: tuple[str, str], inputs: Sequence[Row], outputs: Sequence[Row], letters: Sequence[Row]
) -> dict[tuple[int, int], list[Place]]:
    """(partition, offset) of an input → where it can be seen that it is finished.

    Args:
        kind: parallel or ordered.
        topics: of the outputs, of the dead letters.
        inputs: all records of the input topic.
        outputs: all records of the output topic.
        letters: all records of the dead-letter topic.
    """
    out, dead = topics
    places = {row.value: (out, row.partition, row.offset) for row in outputs}
    evidence: dict[tuple[int, int], list[Place]] = {}
    for letter in letters:
        evidence[origin(letter)] = [(dead, letter.partition, letter.offset)]
        if (beside := places.get(b"beside:%s" % letter.value)) is not None:
            evidence[origin(letter)].append(beside)
    if kind == "parallel":
        wanted = {(row.partition, row.offset): row.value for row in inputs}
    else:
        wanted = {
            (row.partition, row.offset): b"first:%d:%s" % (turn, row.value) for row, turn in firsts(inputs).values()
        }
    for place, value in wanted.items():
        if value in places:
            evidence.setdefault(place, []).append(places[value])
    return evidence


def wrong_state(kind: str, inputs: Sequence[Row], letters: Sequence[Row], changelog: Sequence[Row]) -> list[str]:
    """What is wrong with the state that a changelog holds at the end of a run, seen from the inputs.

    Parallel: each key has one of its values. Ordered: each key is there, and no timer is left.
    """
    found = _folded(changelog)
    dead = set(map(origin, letters))
    values: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for row in inputs:
        if (row.partition, row.offset) not in dead and not is_poison(row):
            values[row.key or b""].add(row.value or b"" if kind == "parallel" else b"1")
    keys = {key for table, key in found if table == "s"}
    return [
        *_say("keys that the state does not have", values.keys() - keys),
        *_say("keys that nobody sent", keys - values.keys()),
        *_say("rows of another value", [key for key in keys & values.keys() if found["s", key] not in values[key]]),
        *_say("timers left", [key for table, key in found if table == "t"]),
    ]


def wrong_stores(
    changelog: Sequence[Row],
    states: Iterable[Path],
    tables: Sequence[str],
    unwrap: Callable[[bytes], bytes] = lambda value: value,
) -> list[str]:
    """What is wrong with stores: each holds what its changelog says up to the position it stands for.

    Args:
        changelog: all records of the changelog topic.
        states: folders of workers that have ended; each holds stores by partition number.
        tables: of the stage's state.
        unwrap: value in the changelog → row in the store.
    """
    wrong = []
    folders = [folder for folder in states if folder.exists()]
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.name.isdigit()):
        store = PartitionStore(path, tables)
        found = {(table, key): value for table in tables for key, value in store.items(table)}
        rows = [row for row in changelog if row.partition == int(path.name) and row.offset < store.applied]
        store.close()
        wrong += _say(f"{path}: rows that differ from the changelog", _differing(_folded(rows, unwrap), found))
    return wrong


def _folded(
    changelog: Iterable[Row], unwrap: Callable[[bytes], bytes] = lambda value: value
) -> dict[tuple[str, bytes], bytes]:
    """What a changelog leaves: (table, key) → the last value."""
    found: dict[tuple[str, bytes], bytes] = {}
    for row in changelog:
        place = from_changelog(row.key or b"")
        if row.value is None:
            found.pop(place, None)
        else:
            found[place] = unwrap(row.value)
    return found


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
