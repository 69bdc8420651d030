"""Acceptance case KAF-16. That librdkafka's producers agree is tested against a broker, with the integration tests."""

from __future__ import annotations

import pytest

from pipeline.web.partition import partition_for


def test_kaf_16_keys_go_where_murmur2_puts_them():
    """CRC32, librdkafka's own default, would say 7, 1, 0, 9: politeness and state rest on one owner of a host."""
    keys = [b"TT0731", b"news.example.com", b"a.example", b"www.example.org"]
    assert [2, 0, 2, 11] == [partition_for(key, 12) for key in keys]


@pytest.mark.parametrize("key", [b"", None])
def test_kaf_16_a_record_without_a_key_is_refused(key):
    """Where the owner of a host matters there must be a host."""
    with pytest.raises(ValueError, match="without a key"):
        partition_for(key, 12)
