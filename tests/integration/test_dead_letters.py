"""Dead letters on a real broker: replayed and purged once each, whoever is killed and however many act at once."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from pipeline.delivery.dead_letters import dead_letter
from pipeline.errors import BrokerError, ConfigurationError, InputError
from pipeline.ops.dead_letter_origins import as_it_was
from pipeline.ops.dead_letter_reader import DeadLetterReader
from pipeline.ops.dead_letter_replay import GROUP, DeadLetterOffice, delete_before
from pipeline.ops.dead_letters import Filters, State
from tests.chaos import points
from tests.chaos.ledger import transaction
from tests.chaos.points import Action, Armed
from tests.chaos.process import LIMIT_S, until
from tests.fakes import FakeRecord

PARTITIONS = 2
LIMIT = 1_000
REACH_S = 10.0


class Desk:
    """A topic and its dead letters under a test's hands."""

    def __init__(self, bootstrap, admin):
        self.bootstrap = bootstrap
        self.options = {"bootstrap.servers": bootstrap}
        self.home = f"desk-{uuid.uuid4().hex[:12]}"
        self.dlq = f"{self.home}-dlq"
        self._offsets = Counter()
        for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (self.home, self.dlq)]).values():
            done.result(REACH_S)

    def write(
        self, *values, partition=0, error=None, headers=(), stage="toy", offset=None, timestamp_ms=1_700_000_000_000
    ):
        """Write letters of records with these values."""
        producer = Producer({**self.options, "linger.ms": 5})
        for value in values:
            at = self._offsets[partition] if offset is None else offset
            self._offsets[partition] += 1
            source = FakeRecord(self.home, value, b"k", partition, at, timestamp_ms, headers)
            letter = dead_letter(source, error or InputError("invalid_task", "no"), group="g", stage=stage)
            producer.produce(self.dlq, letter.value, letter.key, letter.partition, headers=list(letter.headers))
        assert 0 == producer.flush(REACH_S)

    def letters(self, **options):
        """Return all letters by value, done ones too."""
        with DeadLetterReader(self.options, [self.dlq], **options) as reader:
            return {letter.value: letter for part in reader.parts() for letter in reader.letters(part)}

    def states(self):
        """Return what has become of each letter."""
        return {value: letter.state for value, letter in self.letters().items()}

    def office(self, *, dry=False, **options):
        """Return an office of this topic."""
        given = {"by": "me", "transaction_timeout_s": 10.0, **options}
        return DeadLetterOffice(self.options, [self.dlq], dry=dry, **given)

    def replay(self, filters=None, limit=LIMIT, restore=as_it_was, **options):
        """Replay and settle; returns the outcome and what was told of each letter's value."""
        told = {}
        with self.office(**options) as office:
            outcome = office.replay(
                filters or Filters(), limit, restore, lambda letter, refusal: told.update({letter.value: refusal})
            )
            if not options.get("dry"):
                office.settle()
        return outcome, told

    def purge(self, filters=None, limit=LIMIT):
        """Purge; returns the outcome and the partitions whose beginning is done."""
        with self.office() as office:
            outcome = office.purge(filters or Filters(), limit, lambda letter, refusal: None)
            return outcome, office.settle()


@pytest.fixture
def desk(broker, admin):
    """A topic with dead letters; removed after the test."""
    made = Desk(broker.bootstrap, admin)
    yield made
    for done in admin.delete_topics([made.home, made.dlq]).values():
        done.result(REACH_S)


# ---- replay


def test_a_replay_writes_the_record_back_as_it_was_and_marks_its_letter(desk, reader):
    """Same key, value, partition and headers; what came back says how often and which letter it was."""
    desk.write(b"a", partition=1, headers=(("trace", b"7"), ("dlq-replays", b"1")))
    outcome, told = desk.replay()
    assert (1, {}, 0, 0) == (outcome.done, outcome.refused, outcome.left, outcome.done_before)
    assert {b"a": None} == told
    (row,) = reader(desk.home).read_to_end()
    letter = desk.letters()[b"a"]
    assert (1, b"k", b"a") == (row.partition, row.key, row.value)
    assert {"trace": b"7", "dlq-replays": b"2", "dlq-id": letter.id.encode()} == row.headers
    assert (State.REPLAYED, "me") == (letter.state, letter.done_by)


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(desk, reader):
    """The default: who looks first must not have acted."""
    desk.write(b"a", b"b")
    for _ in range(2):
        outcome, told = desk.replay(dry=True)
        assert (2, {b"a": None, b"b": None}) == (outcome.done, told)
    assert [] == reader(desk.home).read_to_end()
    assert {State.OPEN} == set(desk.states().values())


