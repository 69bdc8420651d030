"""The description of the API for people: one page that needs nothing else, no script and no other host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from pipeline.api.paths import OPENAPI
from pipeline.api.problems import KINDS

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3rem .6rem;text-align:left;"
    "vertical-align:top}code{background:#f2f2f2;padding:0 .2rem}"
)


def page(document: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    info = document["info"]
    return "\n".join([
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])} API</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1>",
        f"<p>{escape(info['description'])}</p>",
        f'<p>The same for programs: <a href="{OPENAPI}">{OPENAPI}</a>.</p>',
        *_operations(document["paths"]),
        "<h2>Models</h2>",
        *_models(document["components"]["schemas"]),
        "<h2>Problems</h2>",
        "<table><tr><th>kind</th><th>status</th><th>what it is</th></tr>",
        *(_row(f'<code id="{kind}">{kind}</code>', str(status), text) for kind, (status, text) in KINDS.items()),
        "</table></body></html>",
    ])  # fmt: skip


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}.</p>"
            if "description" in operation:
                yield f"<p>{escape(operation['description'])}</p>"
            yield "<table><tr><th>parameter</th><th>in</th><th>what it is</th></tr>"
            for parameter in operation["parameters"]:
                text = escape(parameter.get("description", ""))
                yield _row(f"<code>{escape(parameter['name'])}</code>", parameter["in"], text)
            yield "</table><table><tr><th>status</th><th>answer</th><th>model</th></tr>"
            for status, response in operation["responses"].items():
                [content] = response["content"].values()
                yield _row(status, escape(response["description"]), _type(content["schema"]))
            yield "</table>"


def _models(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<h3 id="{name}">{name}</h3><p>{escape(schema.get("description", "").split(chr(10))[0])}</p>'
        yield "<table><tr><th>field</th><th>type</th><th>what it is</th></tr>"
        for field, row in schema.get("properties", {}).items():
            needed = "" if field not in schema.get("required", ()) else " (required)"
            yield _row(f"<code>{escape(field)}</code>{needed}", _type(row), escape(row.get("description", "")))
        yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    inner = f" of {_type(schema['items'])}" if "items" in schema else ""
    return escape(schema.get("format", schema.get("type", "any"))) + inner


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
