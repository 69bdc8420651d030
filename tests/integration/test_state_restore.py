"""A store is brought up to its changelog on a real broker."""

from __future__ import annotations

import threading
import uuid

import pytest

from pipeline.errors import BrokerError, ConfigurationError, InputError
from pipeline.ops.changelog_records import forget, read_record
from pipeline.state.changelog import Changelog, PlainRows
from pipeline.state.store import PartitionStore
from pipeline.state.view import changelog_key
from tests.chaos.ledger import produce, transaction
from tests.chaos.process import until

TABLES = ("s", "t")
RETENTION_S = 3_600.0
NOW_S = 10_000.0
JOIN_S = 20.0


def always():
    """The partition is still ours."""
    return True


@pytest.fixture
def log(broker, topic_factory):
    """A changelog with one partition."""
    return Changelog(
        {"bootstrap.servers": broker.bootstrap}, topic_factory(cleanup_policy="compact"), PlainRows(), RETENTION_S
    )


@pytest.fixture
def store(tmp_path):
    """A new store."""
    opened = PartitionStore(tmp_path / "0", TABLES)
    yield opened
    opened.close()


def change(broker, log, rows, ending="commit_transaction"):
    """Write changes of table s as a worker does: in a transaction."""
    with transaction(broker.bootstrap, f"writer-{uuid.uuid4().hex}") as writer:
        for key, value in rows.items():
            writer.produce(log.topic, value, changelog_key("s", key))
        writer.flush(10)
        getattr(writer, ending)(10)


def rows_of(store):
    """Everything in table s."""
    return dict(store.items("s"))


def test_a_restored_store_holds_what_was_committed_and_nothing_else(broker, log, store):
    """Aborted changes did not happen; later ones win; deletions delete; the position lies behind the last marker."""
    change(broker, log, {b"a": b"1", b"b": b"1", b"c": b"1"})
    change(broker, log, {b"a": b"aborted", b"d": b"aborted"}, "abort_transaction")
    change(broker, log, {b"b": b"2", b"c": None})
    change(broker, log, {b"e": b"aborted"}, "abort_transaction")
    restored = log.restore(store, 0, NOW_S, always)
    assert {b"a": b"1", b"b": b"2"} == rows_of(store)
    assert (5, 12, NOW_S) == (restored.records, store.applied, store.written_at)


def test_only_what_is_new_is_read(broker, log, store):
    """A restart of a worker whose disk is there costs what it has missed."""
    change(broker, log, {b"a": b"1", b"b": b"1"})
    log.restore(store, 0, NOW_S, always)
    assert 0 == log.restore(store, 0, NOW_S, always).records
    change(broker, log, {b"b": b"2"})
    assert 1 == log.restore(store, 0, NOW_S, always).records
    assert {b"a": b"1", b"b": b"2"} == rows_of(store)


@pytest.mark.parametrize(("ending", "expected"), [("commit_transaction", b"2"), ("abort_transaction", b"1")])
def test_a_restore_waits_for_what_is_open_below_the_high_watermark(broker, log, store, ending, expected):
    """Offsets may be stable while the marker of the same transaction is still missing here: its changes count."""
    change(broker, log, {b"a": b"1"})
    restored = threading.Thread(target=log.restore, args=(store, 0, NOW_S, always))
    with transaction(broker.bootstrap, f"open-{uuid.uuid4().hex}") as writer:
        writer.produce(log.topic, b"2", changelog_key("s", b"a"))
        writer.flush(10)
        restored.start()
        until(lambda: store.applied, "the part before the open transaction")
        restored.join(0.3)
        assert restored.is_alive()
        getattr(writer, ending)(10)
    restored.join(JOIN_S)
    assert not restored.is_alive()
    assert {b"a": expected} == rows_of(store)


def test_a_restore_that_an_open_transaction_holds_up_ends_and_says_where(broker, log, store):
    """A hanging one would let the partition stand still for ever, without a word and with good heartbeats."""
    change(broker, log, {b"a": b"1"})
    impatient = Changelog({"bootstrap.servers": broker.bootstrap}, log.topic, PlainRows(), RETENTION_S, 0.3)
    with transaction(broker.bootstrap, f"open-{uuid.uuid4().hex}") as writer:
        writer.produce(log.topic, b"2", changelog_key("s", b"a"))
        writer.flush(10)
        with pytest.raises(
            BrokerError, match=rf"restore of {log.topic}/0 stands at 2, 1 before its end.*headrace doctor"
        ):
            impatient.restore(store, 0, NOW_S, always)
    assert 0 == log.restore(store, 0, NOW_S, always).records
    assert {b"a": b"1"} == rows_of(store)


