"""Avro contracts: codec, lock, registry."""

from __future__ import annotations

from pipeline.contracts.codec import Codecs, Decoder, Encoder, load_codec

__all__ = ["Codecs", "Decoder", "Encoder", "load_codec"]
