"""Avro contracts: what travels in the topics.

`codec` is what workers use: bytes to records and back by `lock` (ids) and `schemas` (the `avro` folder); `models` has
the records as types. `rules` judges a change of the folder. `registry` and `registration` talk to a schema registry,
for `headrace schemas` alone.
"""

from __future__ import annotations

from pipeline.contracts.codec import Codecs, Decoder, Encoder, load_codec

__all__ = ["Codecs", "Decoder", "Encoder", "load_codec"]
