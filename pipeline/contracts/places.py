"""Which field of a record is at fault. Slow, and only asked once something has failed: fastavro doesn't say."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import parse_schema

# What fastavro raises for bytes or values that don't fit; a shortage of memory is not among it.
UNFIT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError)


class Places:
    """The fields of a record schema, each as a schema of its own.

    Args:
        document: the schema as JSON, a record.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        named_types: dict[str, Any] = {}
        namespace = document.get("namespace", "")
        # A type is defined in the first field that has it and only named in later ones: all share the definitions.
        self._fields: list[tuple[str, Any]] = [
            (
                field["name"],
                parse_schema(
                    {"type": "record", "name": f"Field{number}", "namespace": namespace, "fields": [field]},
                    named_schemas=named_types,
                ),
            )
            for number, field in enumerate(document["fields"])
        ]

    def unreadable_field(self, body: bytes) -> str:
        """Return the first field that can't be read from a body; empty where each can."""
        source = io.BytesIO(body)
        for name, schema in self._fields:
            try:
                schemaless_reader(source, schema, None)
            except UNFIT:
                return name
        return ""

    def unwritable_field(self, record: Mapping[str, Any]) -> str:
        """Return the first field that is missing from a record or can't be written; empty where each can."""
        for name, schema in self._fields:
            try:
                schemaless_writer(io.BytesIO(), schema, {name: record[name]} if name in record else {})
            except UNFIT:
                return name
        return ""
