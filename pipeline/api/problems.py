"""Refusals of the API: each kind with its status, all in the form of RFC 9457."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from pipeline.api.messages import ProblemDocument, ProblemError
from pipeline.api.paths import DOCS

CONTENT_TYPE: Final = "application/problem+json"

KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "bad-request": (400, "The request can't be understood."),
    "unauthorized": (401, "A token of a user is needed: Authorization: Bearer TOKEN."),
    "not-found": (404, "There is nothing here."),
    "method-not-allowed": (405, "This method is not for this place."),
    "timeout": (408, "The request did not arrive in time."),
    "key-in-use": (409, "The first request with this Idempotency-Key is under way."),
    "too-large": (413, "The body is larger than allowed."),
    "too-many-tasks": (413, "More tasks than the user's class may submit at once."),
    "unsupported-media-type": (415, "The body must be JSON or JSON lines, not compressed."),
    "invalid-tasks": (422, "Tasks are wrong; none was accepted."),
    "key-reused": (422, "The Idempotency-Key came with another body before."),
    "rate-limited": (429, "The user asks more than its class may."),
    "internal": (500, "The server has a fault."),
    "unavailable": (503, "The broker or the workers do not answer; come back later."),
}
"""Kind of problem → status and title."""


class ApiProblem(Exception):  # noqa: N818 - the name of the RFC
    """A request is refused.

    Args:
        kind: of `KINDS`.
        detail: of this request.
        retry_after_s: when it may be sent again; said in whole seconds, upwards.
        errors: what is wrong with its tasks.
        headers: more of the answer.
    """

    def __init__(
        self,
        kind: str,
        detail: str | None = None,
        *,
        retry_after_s: float | None = None,
        errors: Sequence[ProblemError] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail or kind)
        status, title = KINDS[kind]
        self.status = HTTPStatus(status)
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
        self.document = ProblemDocument(
            type=f"{DOCS}#{kind}", title=title, status=status, detail=detail, errors=list(errors) if errors else None
        )


def kind_of(status: int) -> str:
    """Return the kind that a bare status of the HTTP library stands for."""
    for kind, (known, _) in KINDS.items():
        if known == status:
            return kind
    return "bad-request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal"