def test_a_store_ahead_of_its_changelog_is_rebuilt(broker, log, store):
    """The topic was made anew: what the store says is another topic's past."""
    change(broker, log, {b"a": b"1"})
    store.apply({("s", b"a"): b"old", ("s", b"x"): b"old"}, 50, NOW_S)
    log.restore(store, 0, NOW_S, always)
    assert {b"a": b"1"} == rows_of(store)


def test_a_store_with_a_change_that_was_aborted_behind_its_back_is_rebuilt(broker, log, store):
    """A hanging transaction that the worker took for committed is aborted by hand: its keys must not count as seen."""
    change(broker, log, {b"a": b"1"})
    change(broker, log, {b"a": b"2", b"b": b"2"}, "abort_transaction")
    store.apply({("s", b"a"): b"1"}, 1, NOW_S)
    store.apply({("s", b"a"): b"2", ("s", b"b"): b"2"}, 4, NOW_S)  # what it was told
    assert 1 == log.restore(store, 0, NOW_S, always).records
    assert {b"a": b"1"} == rows_of(store)


def test_a_store_whose_last_change_is_there_is_kept(broker, log, store):
    """It stands behind a marker, or before one: in both cases it goes on from there."""
    change(broker, log, {b"a": b"1"})
    store.apply({("s", b"a"): b"1", ("s", b"kept"): b"only here"}, 1, NOW_S)
    assert 0 == log.restore(store, 0, NOW_S, always).records
    change(broker, log, {b"c": b"aborted"}, "abort_transaction")
    assert 0 == log.restore(store, 0, NOW_S, always).records
    assert (5 - 1, 1) == (store.applied, store.changed)
    change(broker, log, {b"b": b"2"})
    assert 1 == log.restore(store, 0, NOW_S, always).records
    assert {b"a": b"1", b"b": b"2", b"kept": b"only here"} == rows_of(store)


def test_a_store_older_than_the_deletions_kept_is_rebuilt(broker, log, store):
    """A deletion that was compacted away would leave its row for ever."""
    change(broker, log, {b"a": b"1"})
    store.apply({("s", b"x"): b"deleted since"}, 1, NOW_S)
    log.restore(store, 0, NOW_S + RETENTION_S - 1.0, always)
    assert b"x" in rows_of(store)
    store.apply({}, 1, NOW_S)
    log.restore(store, 0, NOW_S + RETENTION_S + 1.0, always)
    assert {b"a": b"1"} == rows_of(store)


def test_a_restore_that_nobody_wants_ends_and_goes_on_later(broker, log, store):
    """The partition was called back meanwhile; what is in the store stands for the position that is with it."""
    change(broker, log, {b"%d" % number: b"v" for number in range(100)})
    assert None is log.restore(store, 0, NOW_S, lambda: False)
    assert 0 == store.applied
    with transaction(broker.bootstrap, f"open-{uuid.uuid4().hex}") as writer:
        writer.produce(log.topic, b"v", changelog_key("s", b"open"))
        writer.flush(10)
        assert None is log.restore(store, 0, NOW_S, lambda: not store.applied)
    assert 100 == len(rows_of(store))
    assert store.applied in {100, 101}  # after the last change, or after the marker of its transaction too
    assert log.restore(store, 0, NOW_S, always) is not None
    assert 100 == len(rows_of(store))


def test_rows_are_unwrapped(broker, log, store):
    """The store holds bare rows; the topic holds them under a schema."""

    class Wrapped:
        def wrap(self, row):
            return b"w" + row

        def unwrap(self, value):
            return value.removeprefix(b"w")

    log.rows = Wrapped()
    change(broker, log, {b"a": log.rows.wrap(b"1"), b"b": None})
    log.restore(store, 0, NOW_S, always)
    assert {b"a": b"1"} == rows_of(store)


def state_of(worker, partitions):
    """All rows of a worker's stores, which must not be running."""
    stores = [PartitionStore(worker.state_dir / str(number), TABLES) for number in range(partitions)]
    try:
        return [{table: dict(store.items(table)) for table in TABLES} for store in stores]
    finally:
        for store in stores:
            store.close()


