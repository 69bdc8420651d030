"""From what went wrong to a refusal."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from pipeline.api.messages import ProblemError
from pipeline.api.problems import CONTENT_TYPE, ApiProblem, kind_of
from pipeline.errors import BrokerError
from pipeline.tasks.checking import Wrong

log = logging.getLogger(__name__)

RETRY_S: Final = 5
"""After which an unavailable broker may be asked again."""
MAX_ERRORS: Final = 1_000
"""Of an answer: a small body can hold a hundred thousand."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the handler's answer, or the refusal that its exception stands for; what is no refusal is logged."""
    try:
        return await handler(request)
    except ApiProblem as exc:
        problem = exc
    except web.HTTPException as exc:
        allowed = {name: exc.headers[name] for name in ("Allow",) if name in exc.headers}
        problem = ApiProblem(kind_of(exc.status), headers=allowed)
    except (BrokerError, TimeoutError) as exc:
        log.warning("%s %s: %s", request.method, request.path, str(exc) or type(exc).__name__)
        unknown = "whether the tasks are accepted is not known: send them again" if request.method == "POST" else None
        problem = ApiProblem("unavailable", unknown, retry_after_s=RETRY_S)
    except Exception:
        log.exception("%s %s", request.method, request.path)
        problem = ApiProblem("internal")
    headers = {"Content-Type": CONTENT_TYPE, **problem.headers}
    return web.Response(status=problem.status, body=problem.document.body(), headers=headers)


def invalid(wrong: Sequence[Wrong]) -> ApiProblem:
    """Return the refusal of tasks that are wrong; of a body without a task where there are none."""
    errors = [
        ProblemError(
            task=one.number,
            line=problem.line,
            field=problem.field,
            detail=problem.text,
            nearest=problem.nearest or None,
        )
        for one in wrong
        for problem in one.problems
    ]
    detail = None if errors else "there is no task in the body"
    if len(errors) > MAX_ERRORS:
        detail = f"{len(errors)} errors, of which these are the first {MAX_ERRORS}"
    return ApiProblem("invalid-tasks", detail, errors=errors[:MAX_ERRORS])
