"""A task as people write it: in a file, on the command line, in a request. One model for all of them."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from pipeline.web.url import MAX_URL_BYTES, RefusedUrl, canonicalize

MAX_WRITTEN_CHARACTERS: Final = 8_192
"""Of a URL before it is made canonical: what is dropped then (tracking parameters, a fragment) may be longer."""
MAX_DEPTH: Final = 1_000
MAX_INTERVAL_S: Final = 366 * 86_400.0
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_HEADERS_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_SECRET: Final = re.compile(r"(?=[^_.-]*[0-9])(?=[^_.-]*[A-Za-z])[A-Za-z0-9]{20,}")
"""Letters and digits in one long piece: no name that a person gives."""


class Limits(NamedTuple):
    """What the configuration allows a task.

    Attributes:
        max_url_bytes: longest canonical URL.
        min_interval_s: shortest pause between polls of recurring work, seconds.
    """

    max_url_bytes: int = MAX_URL_BYTES
    min_interval_s: float = 1.0


def _limits(info: ValidationInfo) -> Limits:
    return info.context if isinstance(info.context, Limits) else Limits()


def _usable_url(text: str, info: ValidationInfo) -> str:
    text = text.strip()
    if any(character < " " or character == "\x7f" for character in text):
        # The URL Standard drops tabs and line ends; in a task they are the trace of a slip, such as a quote left open.
        raise PydanticCustomError("url", "a control character or a line end is inside")
    try:
        text.encode()
        canonicalize(text, max_bytes=_limits(info).max_url_bytes)
    except UnicodeEncodeError:
        raise PydanticCustomError("url", "half of a surrogate pair is no character") from None
    except RefusedUrl as refused:
        message = str(refused).removeprefix(f"{refused.field}: ").replace("{", "{{").replace("}", "}}")
        raise PydanticCustomError("url", message) from None
    return text


def _moment(value: object) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if not (isinstance(value, str) and _RFC3339.fullmatch(value.strip())):
        raise PydanticCustomError("not_before", "not of that form")
    try:
        moment = datetime.fromisoformat(value.strip().upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise PydanticCustomError("not_before", "no such time") from None
    if moment.year < 1970:
        raise PydanticCustomError("not_before", "before 1970")
    return moment


def _headers_name(name: str) -> str:
    if not _HEADERS_NAME.fullmatch(name) or _SECRET.search(name):
        # The value itself is never repeated: it may be a password.
        raise PydanticCustomError("headers", "looks like a header or a secret")
    return name


def _long_enough(interval_s: float, info: ValidationInfo) -> float:
    floor_s = _limits(info).min_interval_s
    if interval_s < floor_s:
        raise PydanticCustomError("interval_s", "shorter than {floor} s", {"floor": f"{floor_s:g}"})
    return interval_s


_MOMENT_SCHEMA: Final[dict[str, Any]] = {"type": "string", "format": "date-time"}

Name = Annotated[str, Field(pattern=NAME)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]


class WrittenTask(BaseModel):
    """One page to fetch. A field that is left out, or null, has its default.

    Raises:
        pydantic.ValidationError: `pipeline.tasks.problems` tells it by field. The validation's context is a `Limits`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    url: Annotated[str, Field(max_length=MAX_WRITTEN_CHARACTERS), AfterValidator(_usable_url)] = Field(
        description="what to fetch: an absolute http or https URL"
    )
    crawl: Name | None = Field(
        None,
        description="crawl it belongs to, whose definition it waits for: up to 128 letters, digits and . _ -",
    )
    source: Name | None = Field(
        None, description="name of the source or sender, such as news.wheels: up to 128 letters, digits and . _ -"
    )
    parser: Name | None = Field(
        None, description="name of the parser, else chosen by source and content: up to 128 letters, digits and . _ -"
    )
    priority: Annotated[int, Field(ge=1, le=5)] | None = Field(
        None, description="what comes first: a whole number from 1 (urgent) to 5 (bulk)"
    )
    timeout_s: Annotated[Seconds, Field(ge=0.1, le=300)] | None = Field(
        None, description="time for the whole fetch: a number of seconds from 0.1 to 300"
    )
    concurrency: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="most requests to its domain under way when it is to start: a whole number from 1 to 100"
    )
    depth: Annotated[int, Field(ge=0, le=MAX_DEPTH)] | None = Field(
        None, description="links followed from it, else the crawl decides: a whole number from 0 to 1000"
    )
    interval_s: Annotated[Seconds, Field(le=MAX_INTERVAL_S), AfterValidator(_long_enough)] | None = Field(
        None,
        description="pause between polls of recurring work, else it is done once: a number of seconds, up to 366 days",
    )
    not_before: Annotated[datetime, BeforeValidator(_moment), WithJsonSchema(_MOMENT_SCHEMA)] | None = Field(
        None, description="earliest start: a time of RFC 3339 with its zone, such as 2026-05-04T06:30:00Z"
    )
    render: bool = Field(False, description="whether the page needs a browser: true or false")
    headers: Annotated[str, AfterValidator(_headers_name)] | None = Field(
        None, description="request headers of the configuration, by reference: a name of up to 40 characters, no value"
    )


TEXT_FIELDS: Final = frozenset({"url", "crawl", "source", "parser", "not_before", "headers"})
FIELDS: Final[tuple[str, ...]] = tuple(WrittenTask.model_fields)


def nearest_field(name: str) -> str:
    """Return the field whose name is most like `name`."""
    return difflib.get_close_matches(name[:64].lower(), FIELDS, n=1, cutoff=0.0)[0]


def wanted(field: str) -> str:
    """Return what a field takes, as a message says it."""
    return (WrittenTask.model_fields[field].description or "").partition(": ")[2]
