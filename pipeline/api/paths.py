"""Where things are on the API's host."""

from __future__ import annotations

from typing import Final

TASKS: Final = "/v1/tasks"
STATUS: Final = "/v1/status"
EXPLAIN: Final = "/v1/explain"
OPENAPI: Final = "/openapi.json"
DOCS: Final = "/docs"
