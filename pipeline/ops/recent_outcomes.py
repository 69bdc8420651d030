"""Outcomes of the last minute by domain, read from the end of crawl.fetches.v1 while somebody looks."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from pipeline.contracts.codec import Codecs
from pipeline.errors import InputError
from pipeline.topics import FETCHES

GROUP: Final = "headrace-top"
WINDOW_S: Final = 60.0
BATCH_RECORDS: Final = 1_000
MAX_DOMAINS: Final = 50_000
"""Domains counted in one step; the rest is in the sums alone."""
READ_S: Final = 1.0
"""Longest reading at a time."""
_ERRORS: Final = frozenset({"HTTP_ERROR", "NETWORK_ERROR", "RATE_LIMITED", "ROBOTS_UNREACHABLE"})


class Rates(NamedTuple):
    """How often something happened, per minute.

    Attributes:
        pages: outcomes that brought a page.
        errors: answers that complained, and none at all.
        outcomes: of any kind.
    """

    pages: float = 0.0
    errors: float = 0.0
    outcomes: float = 0.0


class OutcomeWindow:
    """Counts of the last `WINDOW_S`, in steps; pure.

    Args:
        now_s: when counting begins, on any clock that does not step back.
    """

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._steps: deque[tuple[float, Counter[tuple[str, str]], Counter[str]]] = deque()

    def add(self, outcomes: list[tuple[str, str]], now_s: float) -> None:
        """Count outcomes that have just come.

        Args:
            outcomes: (domain, name of the outcome).
            now_s: now.
        """
        by_domain: Counter[tuple[str, str]] = Counter()
        sums: Counter[str] = Counter()
        for domain, outcome in outcomes:
            kind = "pages" if outcome == "FETCHED" else "errors" if outcome in _ERRORS else ""
            sums["outcomes"] += 1
            sums[kind] += 1
            if len(by_domain) < MAX_DOMAINS:
                by_domain[domain, "outcomes"] += 1
                by_domain[domain, kind] += 1
        self._steps.append((now_s, by_domain, sums))
        while self._steps and self._steps[0][0] <= now_s - WINDOW_S:
            self._steps.popleft()

    def rates(self, now_s: float) -> tuple[Rates, dict[str, Rates]]:
        """Return what happened per minute: in all, and by domain."""
        by_domain: Counter[tuple[str, str]] = Counter()
        sums: Counter[str] = Counter()
        for _, domains, total in self._steps:
            by_domain.update(domains)
            sums.update(total)
        share = 60.0 / max(1.0, min(WINDOW_S, now_s - self._began_s))
        names = {domain for domain, _ in by_domain}
        return (
            Rates(*(sums[kind] * share for kind in Rates._fields)),
            {name: Rates(*(by_domain[name, kind] * share for kind in Rates._fields)) for name in names},
        )


class RecentOutcomes:
    """Follows crawl.fetches.v1 from its end on, in no group; a context manager.

    Args:
        options: librdkafka options of the cluster.
        codecs: contracts.
        partitions: of the topic.
    """

    def __init__(self, options: Mapping[str, str], codecs: Codecs, partitions: int) -> None:
        self._decode = codecs.decoder(FETCHES.subject)
        self._consumer = Consumer(
            {
                **options,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": 16 << 10,
            }
        )
        self._consumer.assign([TopicPartition(FETCHES.name, number, OFFSET_END) for number in range(partitions)])
        self._window = OutcomeWindow(time.monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def look(self) -> tuple[Rates, dict[str, Rates]]:
        """Read what has come since the last look. Return what happened per minute: in all, and by domain."""
        deadline = time.monotonic() + READ_S
        outcomes: list[tuple[str, str]] = []
        while time.monotonic() < deadline:
            messages: list[Any] = self._consumer.consume(BATCH_RECORDS, 0.05)
            outcomes += [outcome for message in messages if (outcome := self._outcome(message)) is not None]
            if not messages:
                break
        now_s = time.monotonic()
        self._window.add(outcomes, now_s)
        return self._window.rates(now_s)

    def _outcome(self, message: Any) -> tuple[str, str] | None:
        if message.error() is not None:
            return None
        try:
            return (message.key() or b"").decode(errors="replace"), self._decode(message.value())["outcome"]
        except InputError:
            return None
