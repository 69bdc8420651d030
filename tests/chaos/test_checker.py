from __future__ import annotations

import struct

import pytest

from pipeline.delivery.journal import MAX_CRASHES
from pipeline.delivery.offsets import OffsetMap, encode
from pipeline.state.store import PartitionStore
from tests.chaos.checker import (
    crashes_by_record,
    evidence_of,
    wrong_letters,
    wrong_ordered,
    wrong_parallel,
    wrong_state,
    wrong_stores,
)
from tests.chaos.ledger import Row
from tests.chaos.report import standstill_s
from tests.chaos.samples import Sample, finished, wrong_samples

TOPICS = ("out", "in-dlq")


def row(offset, value, key=b"k", partition=0, **headers):
    """A record; names of headers with underscores for dashes."""
    return Row(partition, offset, key, value, {name.replace("_", "-"): text for name, text in headers.items()})


def letter(offset, origin, value, reason=b"invalid_task"):
    """A dead letter of the record at `origin`."""
    return row(offset, value, dlq_origin_offset=b"%d" % origin, dlq_reason=reason)


INPUTS = [row(0, b"v:0", b"a"), row(1, b"v:1", b"b"), row(3, b"poison:2", b"c"), row(4, b"v:3", b"a")]
PARALLEL = [row(0, b"v:0"), row(1, b"v:1"), row(3, b"beside:poison:2"), row(5, b"v:3")]
ORDERED = [row(0, b"first:1:v:0"), row(1, b"first:2:v:1"), row(3, b"timer:v:0"), row(4, b"timer:v:1")]
LETTERS = [letter(0, 3, b"poison:2")]


def test_a_right_run_is_right():
    """A checker that finds fault with everything would be turned off."""
    assert [] == wrong_parallel(INPUTS, PARALLEL, LETTERS, {})
    assert [] == wrong_ordered(INPUTS, ORDERED, LETTERS)


@pytest.mark.parametrize(("judge", "outputs"), [(wrong_parallel, PARALLEL), (wrong_ordered, ORDERED)])
def test_a_lost_a_doubled_and_a_phantom_output_are_found(judge, outputs):
    """The three ways in which the promise can be broken; a checker that cannot fail is worth nothing."""
    more = ({},) if judge is wrong_parallel else ()
    for number, output in enumerate(outputs):
        lost = judge(INPUTS, outputs[:number] + outputs[number + 1 :], LETTERS, *more)
        assert [f"missing: 1, such as [{output.value!r}]"] == lost
        doubled = judge(INPUTS, [*outputs, output], LETTERS, *more)
        assert [f"doubled: 1, such as [{output.value!r}]"] == doubled
    assert ["unexpected: 1, such as [b'v:9']"] == judge(INPUTS, [*outputs, row(9, b"v:9")], LETTERS, *more)


def test_turns_are_counted_from_what_was_handled():
    """Memory that outlives an abort shows in the number of a turn, in nothing else."""
    miscounted = [row(1, b"first:3:v:1") if output.value == b"first:2:v:1" else output for output in ORDERED]
    assert ["missing: 1, such as [b'first:2:v:1']", "unexpected: 1, such as [b'first:3:v:1']"] == wrong_ordered(
        INPUTS, miscounted, LETTERS
    )


def test_a_letter_that_is_missing_doubled_or_groundless_is_found():
    """Each poison record is dead once, and nothing else is."""
    assert ["poison without a letter: 1, such as [(0, 3)]"] == wrong_letters(INPUTS, [])
    assert ["more than one letter: 1, such as [(0, 3)]"] == wrong_letters(INPUTS, [*LETTERS, letter(1, 3, b"poison:2")])
    assert ["a letter without a reason: 1, such as [(0, 1)]"] == wrong_letters(INPUTS, [*LETTERS, letter(1, 1, b"v:1")])


def test_a_crash_loop_is_believed_only_of_a_record_that_was_there():
    """A record that is given up was in flight each time its worker died."""
    looped = [*LETTERS, letter(1, 1, b"v:1", b"crash_loop")]
    assert [] == wrong_letters(INPUTS, looped, {(0, 1): MAX_CRASHES})
    for crashes in (None, {}, {(0, 1): MAX_CRASHES - 2}, {(0, 0): MAX_CRASHES}):
        assert ["crash_loop without so many crashes: 1, such as [(0, 1)]"] == wrong_letters(INPUTS, looped, crashes)


def test_crashes_are_counted_from_what_was_begun_and_not_ended():
    """By life of one worker: two workers that each died once with a record have not looped."""

    def line(event, worker="a", offset=0):
        return {"worker": worker, "event": event, "partition": 0, "offset": offset}

    journal = [line("made"), line("begin"), line("begin", offset=1), line("end", offset=1)]
    assert {} == crashes_by_record(journal)  # it may live
    assert {(0, 0): 1} == crashes_by_record([*journal, line("made")])
    assert {(0, 0): 2} == crashes_by_record([*journal, *journal, line("made")])
    other = [line("made", "b"), line("begin", "b"), line("made", "b")]
    assert {(0, 0): 1} == crashes_by_record([*journal, line("made"), *other])


