"""The group member's identity in the byte form that `Producer.send_offsets_to_transaction` takes.

The form is librdkafka's `rd_kafka_consumer_group_metadata_write` (rdkafka_cgrp.c), private to a process:
"CGMDv2:", generation (native 32-bit), group NUL, member NUL, then 1 for "no instance" or 0, instance NUL.
`check_layout` compares it with what librdkafka itself writes and must be called before the first use.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from confluent_kafka import Consumer

from pipeline.errors import ConfigurationError

_MAGIC = b"CGMDv2:"
_CANARY_GROUP = "canary"


class Identity(NamedTuple):
    """Who commits: group, generation, member id and, for a static member, its instance id (KIP-447, KIP-345)."""

    group: str
    generation: int
    member: str
    instance: str | None = None

    def __bytes__(self) -> bytes:
        instance = b"\x01" if self.instance is None else b"\0" + self.instance.encode() + b"\0"
        return (
            _MAGIC
            + struct.pack("=i", self.generation)
            + self.group.encode()
            + b"\0"
            + self.member.encode()
            + b"\0"
            + instance
        )

    @property
    def fenceable(self) -> bool:
        """Whether the broker checks it: generation -1 or an empty member id would be accepted unfenced."""
        return self.generation > 0 and bool(self.member)


def check_layout() -> None:
    """Refuse to run with a librdkafka that writes another byte form. Works offline.

    Raises:
        ConfigurationError: the installed confluent-kafka does not fit.
    """
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": _CANARY_GROUP, "log_level": 0})
    try:
        written = consumer.consumer_group_metadata()
    finally:
        consumer.close()
    if written != bytes(Identity(_CANARY_GROUP, -1, "")):
        raise ConfigurationError(
            "confluent-kafka writes group metadata in an unknown form; install the version of requirements.lock"
        )
