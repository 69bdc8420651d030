from __future__ import annotations

import types
from typing import Literal, get_args, get_origin, get_type_hints, is_typeddict

import fastavro
import pytest

from pipeline.contracts import models
from pipeline.contracts.schemas import read_schemas

SCHEMAS = read_schemas()
PRIMITIVES = {
    "string": str,
    "bytes": bytes,
    "fixed": bytes,
    "int": int,
    "long": int,
    "boolean": bool,
    "null": type(None),
}


def shape_of_schema(schema, named):
    """A schema as plain data, in terms of Python types."""
    if isinstance(schema, list):
        return frozenset(shape_of_schema(branch, named) for branch in schema)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    match schema if isinstance(schema, str) else schema["type"]:
        case "array":
            shape = (list, shape_of_schema(schema["items"], named))
        case "map":
            shape = (dict, str, shape_of_schema(schema["values"], named))
        case "enum":
            shape = (Literal, *schema["symbols"])
        case "record":
            fields = tuple((field["name"], shape_of_schema(field["type"], named)) for field in schema["fields"])
            shape = (schema["name"].rpartition(".")[2], schema["doc"], fields)
        case other:
            shape = PRIMITIVES[other]
    return shape


def shape_of_type(hint):
    """A type hint as the same plain data."""
    if is_typeddict(hint):
        fields = tuple((name, shape_of_type(one)) for name, one in get_type_hints(hint).items())
        return (hint.__name__, hint.__doc__, fields)
    if get_origin(hint) is types.UnionType:
        return frozenset(shape_of_type(one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return (Literal, *get_args(hint))
    if get_origin(hint) is not None:
        return (get_origin(hint), *(shape_of_type(one) for one in get_args(hint)))
    return hint


@pytest.mark.parametrize("subject", sorted(SCHEMAS))
def test_a_record_class_is_its_newest_schema(subject):
    """The type checker judges the stages by these classes: a field that one side lacks is a bug it can't see."""
    named = {}
    schema = fastavro.parse_schema(SCHEMAS[subject][-1].document, named_schemas=named)

    assert shape_of_schema(schema, named) == shape_of_type(models.RECORDS[subject])


def test_every_subject_has_a_class():
    """And none is left over."""
    assert set(SCHEMAS) == set(models.RECORDS)