def test_a_store_that_is_not_what_its_changelog_says_is_found(tmp_path):
    """A row lost, a row too many, a row of another value: each would be handed to the next record of its key."""
    changelog = [row(0, b"1", b"sa"), row(1, b"1", b"sb"), row(3, None, b"sa"), row(7, b"1", b"sc")]
    right = {("s", b"b"): b"1"}
    wrong = [{}, {("s", b"b"): b"2"}, {**right, ("s", b"a"): b"1"}, {**right, ("s", b"c"): b"1"}]
    for number, rows in enumerate([right, *wrong]):
        store = PartitionStore(tmp_path / str(number) / "0", ("s", "t"))
        store.apply(rows, 4, 0.0)  # of the four changes it has the first three
        store.close()
        assert bool(number) == bool(wrong_stores(changelog, [tmp_path / str(number)], ("s", "t")))


def test_state_that_the_inputs_do_not_explain_is_found():
    """A changelog may agree with its store and still be wrong."""
    seen = [row(0, b"1", b"sa"), row(1, b"1", b"sb")]
    assert [] == wrong_state("ordered", INPUTS, LETTERS, seen)
    assert ["keys that the state does not have: 1, such as [b'b']"] == wrong_state("ordered", INPUTS, LETTERS, seen[:1])
    assert ["keys that nobody sent: 1, such as [b'c']"] == wrong_state(
        "ordered", INPUTS, LETTERS, [*seen, row(2, b"1", b"sc")]
    )
    timer = row(2, b"v:0", b"t" + struct.pack(">d", 1.0) + b"a")
    assert ["timers left"] == [
        sentence.partition(":")[0] for sentence in wrong_state("ordered", INPUTS, LETTERS, [*seen, timer])
    ]
    values = [row(0, b"v:3", b"sa"), row(1, b"v:1", b"sb")]
    assert [] == wrong_state("parallel", INPUTS, LETTERS, values)
    assert ["rows of another value: 1, such as [b'b']"] == wrong_state(
        "parallel", INPUTS, LETTERS, [values[0], row(1, b"v:0", b"sb")]
    )


# ---- committed offsets


@pytest.mark.parametrize("unfinished", [(), (40,), (41, 42, 300), tuple(range(40, 400, 3))])
def test_an_offset_map_is_read_by_its_description(unfinished):
    """The checker reads the bytes by itself: a fault of the product's decoder must not hide one of its encoder."""
    text = encode(OffsetMap(40, 500, unfinished), "t", 3)
    assert (500, frozenset(unfinished)) == finished(40, text)


def test_no_map_covers_nothing():
    """An offset without metadata says only what lies below it."""
    assert (40, frozenset()) == finished(40, "")
    with pytest.raises(ValueError, match="no offset map"):
        finished(40, "something else")


def sample(base, metadata="", out=10, dead=10):
    """What was seen of partition 0."""
    return Sample(0, base, metadata, {("out", 0): out, ("in-dlq", 0): dead})


def test_an_offset_that_passes_an_unfinished_record_is_found():
    """A reader who has seen the offset must find the output: a kill at this moment would lose it."""
    evidence = evidence_of("parallel", TOPICS, INPUTS, PARALLEL, LETTERS)
    assert {(0, 0), (0, 1), (0, 3), (0, 4)} == set(evidence)
    right = [sample(0), sample(1, out=1), sample(2, out=2), sample(4, out=4, dead=1), sample(6, out=6, dead=1)]
    assert [] == wrong_samples(INPUTS, evidence, right)
    for early in (sample(2, out=1), sample(4, out=3, dead=1), sample(4, out=4, dead=0)):
        assert ["committed as finished"] == [
            sentence.partition(",")[0] for sentence in wrong_samples(INPUTS, evidence, [early])
        ]


def test_a_map_that_says_finished_too_early_is_found():
    """What it says is never done again."""
    evidence = evidence_of("parallel", TOPICS, INPUTS, PARALLEL, LETTERS)
    ahead = encode(OffsetMap(1, 5, (1, 3)), "in", 0)
    assert [] == wrong_samples(INPUTS, evidence, [sample(1, ahead, out=6)])
    (found,) = wrong_samples(INPUTS, evidence, [sample(1, ahead, out=5)])
    assert "[(0, 4, 1)]" in found


def test_an_ordered_stage_shows_only_a_keys_first_record():
    """A known key leaves no trace, so nothing can be asked of it."""
    evidence = evidence_of("ordered", TOPICS, INPUTS, ORDERED, LETTERS)
    assert {(0, 0): [("out", 0, 0)], (0, 1): [("out", 0, 1)], (0, 3): [("in-dlq", 0, 0)]} == evidence


def test_an_offset_that_goes_back_is_found():
    """Only a zombie whose commit was not fenced could do that."""
    found = wrong_samples([], {}, [sample(4), sample(3)])
    assert ["committed offsets went back (partition, from, to): 1, such as [(0, 4, 3)]"] == found


def test_the_longest_standstill_is_that_of_one_partition():
    """A stage whose other partitions go on stands still for those who wait for this one."""
    rows = [
        Row(partition, 0, None, b"", {}, ms) for partition, ms in [(0, 0), (0, 900), (1, 100), (1, 4_100), (0, 950)]
    ]
    assert 4.0 == standstill_s(rows)
    assert 0.0 == standstill_s([])