def test_a_worker_that_lost_its_disk_goes_on_as_if_nothing_had_happened(stage_factory, reader, broker):
    """Its state is what it was: no key is passed on again, the numbering and the timers go on."""
    stage = stage_factory("ordered", timer_s=0.1)
    rows = [(b"k%d" % number, b"v%d" % number) for number in range(200)]
    produce(broker.bootstrap, stage.toy.inputs[0], rows[:150])
    worker = stage.worker().start()
    out = reader(stage.toy.out)
    out.until_count(300)
    worker.kill()
    before = state_of(worker, 2)
    assert 150 == sum(len(tables["s"]) for tables in before)
    worker.lose_disk()
    worker.start()
    until(lambda: len(stage.journal("opened")) == 4, "both partitions opened again")
    worker.kill()
    assert before == state_of(worker, 2)
    worker.lose_disk()
    produce(broker.bootstrap, stage.toy.inputs[0], rows)
    worker.start()
    out.until_count(400)
    firsts = [row for row in out.read_to_end() if row.value.startswith(b"first:")]
    assert 400 == len(out.rows)
    for partition in (0, 1):
        numbers = [int(row.value.split(b":")[1]) for row in firsts if row.partition == partition]
        assert list(range(1, len(numbers) + 1)) == sorted(numbers)


def foreign(broker, log, key, value=b"something"):
    """Write a record as anybody may who can write there."""
    with transaction(broker.bootstrap, f"stranger-{uuid.uuid4().hex}") as writer:
        writer.produce(log.topic, value, key)
        writer.flush(10)
        writer.commit_transaction(10)


@pytest.mark.parametrize("key", [b"a.test", b"", b"\xff\x00"])
def test_a_record_of_no_table_is_passed_over_and_counted(broker, log, store, caplog, key):
    """Somebody else's record is no change of ours: it must not stop a stage at its next start."""
    change(broker, log, {b"a": b"1"})
    foreign(broker, log, key)
    change(broker, log, {b"b": b"1"})
    restored = log.restore(store, 0, NOW_S, always)
    assert {b"a": b"1", b"b": b"1"} == rows_of(store)
    assert (2, 1) == (restored.records, restored.foreign)
    assert f"{log.topic}/0: 1 records are of no table of ours and are passed over, the first at offset 2" in caplog.text
    assert (0, 0) == log.restore(store, 0, NOW_S, always)[::2]


class PickyRows(PlainRows):
    """Refuses what does not look like a row."""

    def unwrap(self, value):
        if not value.isdigit():
            raise InputError("undecodable", "byte 0: not a row")
        return value


def test_a_row_that_can_not_be_read_ends_the_restore_with_its_place_until_it_is_forgotten(broker, log, store):
    """What it wrote over is not known: to go on would fetch a URL twice or lose one. The message leads to the cure."""
    options = {"bootstrap.servers": broker.bootstrap}
    picky = Changelog(options, log.topic, PickyRows(), RETENTION_S)
    change(broker, log, {b"a": b"1", b"b": b"1"})
    foreign(broker, log, b"sb")
    change(broker, log, {b"c": b"1"})
    for _ in range(2):  # the next start meets it again
        with pytest.raises(ConfigurationError, match=rf"{log.topic}/0/3, key b'sb': byte 0: not a row"):
            picky.restore(store, 0, NOW_S, always)
    record = read_record(options, log.topic, 0, 3)
    assert (b"sb", len(b"something")) == (record.key, record.value_bytes)
    forget(options, record)
    picky.restore(store, 0, NOW_S, always)
    assert {b"a": b"1", b"c": b"1"} == rows_of(store)
    assert 0 == picky.restore(store, 0, NOW_S, always).records


def test_a_row_that_was_written_again_after_one_that_can_not_be_read_makes_good_for_it(broker, log, store):
    """Only the newest change of a row counts."""
    foreign(broker, log, b"sa")
    change(broker, log, {b"a": b"2"})
    Changelog({"bootstrap.servers": broker.bootstrap}, log.topic, PickyRows(), RETENTION_S).restore(
        store, 0, NOW_S, always
    )
    assert {b"a": b"2"} == rows_of(store)


@pytest.mark.parametrize(("offset", "said"), [(99, "has offsets 0 to 1"), (1, "no record that is committed")])
def test_only_a_record_that_is_there_can_be_forgotten(broker, log, offset, said):
    """A mistyped place deletes nothing; a transaction's marker is no record."""
    change(broker, log, {b"a": b"1"})
    with pytest.raises(ConfigurationError, match=said):
        read_record({"bootstrap.servers": broker.bootstrap}, log.topic, 0, offset)