def test_a_second_replay_does_nothing(desk, reader):
    """A letter is replayed once; its marker hides it, and one that is named is refused with who did it."""
    desk.write(b"a", b"b")
    desk.replay()
    outcome, told = desk.replay()
    assert (0, 2, {}) == (outcome.done, outcome.done_before, told)
    named = Filters(ids=frozenset({desk.letters()[b"a"].id}))
    outcome, told = desk.replay(named)
    assert ({"replayed": 1}, 0) == (outcome.refused, outcome.done)
    assert "by me" in told[b"a"].message
    assert 2 == len(reader(desk.home).read_to_end())


def test_what_must_not_go_back_is_refused_with_its_reason(desk, reader):
    """A circle without end, half a record, one that nobody can read, one that is no letter."""
    desk.write(b"twice", headers=(("dlq-replays", b"2"),))
    desk.write(b"bad")
    desk.write(b"good")
    producer = Producer(desk.options)
    producer.produce(
        desk.dlq, b"cut", b"k", 0, headers=[("dlq-id", b"1"), ("dlq-reason", b"policy"), ("dlq-cut", b"9")]
    )
    producer.produce(desk.dlq, b"foreign", None, 1)
    producer.flush(REACH_S)

    def restore(letter):
        if letter.value == b"bad":
            raise InputError("undecodable", "no record")
        return as_it_was(letter)

    outcome, told = desk.replay(restore=restore)
    kinds = {value: refusal and refusal.kind for value, refusal in told.items()}
    expected = {
        b"twice": "replayed_twice",
        b"bad": "undecodable",
        b"good": None,
        b"cut": "cut",
        b"foreign": "foreign",
    }
    assert expected == kinds
    assert (1, 4) == (outcome.done, outcome.refused.total())
    assert [b"good"] == [row.value for row in reader(desk.home).read_to_end()]
    assert {State.OPEN: 4, State.REPLAYED: 1} == Counter(desk.states().values())


def test_a_limit_bounds_what_is_done_and_not_what_is_refused(desk, reader):
    """A thousand refused letters in front must not keep the rest from ever going back."""
    desk.write(b"twice", headers=(("dlq-replays", b"2"),))
    desk.write(b"a", b"b", b"c")
    outcome, _ = desk.replay(limit=2)
    assert (2, {"replayed_twice": 1}, 1) == (outcome.done, outcome.refused, outcome.left)
    outcome, _ = desk.replay(limit=2)
    assert (1, 0) == (outcome.done, outcome.left)
    assert [b"a", b"b", b"c"] == [row.value for row in reader(desk.home).read_to_end()]


def test_a_record_that_became_a_letter_again_after_its_replay_is_open(desk):
    """A group whose offsets were reset writes the same id again: the marker before it does not hold."""
    desk.write(b"a", offset=5)
    desk.replay()
    desk.write(b"a again", offset=5)
    assert {b"a": State.REPLAYED, b"a again": State.OPEN} == desk.states()


def test_two_letters_of_one_record_are_one_replay(desk, reader):
    """The same id twice means the same record: it goes back once, and both are done."""
    desk.write(b"a", b"a ", offset=5)
    outcome, _ = desk.replay()
    assert (1, {"same_record": 1}) == (outcome.done, outcome.refused)
    assert [b"a"] == [row.value for row in reader(desk.home).read_to_end()]
    assert {State.REPLAYED} == set(desk.states().values())


def test_two_records_that_share_an_id_are_two_letters(desk, reader):
    """A topic that was made anew has the same offsets again: what is done with one record must not close another's."""
    desk.write(b"before", offset=5)
    desk.write(b"after", offset=5, timestamp_ms=1_700_000_001_000)
    (name,) = {letter.id for letter in desk.letters().values()}
    outcome, told = desk.replay(Filters(ids=frozenset({name})), limit=1)
    assert (1, 1, {b"before": None}) == (outcome.done, outcome.left, told)
    assert {b"before": State.REPLAYED, b"after": State.OPEN} == desk.states()
    outcome, told = desk.replay()
    assert (1, 1, {b"after": None}) == (outcome.done, outcome.done_before, told)
    assert [b"before", b"after"] == [row.value for row in reader(desk.home).read_to_end()]


