"""Which partition a key belongs to: the Java client's rule, kept by every producer of the pipeline.

librdkafka's own default is CRC32: its producers are set to `partitioner=murmur2_random`, which gives the same numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of a key, with the seed that Kafka's clients use.

    Returns:
        0 to 2^32 - 1; Java shows the same bits as a signed number.
    """
    length = len(key)
    hashed = _SEED ^ length
    body = length & ~3
    for start in range(0, body, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ word
    if body != length:
        hashed = (hashed ^ int.from_bytes(key[body:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@lru_cache(maxsize=65_536)
def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition of a key, 0 to `partitions` - 1, as the Java client's default partitioner does.

    Raises:
        ValueError: the key is empty or absent (absent ones are spread over all partitions, empty ones gather on one: a
            domain would not have its owner), or `partitions` is below 1.
    """
    if not key:
        raise ValueError("a record without a key belongs to no domain, so to no partition")
    if partitions < 1:
        raise ValueError(f"partitions must be at least 1, not {partitions}")
    return (murmur2(key) & _POSITIVE) % partitions
