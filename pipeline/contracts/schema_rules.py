"""The rules that one schema can break by itself."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from fastavro.schema import parse_schema

NAMESPACE = "crawl.v1"
UNKNOWN = "UNKNOWN"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INT_LIMIT = 2**31
_LONG_LIMIT = 2**63


class Broken(NamedTuple):
    """A broken rule: the path of the field or the name of the type, what is wrong and what to do."""

    where: str
    message: str


def check_document(document: dict[str, Any]) -> list[Broken]:
    """Check one schema, given as JSON.

    Beyond what every Avro parser refuses: a namespace, a doc on everything, enums that can grow, defaults that are
    values of their type, and nothing that lets damaged bytes keep a reader busy without end.
    """
    types: dict[str, Any] = {}
    # Parsed, every name is a full one.
    parsed = parse_schema(document, named_schemas=types)
    checker = _Checker(types)
    checker.check_type(parsed, "")
    return checker.broken


class _Checker:
    """Walks through one parsed schema; `types`: its named types by full name."""

    def __init__(self, types: dict[str, Any]) -> None:
        self.broken: list[Broken] = []
        self._types = types
        self._open: list[str] = []

    def check_type(self, schema: Any, where: str) -> None:
        if isinstance(schema, str):
            if schema in self._open:
                self._add(where, "a type inside itself: damaged bytes could nest without end; use a list of rows")
        elif isinstance(schema, list):
            self._check_union(schema, where)
        elif "logicalType" in schema:
            self._add(
                where, "a logical type, of which readers make different values: use the plain one, unit in the name"
            )
        elif schema["type"] == "array":
            if self._takes_no_bytes(schema["items"]):
                self._add(where, "items without bytes: a damaged count would keep a reader busy; use a type with bytes")
            self.check_type(schema["items"], where + "[]")
        elif schema["type"] == "map":
            self.check_type(schema["values"], where + "{}")
        elif "name" in schema:
            self._check_named(schema, where)

    def _check_union(self, branches: list[Any], where: str) -> None:
        for kind, count in Counter(_branch_kind(branch) for branch in branches).items():
            if count > 1 or kind == "union":
                self._add(where, f"a union with {count} branches of {kind}: keep one of a kind, and no union in it")
        for branch in branches:
            self.check_type(branch, where)

    def _check_named(self, schema: dict[str, Any], where: str) -> None:
        kind, full_name = schema["type"], schema["name"]
        namespace, _, name = full_name.rpartition(".")
        place = where or full_name
        if namespace != NAMESPACE:
            self._add(place, f"{kind} {name} is in the namespace {namespace!r}: put it into {NAMESPACE!r}")
        self._check_name(name, place)
        self._check_doc(schema, place, f"{kind} {name}")
        if kind == "enum" and (schema["symbols"][:1] != [UNKNOWN] or schema.get("default") != UNKNOWN):
            self._add(place, f"enum {name} can't grow: make {UNKNOWN} its first symbol and its default")
        if kind == "record":
            self._open.append(full_name)
            self._check_fields(schema, where)
            self._open.pop()

    def _check_fields(self, record: dict[str, Any], where: str) -> None:
        names = Counter(field["name"] for field in record["fields"])
        for field in record["fields"]:
            path = f"{where}.{field['name']}".lstrip(".")
            if names[field["name"]] > 1:
                self._add(path, "two fields of this name: keep one")
            self._check_name(field["name"], path)
            self._check_doc(field, path, "the field")
            self.check_type(field["type"], path)
            if "default" in field and not self._fits(field["default"], field["type"]):
                self._add(
                    path, f"default {field['default']!r} is no value of its type (the first of a union): change it"
                )

    def _check_name(self, name: str, place: str) -> None:
        if not _NAME.fullmatch(name):
            self._add(place, f"{name!r} is no Avro name: use letters, digits and _, no digit first")

    def _check_doc(self, owner: dict[str, Any], place: str, what: str) -> None:
        if not str(owner.get("doc", "")).strip():
            self._add(place, f"{what} has no doc: say what it is, with its unit")

    def _add(self, where: str, message: str) -> None:
        self.broken.append(Broken(where, message))

    def _takes_no_bytes(self, schema: Any) -> bool:
        """Whether values of the type are encoded to nothing: null, or a record of nothing else."""
        schema = self._types.get(schema, schema) if isinstance(schema, str) else schema
        if _kind(schema) == "record":
            return all(self._takes_no_bytes(field["type"]) for field in schema["fields"])
        return _kind(schema) == "null" or (_kind(schema) == "fixed" and schema["size"] == 0)

    def _fits(self, value: Any, schema: Any) -> bool:
        """Whether a default is a value of the type, as JSON has it (Avro specification, table of field defaults)."""
        schema = self._types.get(schema, schema) if isinstance(schema, str) else schema
        match _kind(schema):
            case "union":
                fits = self._fits(value, schema[0])
            case "array":
                fits = isinstance(value, list) and all(self._fits(one, schema["items"]) for one in value)
            case "map":
                fits = isinstance(value, dict) and all(self._fits(one, schema["values"]) for one in value.values())
            case "record":
                fits = isinstance(value, dict) and all(
                    self._fits(value[field["name"]], field["type"]) if field["name"] in value else "default" in field
                    for field in schema["fields"]
                )
            case "enum":
                fits = value in schema["symbols"]
            case "fixed":
                fits = isinstance(value, str) and len(value) == schema["size"]
            case primitive:
                fits = _fits_primitive(value, primitive)
        return fits


def _fits_primitive(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            fits = value is None
        case "boolean":
            fits = isinstance(value, bool)
        case "int" | "long":
            limit = _INT_LIMIT if kind == "int" else _LONG_LIMIT
            fits = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        case "float" | "double":
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        case _:
            fits = isinstance(value, str)
    return fits


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _branch_kind(branch: Any) -> str:
    """What must be there once in a union: the full name of a named type, else the kind."""
    return str(branch["name"]) if isinstance(branch, dict) and "name" in branch else _kind(branch)