def test_a_mark_that_does_not_say_of_which_record_holds_for_its_id(desk):
    """As those of earlier releases: what they closed stays closed."""
    desk.write(b"a", offset=5)
    (name,) = {letter.id for letter in desk.letters().values()}
    producer = Producer(desk.options)
    producer.produce(desk.dlq, None, None, 0, headers=[("dlq-marker", b"purged"), ("dlq-id", name.encode())])
    assert 0 == producer.flush(REACH_S)
    assert {b"a": State.PURGED} == desk.states()


def test_what_is_committed_is_done_although_it_can_not_be_told(desk, reader, caplog):
    """A full disk behind standard output must not leave the rest undone."""
    desk.write(b"a", b"b")

    def tell(letter, refusal):
        raise OSError(28, "No space left on device")

    with desk.office() as office:
        outcome = office.replay(Filters(), LIMIT, as_it_was, tell)
        office.settle()
    assert 2 == outcome.done
    assert [b"a", b"b"] == [row.value for row in reader(desk.home).read_to_end()]
    assert "is done, and could not be told" in caplog.text


# ---- progress


def lag(offsets, desk):
    """Lag of the office's group, as any tool sees it."""
    return offsets(GROUP).lag(desk.dlq, PARTITIONS)


def test_committed_offsets_tell_lag_tools_what_is_open(desk, offsets):
    """The lowest open letter of each partition; nothing is left where everything is done, markers included."""
    desk.write(b"a", b"b", b"c")
    desk.write(b"d", partition=1)
    desk.replay(Filters(ids=frozenset({desk.letters()[b"b"].id})))
    assert {0: 0, 1: 0} == offsets(GROUP).committed(desk.dlq, PARTITIONS)
    desk.replay(Filters(ids=frozenset({desk.letters()[b"a"].id})))
    assert {0: 2, 1: 0} == offsets(GROUP).committed(desk.dlq, PARTITIONS)
    desk.replay()
    assert {0: 0, 1: 0} == lag(offsets, desk)
    desk.write(b"e", partition=1)
    assert {0: 0, 1: 1} == lag(offsets, desk)


def test_many_chunks_bring_each_record_once(desk, reader, monkeypatch):
    """A run is many transactions; a record belongs to exactly one of them."""
    monkeypatch.setattr("pipeline.ops.dead_letter_replay.CHUNK_RECORDS", 7)
    values = [b"%d" % number for number in range(50)]
    desk.write(*values[:30])
    desk.write(*values[30:], partition=1)
    outcome, _ = desk.replay()
    assert 50 == outcome.done
    assert Counter(values) == Counter(row.value for row in reader(desk.home).read_to_end())
    assert {State.REPLAYED} == set(desk.states().values())


def test_a_replay_waits_for_letters_whose_transaction_is_open(desk, reader):
    """What a worker is committing at this moment is below the high watermark: it must not be passed over."""
    desk.write(b"a")
    with transaction(desk.bootstrap, f"worker-{uuid.uuid4()}") as worker:
        worker.produce(desk.dlq, b"open", b"k", 0, headers=[("dlq-id", b"2"), ("dlq-reason", b"policy")])
        worker.flush(REACH_S)
        assert [b"a"] == list(desk.letters())  # looking waits for nobody
        with desk.office(stall_s=0.3) as office, pytest.raises(BrokerError, match="a transaction is open"):
            office.replay(Filters(), LIMIT, as_it_was, lambda letter, refusal: None)
        worker.commit_transaction(REACH_S)
    outcome, _ = desk.replay()
    assert 2 == outcome.done + outcome.done_before
    assert Counter([b"a", b"open"]) == Counter(row.value for row in reader(desk.home).read_to_end())


def test_a_replay_begins_nothing_while_an_earlier_one_hangs_where_it_writes(desk, reader):
    """The first commit would publish what hangs beside the same records again."""

    class Hanging:
        async def wait_for_end(self, limit_s):
            raise BrokerError(f"still open after {limit_s} s")

    desk.write(b"a")
    with pytest.raises(BrokerError, match="still open"):
        desk.replay(own_transactions=Hanging(), stall_s=3.0)
    assert ([], {b"a": State.OPEN}) == (reader(desk.home).read_to_end(), desk.states())


def test_a_topic_that_there_is_not_is_named(desk):
    """A wrong name must not look like a topic without letters."""
    with (
        DeadLetterReader(desk.options, ["nothing-dlq"]) as reader,
        pytest.raises(ConfigurationError, match="nothing-dlq"),
    ):
        list(reader.parts())


