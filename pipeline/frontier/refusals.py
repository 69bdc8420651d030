"""Refusals: why a URL is not fetched, with the limit and the value that decided."""

from __future__ import annotations

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why a URL is refused.

    Attributes:
        reason: machine-readable; what is counted and what the seen table keeps.
        limit: the number that was passed, None where none is.
        value: the URL's own number, None where none is.
        detail: the rule, the parameter or the part of the URL that decided, for people.
    """

    reason: str
    limit: int | None = None
    value: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        """Say it in a line, such as `depth: 5, at most 3`."""
        said = [] if self.value is None else [str(self.value)]
        if self.limit is not None:
            said.append(f"at most {self.limit}")
        numbers = ", ".join(said)
        return ": ".join(part for part in (self.reason, numbers, self.detail) if part)
