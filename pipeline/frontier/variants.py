"""Variants: how many URLs there are that may be one page: queries of one path, sessions of one URL."""

from __future__ import annotations

import hashlib
import re
import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from pipeline.config import Frontier
from pipeline.delivery.api import StateView
from pipeline.frontier.records import SEPARATOR, VARIANTS
from pipeline.frontier.refusals import Refusal
from pipeline.frontier.seen import SeenTable

MAX_SESSIONS: Final = 2
"""Session identifiers under which one URL is fetched: a site that writes them into links offers each page anew."""
REMEMBERED: Final = 10_000
"""Counts in memory, the last used ones: about 2 MB per partition."""
WRITES_PER_LIMIT: Final = 32
"""A count is written this often until its limit is reached: a path with few queries costs no row."""
HASH_BYTES: Final = 8
_COUNT: Final = struct.Struct(">QI")
"""A `_Count`; older rows end after the number."""

_QUERIES: Final = b"q"
_VALUES: Final = b"v"
_SESSIONS: Final = b"s"
_MATRIX_PARAMETER: Final = re.compile(r";([A-Za-z_]+=[^/?;&]*)")
_COOKIELESS_SESSION: Final = re.compile(r"/\([A-Za-z]\([A-Za-z0-9]{16,64}\)\)")
"""ASP.NET, cookieless sessions: /(S(lit3py55t21z5v55vlm25s55))/."""
_SERVLET_SESSION: Final = "jsessionid"
"""Java Servlet 4.0, 7.1.3: as a parameter of the path it is a session whatever its value."""
_SESSION_NAMES: Final = frozenset({
    "aspsessionid", "cfid", "cftoken", "jsessionid", "oscsid", "phpsessid", "s", "sess_id", "session", "session_id",
    "sessionid", "sid",
})  # fmt: skip
"""Sites use each for other things, too (`?sessionid=77`, a talk): only a value that looks drawn by lot counts."""
_DRAWN: Final = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-zA-Z]*[a-zA-Z])[A-Za-z0-9]{20,128}")


class _Count(NamedTuple):
    """How many URLs were claimed since a UTC day, days since the epoch."""

    number: int
    began_day: int


class Variants:
    """Counts of claimed URLs by what they have in common.

    The counts are a safeguard with a wide limit, not a budget: memory leads the state by less than a thirty-second of
    the limit, and this much may be lost when the partition is opened anew. So a limit is never lower than configured.

    A count that began before the horizon of the seen table begins anew: what it counted may be forgotten there, and
    would be counted again when it is claimed again. Within one horizon no URL is claimed twice.

    Args:
        view: the partition's state.
        settings: limits of the queries of a path.
        seen: the seen table; its day and its horizon hold.
    """

    def __init__(self, view: StateView, settings: Frontier, seen: SeenTable) -> None:
        self._view = view
        self._seen = seen
        self._settings = settings
        self._counts: OrderedDict[bytes, _Count] = OrderedDict()

    def refusal(self, crawl: str, href: str) -> Refusal | None:
        """Return why one more URL like this is a trap: `parameter_explosion`, `session_id`; None where it isn't."""
        for kind, common in _commons(href):
            count, limit = self._count(_key(crawl, kind, common)).number, _limit(kind, self._settings)
            if count >= limit:
                return Refusal("session_id" if kind == _SESSIONS else "parameter_explosion", limit, count + 1, common)
        return None

    def add(self, crawl: str, href: str) -> None:
        """Count a canonical URL that is claimed for the first time."""
        for kind, common in _commons(href):
            key = _key(crawl, kind, common)
            count = self._count(key)
            count = count._replace(number=count.number + 1)
            self._remember(key, count)
            if count.number % max(1, _limit(kind, self._settings) // WRITES_PER_LIMIT) == 0:
                self._view.put(VARIANTS, key, _COUNT.pack(*count))

    def _count(self, key: bytes) -> _Count:
        count = self._counts.get(key)
        if count is None:
            stored = self._view.get(VARIANTS, key)
            count = _Count(*_COUNT.unpack(stored.ljust(_COUNT.size, b"\0"))) if stored else None
        if count is None or count.began_day < self._seen.oldest_day:
            count = _Count(0, self._seen.today)
        self._remember(key, count)
        return count

    def _remember(self, key: bytes, count: _Count) -> None:
        self._counts[key] = count
        self._counts.move_to_end(key)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)


def max_queries(href: str, settings: Frontier) -> int | None:
    """Return how many queries like that of a canonical URL its path may have; None where it has none."""
    return next((_limit(kind, settings) for kind, _ in _commons(href) if kind != _SESSIONS), None)


def without_session(href: str) -> str | None:
    """Return a canonical URL without its session identifiers, None where it has none."""
    address, mark, query = href.partition("?")
    bare = address
    if ";" in address:
        bare = _MATRIX_PARAMETER.sub(_unless_session, bare)
    if "(" in address:
        bare = _COOKIELESS_SESSION.sub("", bare)
    fields = query.split("&") if query else []
    kept = [field for field in fields if not _is_session(field)]
    if bare == address and len(kept) == len(fields):
        return None
    return bare + mark + "&".join(kept) if kept else bare


def _is_session(field: str) -> bool:
    name, _, value = field.partition("=")
    return name.lower() in _SESSION_NAMES and _DRAWN.fullmatch(value) is not None


def _unless_session(parameter: re.Match[str]) -> str:
    is_servlet = parameter[1].partition("=")[0].lower() == _SERVLET_SESSION
    return "" if is_servlet or _is_session(parameter[1]) else parameter[0]


def _commons(href: str) -> Iterator[tuple[bytes, str]]:
    """Return what a URL has in common with others that may be the same page, by kind.

    A query of a single field names a page, as a path would (`item?id=7`); views multiply where fields combine.
    """
    if "?" in href or ";" in href or "(" in href:
        bare = without_session(href)
        if bare is not None:
            yield _SESSIONS, bare
        path, _, query = (href if bare is None else bare).partition("?")
        count = sum(1 for field in query.split("&") if field)
        if count:
            yield _VALUES if count == 1 else _QUERIES, path


def _limit(kind: bytes, settings: Frontier) -> int:
    if kind == _SESSIONS:
        return MAX_SESSIONS
    return settings.max_values_per_path if kind == _VALUES else settings.max_queries_per_path


def _key(crawl: str, kind: bytes, common: str) -> bytes:
    digest = hashlib.blake2b(common.encode(), digest_size=HASH_BYTES).digest()
    return crawl.encode() + SEPARATOR + kind + digest