# ---- purge


def test_purged_letters_are_hidden_and_their_records_go_nowhere(desk, reader):
    """Purging is a mark; it can be looked at afterwards."""
    desk.write(b"a", b"b")
    desk.write(b"c", partition=1)
    outcome, done = desk.purge(Filters(ids=frozenset({letter.id for letter in desk.letters().values()} - {""})))
    assert (3, {(desk.dlq, 0), (desk.dlq, 1)}) == (outcome.done, set(done))
    assert {State.PURGED} == set(desk.states().values())
    assert [] == reader(desk.home).read_to_end()
    outcome, told = desk.replay(Filters(ids=frozenset({desk.letters()[b"a"].id})))
    assert "purged" == told[b"a"].kind


def test_deleting_removes_what_is_done_before_the_first_open_letter(desk):
    """What is open stays, and so does what is done behind it."""
    desk.write(b"a", b"b", b"c")
    desk.write(b"d", partition=1)
    letters = desk.letters()
    desk.replay(Filters(ids=frozenset({letters[b"d"].id})))
    _, done = desk.purge(Filters(ids=frozenset({letters[b"a"].id, letters[b"c"].id})))
    delete_before(desk.options, done, REACH_S)
    assert {b"b": State.OPEN, b"c": State.PURGED} == desk.states()
    _, done = desk.purge()
    delete_before(desk.options, done, REACH_S)
    assert {} == desk.states()


# ---- killed, and two at once


class Replayer:
    """A replay in a process of its own."""

    def __init__(self, desk, directory, name):
        self._name, self._directory = name, directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.replayer", desk.bootstrap, str(directory), name, desk.dlq],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def kill(self):
        """End it as a power cut would."""
        self._process.kill()
        self._process.communicate(timeout=LIMIT_S)

    def end(self):
        """Wait for its end; returns status, output and message."""
        out, err = self._process.communicate(timeout=LIMIT_S)
        return self._process.returncode, out.strip(), err.strip()


@pytest.fixture
def replayer(desk, tmp_path):
    """Start replays: `replayer("one", hold="before_commit")` waits there; all are ended after the test."""
    started = []

    def start(name, hold=""):
        if hold:
            points.arm(tmp_path, name, Armed(hold, Action.HOLD))
        started.append(Replayer(desk, tmp_path, name))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def uncommitted(reader, desk, count):
    """Wait until so many records were sent back, committed or not."""
    sent = reader(desk.home, "read_uncommitted")
    sent.until_count(count)


def test_a_replay_that_is_killed_before_its_commit_brings_nothing_and_the_next_brings_all_once(desk, reader, replayer):
    """Records and markers are one transaction, and the next run ends the one that was left open."""
    values = [b"%d" % number for number in range(20)]
    desk.write(*values)
    one = replayer("one", hold="before_commit")
    uncommitted(reader, desk, len(values))
    one.kill()
    assert {State.OPEN} == set(desk.states().values())
    assert (0, "20") == replayer("two").end()[:2]
    assert Counter(values) == Counter(row.value for row in reader(desk.home).read_to_end())
    assert {State.REPLAYED} == set(desk.states().values())


def test_two_replays_at_once_bring_each_record_once_and_the_one_overtaken_says_so(desk, reader, replayer, tmp_path):
    """Two people act on the same alert: the later one fences the earlier."""
    values = [b"%d" % number for number in range(20)]
    desk.write(*values)
    one = replayer("one", hold="before_commit")
    uncommitted(reader, desk, len(values))
    assert (0, "20") == replayer("two").end()[:2]
    points.disarm(tmp_path, "one", "before_commit")
    status, _, message = one.end()
    assert 3 == status
    assert "another replay or purge has begun" in message
    assert Counter(values) == Counter(row.value for row in reader(desk.home).read_to_end())


def test_a_replay_that_begins_after_another_has_committed_finds_its_markers(desk, reader, replayer, tmp_path):
    """Stopped after its commit and overtaken: what it has committed stays done and is not done again."""
    desk.write(b"a", b"b")
    replayer("one", hold="after_commit")
    until(lambda: points.fired(tmp_path), "the commit")
    assert (0, "0") == replayer("two").end()[:2]
    assert Counter([b"a", b"b"]) == Counter(row.value for row in reader(desk.home).read_to_end())
