from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from pipeline.errors import ConfigurationError
from pipeline.state import memory as memory_module
from pipeline.state.memory import shared_memory
from pipeline.state.store import PartitionStore
from tests.chaos.process import until

TABLES = ("s", "t")
WRITER = """
import sys
from pathlib import Path
from pipeline.state.memory import shared_memory
from pipeline.state.store import PartitionStore
store = PartitionStore(Path(sys.argv[1]), ("s", "t"))
position = 0
while True:
    position += 1
    store.apply({(table, b"key"): b"%d" % position for table in "st"}, position, 1.0)
    if position == 200:
        print("written", flush=True)
"""


@pytest.fixture
def store(tmp_path):
    """A store that is new."""
    opened = PartitionStore(tmp_path / "0", TABLES)
    yield opened
    opened.close()


def test_a_new_store_stands_for_nothing(store):
    """Position 0 makes a restore read the whole changelog."""
    assert (0, 0.0) == (store.applied, store.written_at)


def test_changes_and_their_position_outlive_the_process(tmp_path):
    """A restart reads only what the changelog has beyond the position."""
    store = PartitionStore(tmp_path / "0", TABLES)
    store.apply({("s", b"a"): b"1", ("t", b"b"): b"2", ("s", b"c"): b"3"}, 7, 12.5)
    store.apply({("s", b"a"): None}, 9, 13.5)
    store.close()
    store = PartitionStore(tmp_path / "0", TABLES)
    assert (9, 13.5) == (store.applied, store.written_at)
    assert [None, b"3", None] == store.get_many("s", [b"a", b"c", b"b"])
    assert b"2" == store.get("t", b"b")
    store.close()


def test_changes_and_their_position_are_written_as_one(tmp_path):
    """A process killed between them would skip changes, or apply them twice, for ever."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "0")], stdout=subprocess.PIPE) as writer:
        assert b"written\n" == writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    store = PartitionStore(tmp_path / "0", TABLES)
    assert store.applied >= 200
    assert b"%d" % store.applied == store.get("s", b"key") == store.get("t", b"key")
    store.close()


def test_an_interrupted_write_leaves_neither_changes_nor_position(tmp_path):
    """The same, at the one moment that counts: there is a single write, and it has everything."""

    class OneWrite:
        def __init__(self, real):
            self.real, self.writes = real, 0

        def write(self, batch):
            self.writes += 1
            self.real.write(batch)

    store = PartitionStore(tmp_path / "0", TABLES)
    real, store._db = store._db, OneWrite(store._db)
    store.apply({("s", b"a"): b"1"}, 7, 1.0)
    assert 1 == store._db.writes
    store._db = real
    store.close()
    store = PartitionStore(tmp_path / "0", TABLES)
    assert (7, b"1") == (store.applied, store.get("s", b"a"))
    store.close()


def test_a_position_alone_can_be_written(store):
    """Control records move it although nothing changed."""
    store.apply({}, 5, 1.0)
    assert 5 == store.applied


def test_a_wiped_store_is_as_new(store):
    """What can't be trusted is rebuilt from the changelog, from its beginning."""
    store.apply({("s", b"a"): b"1"}, 7, 1.0)
    store.wipe()
    assert (0, 0.0, None) == (store.applied, store.written_at, store.get("s", b"a"))
    assert [] == list(store.items("s"))
    store.apply({("s", b"b"): b"2"}, 8, 1.0)
    assert [(b"b", b"2")] == list(store.items("s"))


def test_a_second_owner_is_refused(store, tmp_path):
    """Two processes on one store would each miss what the other wrote; the message names the directory."""
    with pytest.raises(ConfigurationError, match=str(tmp_path / "0")):
        PartitionStore(tmp_path / "0", TABLES)


def test_a_directory_that_can_not_be_used_is_the_operators_to_mend(tmp_path):
    """A plain message instead of the database's own exception."""
    (tmp_path / "0").write_text("a file stands in the way")
    with pytest.raises(ConfigurationError, match="state directory"):
        PartitionStore(tmp_path / "0", TABLES)


def test_rows_come_in_the_order_of_their_bytes(store):
    """Due times are stored big-endian and read by order."""
    keys = [b"\0", b"a", b"a\0", b"b", b"\xff"]
    store.apply({("s", key): b"" for key in reversed(keys)}, 1, 1.0)
    assert keys == [key for key, _ in store.items("s")]
    assert keys[2:] == [key for key, _ in store.items("s", b"a\0")]


def test_rows_are_read_up_to_an_end(store):
    """What is asked for ends before it, so that nothing behind it is looked at."""
    store.apply({("s", key): b"" for key in (b"a", b"b", b"c")}, 1, 1.0)
    assert [b"a", b"b"] == [key for key, _ in store.items("s", b"", b"c")]
    assert [] == list(store.items("s", b"d", b"c"))


def test_the_stores_of_a_process_share_their_memory(store, tmp_path):
    """Each partition with a cache of its own would multiply the bound by the number of partitions."""
    memory = shared_memory()
    before = memory.buffers.get_usage()
    other = PartitionStore(tmp_path / "1", TABLES)
    for each in (store, other):
        each.apply({("s", b"%d" % number): b"x" * 1_000 for number in range(2_000)}, 1, 1.0)
    assert before + 4_000_000 < memory.buffers.get_usage()
    other.close()


def test_a_store_tells_what_it_takes_until_it_is_closed(tmp_path):
    """A scrape comes from another thread, at any moment: while partitions move it must find less, never fail."""
    store = PartitionStore(tmp_path / "0", TABLES)
    store.apply({("s", b"%d" % number): b"" for number in range(100)}, 1, 1.0)
    assert store in shared_memory().stores
    figures = store.figures()
    assert figures is not None
    assert {"s": 100, "t": 0} == figures.rows
    store.close()
    assert store not in shared_memory().stores
    closed = store.figures()
    assert closed is None or not closed.rows


def test_a_table_that_hardly_changes_does_not_keep_the_log_of_the_others(tmp_path, monkeypatch):
    """The log is read after a kill: a gigabyte of it would cost half a minute for each partition.

    A log goes only when no table needs it for rows that are not in files yet. All that is written here fits the buffers
    of both tables, so that nothing but the bound on the log lets the one row of the quiet table be written out.
    """
    monkeypatch.setattr(memory_module, "LOG_BYTES", 1 << 20)
    store = PartitionStore(tmp_path / "0", TABLES)

    def logs():
        return {path.name for path in (tmp_path / "0").glob("*.log")}

    store.apply({("t", b"key"): b"value"}, 1, 1.0)
    first = logs()
    for number in range(8):
        store.apply({("s", b"%d" % number): bytes(1 << 20)}, 2 + number, 1.0)

    def first_is_gone():
        store.apply({("s", b"last"): b"row"}, 10, 1.0)  # a write is what makes the database look at its log
        return not first & logs()

    until(first_is_gone, "the end of the first log")
    assert b"value" == store.get("t", b"key")
    store.close()
    store = PartitionStore(tmp_path / "0", TABLES)
    assert [b"value", b"row", 10] == [store.get("t", b"key"), store.get("s", b"last"), store.applied]
    store.close()
