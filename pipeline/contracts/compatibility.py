"""Can data of one schema be read with another? The schema resolution rules of the Avro specification, decided ahead.

Aliases are not followed: readers may ignore them, so a rename is a removal and an addition here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastavro.schema import parse_schema

# Writer's type to the reader's types it is promoted to (Avro specification, "Schema Resolution").
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def unreadable(reader: Any, writer: Any) -> list[str]:
    """Tell why a reader can't read everything a writer may have written.

    Args:
        reader: the schema of the one who reads, as JSON.
        writer: the schema the bytes were written with, as JSON.

    Returns:
        One sentence for each place that doesn't resolve, with the path of the field; empty where all data can be read.
    """
    return _Resolution(reader, writer).problems()


class _Resolution:
    """One pair of schemas; remembers the pairs of named types it has entered, since types may be recursive."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader_types: dict[str, Any] = {}
        self._writer_types: dict[str, Any] = {}
        self._reader = parse_schema(reader, named_schemas=self._reader_types)
        self._writer = parse_schema(writer, named_schemas=self._writer_types)
        self._entered: set[tuple[str, str]] = set()

    def problems(self) -> list[str]:
        return self._resolve(self._reader, self._writer, "")

    def _resolve(self, reader: Any, writer: Any, where: str) -> list[str]:
        reader = self._reader_types.get(reader, reader) if isinstance(reader, str) else reader
        writer = self._writer_types.get(writer, writer) if isinstance(writer, str) else writer
        if isinstance(writer, list):
            return [problem for branch in writer for problem in self._resolve(reader, branch, where)]
        if isinstance(reader, list):
            return self._resolve_branches(reader, writer, where)
        kind = _kind(writer)
        if _kind(reader) != kind:
            promoted = _kind(reader) in _PROMOTIONS.get(kind, ())
            return [] if promoted else [_at(where, f"{_name(writer)} can't be read as {_name(reader)}")]
        match kind:
            case "array":
                found = self._resolve(reader["items"], writer["items"], where + "[]")
            case "map":
                found = self._resolve(reader["values"], writer["values"], where + "{}")
            case "record" | "enum" | "fixed":
                found = self._resolve_named(kind, reader, writer, where)
            case _:
                found = []
        return found

    def _resolve_branches(self, branches: list[Any], writer: Any, where: str) -> list[str]:
        """One branch that takes the writer's type is enough; the nearest one says why none does."""
        nearest: list[str] = []
        for branch in branches:
            entered = set(self._entered)
            found = self._resolve(branch, writer, where)
            if not found:
                return []
            self._entered = entered
            resolved = self._reader_types.get(branch, branch) if isinstance(branch, str) else branch
            if _kind(resolved) == _kind(writer):
                nearest = found
        return nearest or [_at(where, f"no branch of the union takes {_name(writer)}")]

    def _resolve_named(self, kind: str, reader: dict[str, Any], writer: dict[str, Any], where: str) -> list[str]:
        pair = (reader["name"], writer["name"])
        if pair in self._entered:
            return []
        # Only the last part of a name has to match.
        if pair[0].rpartition(".")[2] != pair[1].rpartition(".")[2]:
            return [_at(where, f"{_name(writer)} can't be read as {_name(reader)}")]
        match kind:
            case "fixed":
                found = _resolve_fixed(reader, writer, where)
            case "enum":
                found = _resolve_enum(reader, writer, where)
            case _:
                self._entered.add(pair)
                found = self._resolve_fields(reader, writer, where)
        return found

    def _resolve_fields(self, reader: dict[str, Any], writer: dict[str, Any], where: str) -> list[str]:
        written = {field["name"]: field["type"] for field in writer["fields"]}
        found: list[str] = []
        for field in reader["fields"]:
            path = f"{where}.{field['name']}".lstrip(".")
            if field["name"] in written:
                found += self._resolve(field["type"], written[field["name"]], path)
            elif "default" not in field:
                found.append(_at(path, "is not in the data and has no default"))
        return found


def _resolve_fixed(reader: dict[str, Any], writer: dict[str, Any], where: str) -> list[str]:
    if reader["size"] == writer["size"]:
        return []
    return [_at(where, f"{writer['size']} bytes can't be read as {reader['size']}")]


def _resolve_enum(reader: dict[str, Any], writer: dict[str, Any], where: str) -> list[str]:
    unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
    if not unknown or "default" in reader:
        return []
    return [_at(where, f"symbols {', '.join(unknown)} are not known and the enum has no default")]


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _name(schema: Any) -> str:
    named = isinstance(schema, dict) and "name" in schema
    return f"{schema['type']} {schema['name']}" if named else _kind(schema)


def _at(where: str, problem: str) -> str:
    return f"field {where}: {problem}" if where else problem
