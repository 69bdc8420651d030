"""From a written task to the record of the contract, its topic and its key; and the id that makes two wishes one."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from pipeline.contracts.models import Task
from pipeline.tasks.model import Limits, WrittenTask
from pipeline.topics import TASKS, TASKS_URGENT, Topic
from pipeline.web.domains import registrable_domain
from pipeline.web.url import canonicalize

ID_BYTES: Final = 16
URGENT_PRIORITY: Final = 1
ORDINARY_PRIORITY: Final = 3


class Defaults(NamedTuple):
    """What a task has that does not say.

    Attributes:
        crawl: id.
        source: name of the sender.
        priority: 1 to 5.
        withdraw: whether the task is taken back: then this is true of all.
    """

    crawl: str
    source: str
    priority: int = ORDINARY_PRIORITY
    withdraw: bool = False


class Wish(NamedTuple):
    """A task that is ready to be written.

    Attributes:
        id: of the task: `task_id`.
        url: canonical.
        topic: the urgent one or the other.
        key: registrable domain.
        record: without the time, which is known when it is written.
    """

    id: str
    url: str
    topic: Topic
    key: bytes
    record: Task


def task_id(crawl: str, url: str) -> str:
    """Return the id of a task: 32 hexadecimal digits, the 16-byte BLAKE2b (RFC 7693) of crawl, NUL and URL.

    Within a crawl a URL is one task, however often and by whomever it is submitted.

    Args:
        crawl: id of the crawl.
        url: canonical.
    """
    return hashlib.blake2b(f"{crawl}\0{url}".encode(), digest_size=ID_BYTES).hexdigest()


def topic_of(priority: int) -> Topic:
    """Return where a task of that priority is written: urgent ones do not stand behind a mass submission."""
    return TASKS_URGENT if priority == URGENT_PRIORITY else TASKS


def wish_of(task: WrittenTask, defaults: Defaults, limits: Limits) -> Wish:
    """Return what is written for a task.

    Args:
        task: checked.
        defaults: for what it does not say.
        limits: by which it was checked.
    """
    canonical = canonicalize(task.url, max_bytes=limits.max_url_bytes)
    crawl = task.crawl or defaults.crawl
    priority = task.priority or defaults.priority
    record = Task(
        crawl=crawl,
        url=canonical.wire,
        priority=priority,
        depth=0,
        source=task.source or defaults.source,
        submitted_at_ms=0,
        not_before_ms=_ms(task.not_before.timestamp()) if task.not_before else 0,
        timeout_ms=_ms(task.timeout_s or 0),
        parser=task.parser or "",
        concurrency=task.concurrency or 0,
        max_depth=task.depth,
        interval_ms=_ms(task.interval_s or 0),
        poll=0,
        render=task.render,
        headers_ref=task.headers or "",
        redirects=[],
        replay=False,
        withdraw=defaults.withdraw,
    )
    key = registrable_domain(canonical.host).encode()
    return Wish(task_id(crawl, canonical.href), canonical.href, topic_of(priority), key, record)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
