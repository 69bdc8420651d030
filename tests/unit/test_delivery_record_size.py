from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.delivery.api import Output
from pipeline.delivery.dead_letters import MAX_HEADER_BYTES, cut
from pipeline.delivery.record_size import RECORD_OVERHEAD_BYTES, header_bytes, record_bytes

PART = st.one_of(st.none(), st.binary(max_size=300), st.integers(0, 70_000).map(bytes))
HEADERS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=80), st.one_of(st.binary(max_size=80), st.just(bytes(9_000)))
    ),
    max_size=150,
).map(tuple)


def encoded_bytes(output):
    """What a batch of this record takes by another encoder of the same format, with the largest time it can have."""
    builder = DefaultRecordBatchBuilder(
        2, 0, is_transactional=1, producer_id=1, producer_epoch=1, base_sequence=1, batch_size=1 << 24
    )
    headers = list(output.headers)
    assert builder.append(0, 1 << 42, key=output.key, value=output.value, headers=headers) is not None
    return len(builder.build())


@given(PART, PART, HEADERS)
@example(b"", b"", tuple(("h", b"") for _ in range(7_800)))
@example(None, None, (("\u4e00" * 5_000, b"v"),))
def test_the_size_of_a_record_is_never_underrated(key, value, headers):
    """A record that its topic refuses aborts the transaction, at each restart anew: it must be known before."""
    output = Output("t", value, key, -1, headers)
    assert encoded_bytes(output) <= record_bytes(output) <= encoded_bytes(output) + RECORD_OVERHEAD_BYTES


@given(PART, PART, HEADERS, st.integers(MAX_HEADER_BYTES, 100_000))
def test_a_letter_that_is_cut_fits_as_long_as_its_headers_do(key, value, headers, limit_bytes):
    """The headers of a letter are bounded apart; what is left of key and value always finds room."""
    letter = Output("t-dlq", value, key, -1, headers)
    excess_bytes = record_bytes(letter) - limit_bytes
    if excess_bytes > 0 and sum(header_bytes(*header) for header in headers) < limit_bytes - RECORD_OVERHEAD_BYTES - 40:
        assert encoded_bytes(cut(letter, excess_bytes)) <= record_bytes(cut(letter, excess_bytes)) <= limit_bytes
