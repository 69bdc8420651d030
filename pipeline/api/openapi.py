"""The description of the API (OpenAPI 3.1), made of the models that requests and answers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pipeline.api.messages import Accepted, Explanation, Message, ProblemDocument, TaskStatus
from pipeline.api.paths import EXPLAIN, STATUS, TASKS
from pipeline.api.problems import CONTENT_TYPE, KINDS
from pipeline.config import Api
from pipeline.tasks.model import WrittenTask

_REF: Final = "#/components/schemas/{model}"
_COMMON: Final = ("unauthorized", "rate-limited", "internal", "unavailable")
_OF_TASKS: Final = (
    "bad-request", "timeout", "key-in-use", "too-large", "too-many-tasks", "unsupported-media-type", "invalid-tasks",
    "key-reused", *_COMMON,
)  # fmt: skip
_OF_QUERIES: Final = ("bad-request", "invalid-tasks", *_COMMON)
_TEXT: Final = {"type": "string"}
_URL: Final = {"name": "url", "in": "query", "required": True, "schema": _TEXT}
_OR_URL: Final = {"name": "url", "in": "query", "description": "this or domain", "schema": _TEXT}
_OR_DOMAIN: Final = {"name": "domain", "in": "query", "description": "a host or registrable domain", "schema": _TEXT}
_CRAWL: Final = {
    "name": "crawl", "in": "query", "description": "else the default one, for explain all", "schema": _TEXT,
}  # fmt: skip


def describe(version: str, settings: Api) -> dict[str, Any]:
    """Return the document.

    Args:
        version: of Headrace.
        settings: whose classes it names.
    """
    models: list[type[BaseModel]] = [WrittenTask, Accepted, TaskStatus, Explanation, ProblemDocument]
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    classes = "; ".join(
        f"{name}: {rate.burst}, then {rate.per_s:g} a second" for name, rate in settings.classes.items()
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": version,
            "description": (
                "Submit tasks and ask what became of them. A task is one URL of one crawl: submitted again it is the "
                "same task. A user asks as much as its class allows, and a task counts as one request "
                f"({classes}); then the answer is 429 with Retry-After."
            ),
        },
        "security": [{"token": []}],
        "paths": {
            TASKS: {"post": _submit(), "delete": _withdraw()},
            STATUS: {"get": _query("status", "What has become of a task", [_URL, _CRAWL], TaskStatus)},
            EXPLAIN: {"get": _query("explain", "What the frontier knows", [_OR_URL, _OR_DOMAIN, _CRAWL], Explanation)},
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _submit() -> dict[str, Any]:
    task = {"$ref": _REF.format(model=WrittenTask.__name__)}
    schema = {"oneOf": [task, {"type": "array", "items": task, "minItems": 1}]}
    return {
        "operationId": "submit",
        "summary": "Submit one task or many",
        "description": (
            "All are accepted or none. 202 is sent when all are on the broker. After 503, or where no answer came, "
            "nobody knows: send them again, which does no harm. One task after another (JSON lines) are taken, too."
        ),
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "the same key and body get the same answer again",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {"202": _response("Accepted", Accepted), **_refusals(_OF_TASKS)},
    }


def _withdraw() -> dict[str, Any]:
    return {
        "operationId": "withdraw",
        "summary": "Take a task back",
        "description": "What waits is refused and recurring work ends; 202 as for a task that is submitted.",
        "parameters": [_URL, _CRAWL],
        "responses": {"202": _response("Accepted", Accepted), **_refusals(_OF_QUERIES)},
    }


def _query(name: str, summary: str, parameters: list[dict[str, Any]], answer: type[Message]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": _response("Known", answer), **_refusals(_OF_QUERIES)},
    }


def _response(text: str, model: type[Message]) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}},
    }


def _refusals(kinds: Sequence[str]) -> Mapping[str, Any]:
    titles: dict[int, list[str]] = {}
    for kind in kinds:
        status, title = KINDS[kind]
        titles.setdefault(status, []).append(title)
    problem = {"schema": {"$ref": _REF.format(model=ProblemDocument.__name__)}}
    refusals = {}
    for status in sorted(titles):
        refusal: dict[str, Any] = {"description": " ".join(titles[status]), "content": {CONTENT_TYPE: problem}}
        if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.CONFLICT}:
            refusal["headers"] = {"Retry-After": {"description": "whole seconds", "schema": {"type": "integer"}}}
        refusals[str(status)] = refusal
    return refusals
