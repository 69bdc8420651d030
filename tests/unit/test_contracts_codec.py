from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.contracts import load_codec
from pipeline.errors import InputError

CODECS = load_codec()
TASKS = "crawl.tasks.v1-value"


@given(st.binary(max_size=64))
def test_arbitrary_bytes_decode_or_are_an_input_error(value):
    """A topic takes anybody's bytes: whatever they are, they cost one dead letter, never a worker."""
    try:
        CODECS.decode(TASKS, value)
    except InputError as error:
        reason = error.reason
    else:
        return
    assert reason in {"undecodable", "schema_rejected"}


def test_a_tombstone_is_no_record():
    """A null value where a record is due must be a dead letter, not a crash."""
    with pytest.raises(InputError, match="no value"):
        CODECS.decode(TASKS, None)
