"""Held tasks: waiting, but for a budget or a definition; they stand apart, so that they block no domain."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from pipeline.delivery.api import StateView
from pipeline.errors import BugError
from pipeline.frontier.records import (
    HELD,
    PLACE_BYTES,
    SEPARATOR,
    Place,
    PlaceKind,
    Task,
    pack_task,
    place_from_key,
    place_key,
    unpack_task,
)


class Group(NamedTuple):
    """Tasks held by the same thing.

    Attributes:
        kind: what holds them.
        crawl: in which crawl.
        domain: for `HELD_DOMAIN` and `HELD_DAY` the domain, else empty.
    """

    kind: PlaceKind
    crawl: str
    domain: str = ""


BY_DOMAIN: Final = frozenset({PlaceKind.HELD_DOMAIN, PlaceKind.HELD_DAY})
"""What holds the tasks of one domain alone."""
_UNKNOWN: Final = frozenset({PlaceKind.HELD_UNKNOWN, PlaceKind.RAW_UNKNOWN})


class HeldTable:
    """Rows of held tasks; in memory the groups there are.

    Args:
        view: the partition's state.

    Attributes:
        groups: that hold something, or did when they were last looked at; without tasks that go on one by one.
    """

    def __init__(self, view: StateView) -> None:
        self._view = view
        self.groups: set[Group] = set()
        self._heads: dict[Group, bytes] = {}
        """End of a key before which nothing stands in a group: the store must not step over all that was let go."""
        start = b""
        while (row := next(view.items(HELD, b"", start), None)) is not None:
            prefix = row[0][:-PLACE_BYTES]
            self._note(_group(prefix))
            start = prefix[:-1] + b"\x01"

    def put(self, task: Task, place: Place) -> None:
        """Write a held task, or what has changed in it."""
        self._put(_group_of(task, place.kind), place, pack_task(task))

    def put_raw(self, crawl: str, place: Place, record: bytes) -> None:
        """Keep a record of an unknown crawl as it came."""
        self._put(Group(PlaceKind.RAW_UNKNOWN, crawl), place, record)

    def read(self, task_domain: str, crawl: str, place: Place) -> Task:
        """Return a held task.

        Raises:
            BugError: there is none at the place.
        """
        group = Group(place.kind, crawl, task_domain if place.kind in BY_DOMAIN else "")
        row = self._view.get(HELD, held_prefix(group) + place_key(place))
        if row is None:
            raise BugError(f"nothing is held at {place} in {group}")
        return unpack_task(row)

    def remove(self, task: Task, place: Place) -> None:
        """Take a held task away."""
        self._view.delete(HELD, held_prefix(_group_of(task, place.kind)) + place_key(place))

    def remove_raw(self, crawl: str, place: Place) -> None:
        """Take a kept record away."""
        self._view.delete(HELD, held_prefix(Group(PlaceKind.RAW_UNKNOWN, crawl)) + place_key(place))

    def first(self, group: Group, count: int) -> list[tuple[Place, bytes]]:
        """Return up to `count` rows of a group with their places, in order; an empty group is forgotten."""
        rows: list[tuple[Place, bytes]] = []
        if count > 0:
            prefix = held_prefix(group)
            items = self._view.items(HELD, prefix, prefix + self._heads.get(group, b""))
            rows = [(place_from_key(group.kind, key), row) for key, row in islice(items, count)]
            if rows:
                self._heads[group] = place_key(rows[0][0])
            else:
                self.groups.discard(group)
                self._heads.pop(group, None)
        return rows

    def waits_for_definition(self) -> bool:
        """Return whether anything is held for a crawl's definition."""
        return any(group.kind in _UNKNOWN for group in self.groups)

    def _put(self, group: Group, place: Place, row: bytes) -> None:
        end = place_key(place)
        self._view.put(HELD, held_prefix(group) + end, row)
        self._note(group)
        if end < self._heads.get(group, b""):
            self._heads[group] = end

    def _note(self, group: Group) -> None:
        if group.kind is not PlaceKind.HELD_PARSE:
            self.groups.add(group)


def _group_of(task: Task, kind: PlaceKind) -> Group:
    return Group(kind, task.crawl, task.domain if kind in BY_DOMAIN else "")


def held_prefix(group: Group) -> bytes:
    """Return how the keys of a group's rows in `HELD` begin; lane, time and sequence follow."""
    head = bytes((group.kind,)) + group.crawl.encode() + SEPARATOR
    return head + group.domain.encode() + SEPARATOR if group.kind in BY_DOMAIN else head


def _group(prefix: bytes) -> Group:
    kind = PlaceKind(prefix[0])
    crawl, _, domain = prefix[1:-1].partition(SEPARATOR)
    return Group(kind, crawl.decode(), domain.decode())
