"""The steps of a fetch, told to whoever looks at one.

The parts of the way tell what they decide where they decide it; while nobody looks, that costs a look at a variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol


class Step(NamedTuple):
    """One thing that was done or decided.

    Attributes:
        name: `robots`, `gate`, `dns`, `guard`, `connection`, `request`, `response`, `body`, `limit`, `hop`, `result`.
        facts: what it rests on, as JSON takes it.
    """

    name: str
    facts: Mapping[str, Any]


class Watcher(Protocol):
    """Who looks."""

    def __call__(self, step: Step) -> None:
        """Take a step, at the moment it is done."""
        ...


_WATCHER: Final[ContextVar[Watcher | None]] = ContextVar("watcher", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` the steps of what is done inside, and in tasks that are begun there."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def is_watched() -> bool:
    """Whether somebody looks: facts that cost something are made only then."""
    return _WATCHER.get() is not None


def tell(name: str, **facts: Any) -> None:
    """Tell a step."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(Step(name, facts))
