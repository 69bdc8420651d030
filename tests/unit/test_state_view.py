from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView, changelog_key, from_changelog

TABLES = ("s", "t")
KEYS = st.lists(st.sampled_from([b"\0", b"a", b"b", b"\xff"]), max_size=3).map(b"".join)
VALUES = st.binary(max_size=3)
TABLE = st.sampled_from(TABLES)


class AgainstADictionary(RuleBasedStateMachine):
    """A view over a real store does what one dictionary a table would do, whatever is stored and what staged."""

    def __init__(self):
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.position = 0
        self.model = {table: {} for table in TABLES}
        self.committed = {table: {} for table in TABLES}
        self._open()

    def _open(self):
        self.store = PartitionStore(self.directory / "0", TABLES)
        self.view = StagedView(self.store, TABLES)

    def _copy(self, tables):
        return {table: dict(rows) for table, rows in tables.items()}

    @rule(table=TABLE, key=KEYS, value=VALUES)
    def put(self, table, key, value):
        self.view.put(table, key, value)
        self.model[table][key] = value

    @rule(table=TABLE, key=KEYS)
    def delete(self, table, key):
        self.view.delete(table, key)
        self.model[table].pop(key, None)

    @rule()
    def commit(self):
        self.position += 1
        self.store.apply(self.view.changes(), self.position, 0.0)
        self.view.clear()
        self.committed = self._copy(self.model)

    @rule()
    def abort(self):
        self.view.clear()
        self.model = self._copy(self.committed)

    @rule()
    def reopen(self):
        """The process was killed: what was staged is gone, what was applied is there, with its position."""
        self.store.close()
        self._open()
        assert self.position == self.store.applied
        self.model = self._copy(self.committed)

    @rule(table=TABLE, keys=st.lists(KEYS, max_size=6))
    def get_many(self, table, keys):
        assert [self.model[table].get(key) for key in keys] == self.view.get_many(table, keys)

    @rule(table=TABLE, prefix=KEYS, start=KEYS)
    def iterate(self, table, prefix, start):
        rows = sorted(self.model[table].items())
        expected = [row for row in rows if row[0].startswith(prefix) and row[0] >= start]
        assert expected == list(self.view.items(table, prefix, start))

    @invariant()
    def reads_as_one(self):
        for table in TABLES:
            assert sorted(self.model[table].items()) == list(self.view.items(table))
            for key in (b"", b"a", b"\xff\xff"):
                assert self.model[table].get(key) == self.view.get(table, key)

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.directory)


AgainstADictionary.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestAgainstADictionary = AgainstADictionary.TestCase


@pytest.mark.parametrize("key", [b"", b"k", b"\0\xff"])
def test_a_change_finds_its_table_again(key):
    """The changelog carries all tables of a partition in one topic."""
    assert ("s", key) == from_changelog(changelog_key("s", key))


def test_a_reader_stops_at_the_end_of_its_prefix(tmp_path, monkeypatch):
    """Rows of others that were deleted stand behind it: to step over a million of them costs seconds, each time."""
    store = PartitionStore(tmp_path / "0", TABLES)
    asked = []
    monkeypatch.setattr(store, "items", lambda *where: asked.append(where) or iter(()))
    view = StagedView(store, TABLES)
    for prefix in (b"a", b"a\xff", b"\xff\xff", b""):
        list(view.items("s", prefix))
    assert [b"b", b"b", None, None] == [end for _, _, end in asked]
    store.close()
