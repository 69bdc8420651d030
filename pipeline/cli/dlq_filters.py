"""Which dead letters a command means: the filters of `headrace dlq`, each with a message that names what is right."""

from __future__ import annotations

import difflib
import re
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

import click

from pipeline.delivery.dead_letters import REASONS
from pipeline.ops.dead_letters import Filters
from pipeline.topics import DLQ_SUFFIX, STAGES, TABLE

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_LIMIT: Final = 1_000
UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGE: Final = re.compile(r"(\d{1,9})([smhd])")
_MS: Final = 1_000
_HOMES: Final = tuple(topic.name for topic in TABLE if topic.dead_letters)
_INPUTS: Final = tuple(topic.name for topic in TABLE if topic.owner)


class Selection(NamedTuple):
    """What the filters of a command say.

    Attributes:
        topics: names of the `-dlq` topics to be read.
        filters: which of their letters.
        limit: most letters.
    """

    topics: tuple[str, ...]
    filters: Filters
    limit: int


class OneOf(click.ParamType):
    """A name of a closed list; any other is refused with the nearest right one.

    Args:
        name: what it is, for messages.
        names: the list.
    """

    def __init__(self, name: str, names: Iterable[str]) -> None:
        self.name = name
        self._names = tuple(names)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name itself."""
        text = str(value)
        if text not in self._names:
            near = difflib.get_close_matches(text, self._names, n=1, cutoff=0.0)
            self.fail(f"no {self.name} {text!r}; the nearest is {near[0]!r}", param, ctx)
        return text


class Moment(click.ParamType):
    """A time, RFC 3339 with its zone, or an age such as 90s, 15m, 2h or 3d; milliseconds since the epoch."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds since the epoch."""
        text = str(value)
        age = _AGE.fullmatch(text)
        if age:
            return int((time.time() - int(age[1]) * UNIT_S[age[2]]) * _MS)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is neither a time such as 2026-05-04T06:30:00Z nor an age such as 2h or 3d", param, ctx
            )
        if moment.tzinfo is None:
            self.fail(f"{text!r} has no zone; a time in UTC looks like 2026-05-04T06:30:00Z", param, ctx)
        return int(moment.timestamp() * _MS)


class LetterId(click.ParamType):
    """An id of a dead letter."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id as letters carry it."""
        try:
            return str(uuid.UUID(str(value)))
        except ValueError:
            self.fail(f"{value!r} is no id of a dead letter; `headrace dlq list` shows them", param, ctx)


class Origin(click.ParamType):
    """A place from which a record was read: TOPIC/PARTITION or TOPIC/PARTITION/OFFSET."""

    name = "origin"
    _topic = OneOf("input topic", _INPUTS)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, int | None]:
        """Return topic, partition and offset, None for any offset."""
        if isinstance(value, tuple):
            return value
        topic, *numbers = str(value).split("/")
        if len(numbers) not in {1, 2} or not all(number.isascii() and number.isdigit() for number in numbers):
            self.fail(f"{value!r} is not TOPIC/PARTITION or TOPIC/PARTITION/OFFSET", param, ctx)
        self._topic.convert(topic, param, ctx)
        return topic, int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else None


_OPTIONS: Final = (
    click.option(
        "--topic",
        "topics",
        multiple=True,
        type=OneOf("topic with dead letters", (*_HOMES, *(name + DLQ_SUFFIX for name in _HOMES))),
        metavar="TOPIC",
        help="Topic whose dead letters are meant; may be repeated.  [default: all]",
    ),
    click.option("--reason", "reasons", multiple=True, type=OneOf("reason", sorted(REASONS)), metavar="REASON"),
    click.option("--stage", "stages", multiple=True, type=OneOf("stage", STAGES), metavar="STAGE"),
    click.option("--domain", "domains", multiple=True, metavar="KEY", help="Record key; links and grants have none."),
    click.option(
        "--since", type=Moment(), metavar="TIME", help="Written then or later: RFC 3339, or an age such as 2h."
    ),
    click.option("--until", type=Moment(), metavar="TIME", help="Written before."),
    click.option("--origin", type=Origin(), metavar="TOPIC/PARTITION[/OFFSET]", help="Where the record was read."),
    click.option("--id", "ids", multiple=True, type=LetterId(), metavar="ID"),
    click.option("--limit", type=click.IntRange(1), default=DEFAULT_LIMIT, show_default=True, help="Most letters."),
)


def filter_options(command: Command) -> Command:
    """Add the filters; the command takes them as keywords and hands them to `selection`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def selection(given: dict[str, Any]) -> Selection:
    """Return what the filters mean.

    Args:
        given: the keywords that `filter_options` adds to a command.

    Raises:
        UsageError: no letter could fulfil them.
    """
    since_ms, until_ms = given["since"], given["until"]
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--since is not before --until")
    homes = {name.removesuffix(DLQ_SUFFIX) for name in given["topics"]} or set(_HOMES)
    origin_topic, origin_partition, origin_offset = given["origin"] or (None, None, None)
    filters = Filters(
        ids=frozenset(given["ids"]),
        reasons=frozenset(given["reasons"]),
        stages=frozenset(given["stages"]),
        keys=frozenset(domain.encode() for domain in given["domains"]),
        since_ms=since_ms,
        until_ms=until_ms,
        origin_topic=origin_topic,
        origin_partition=origin_partition,
        origin_offset=origin_offset,
    )
    return Selection(tuple(name + DLQ_SUFFIX for name in _HOMES if name in homes), filters, given["limit"])
