"""Avro contracts: codec, lock, registry."""
