"""Why a URL was or wasn't fetched, what a domain waits for: asked of the worker that owns it, or read from Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from pipeline.config import Settings, client_options
from pipeline.contracts.codec import Codecs
from pipeline.delivery.global_table import GlobalTable
from pipeline.errors import BrokerError
from pipeline.frontier.answers import explain_rows
from pipeline.frontier.insight import Insight
from pipeline.frontier.policy import Policies
from pipeline.frontier.records import OUT, unpack_out
from pipeline.ops.control import ControlClient
from pipeline.ops.frontier_state import Keep, KeptRows, read_rows, rows_of_domain, rows_of_url
from pipeline.ops.url_letters import letters_of_url
from pipeline.topics import CRAWLS, TASKS
from pipeline.web.domains import registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import canonicalize, url_key

STAGE: Final = "frontier"
ANSWER_S: Final = 5.0
"""How long the owner's answer is waited for."""
READ_S: Final = 900.0
"""Longest reading of a changelog."""
NOT_KEPT: Final = (
    "earlier outcomes than the last one",
    "the hour at which a URL was fetched or refused",
    "who linked to it, and the source of a URL that is refused or done",
)
"""What no part of the pipeline remembers of a URL; crawl.fetches.v1 has the outcomes of the last 7 days."""


class _Answer(NamedTuple):
    """What was found out.

    Attributes:
        rows: from `explain_rows`.
        worker: that answered; None where the changelog was read.
        at_s: as of when, seconds since the epoch.
    """

    rows: Mapping[str, Any]
    worker: str | None
    at_s: float


class Explainer:
    """Finds out; its methods block and may be called from several threads.

    Args:
        settings: with the address of a broker.
        codecs: contracts.
        answer_s: how long a worker's answer is waited for; 0 asks nobody.
        read_s: longest reading of the state where no worker answers; 0 reads nothing.
        note: told in words what takes long.
    """

    def __init__(
        self,
        settings: Settings,
        codecs: Codecs,
        *,
        answer_s: float = ANSWER_S,
        read_s: float = READ_S,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._options = client_options(settings.broker)
        self._codecs = codecs
        self._answer_s = answer_s
        self._read_s = read_s
        self._note = note

    def url(self, url: str, crawl: str | None = None) -> dict[str, Any]:
        """Say how a URL stands.

        Args:
            url: as written anywhere.
            crawl: in this crawl only; None for all that know it.

        Returns:
            What `headrace explain URL --json` prints: see docs/operations/explain.md.

        Raises:
            RefusedUrl: no URL that could ever be fetched.
            BrokerError: the cluster did not answer, or nobody answered and `read_s` was too short.
        """
        canonical = canonicalize(url, max_bytes=self._settings.frontier.max_url_bytes)
        domain, key = registrable_domain(canonical.host), url_key(canonical.href)
        argument = {"url": canonical.href, "domain": domain, "crawl": crawl}
        answer = self._find_out(argument, rows_of_url(domain, key))
        partition = self._partition(domain)
        letters = letters_of_url(self._options, self._codecs, partition, domain, key)
        letters = [letter for letter in letters if crawl in {None, letter["crawl"]}]
        crawls = _with_letters(answer.rows["crawls"], letters)
        return {
            "url": canonical.href,
            "key": key.hex(),
            "domain": domain,
            "partition": partition,
            "known": any(row["state"] != "unknown" for row in crawls) or bool(letters),
            **_origin(answer),
            "crawls": crawls,
            "domain_state": answer.rows["domain"],
            "dead_letters": letters,
            "not_kept": list(NOT_KEPT),
        }

    def domain(self, name: str) -> dict[str, Any]:
        """Say how a domain stands.

        Args:
            name: a host or registrable domain; that of its domain is told.

        Raises:
            RefusedUrl: no name of a host.
            BrokerError: as `url`.
        """
        domain = registrable_domain(canonicalize(f"http://{name}/").host)
        answer = self._find_out({"domain": domain}, rows_of_domain(domain))
        state = answer.rows["domain"]
        return {
            "domain": domain,
            "partition": self._partition(domain),
            "known": state["known"],
            **_origin(answer),
            "domain_state": state,
        }

    def _partition(self, domain: str) -> int:
        return partition_for(domain.encode(), self._settings.topics.partitions)

    def _find_out(self, argument: Mapping[str, Any], keep: Keep) -> _Answer:
        partition = self._partition(argument["domain"])
        if self._answer_s:
            client = ControlClient(self._options, self._codecs)
            place = ("", partition, 0)
            for answer in client.ask("EXPLAIN", STAGE, place, self._answer_s, json.dumps(argument)):
                for told in answer["told"]:
                    if told["partition"] == partition:
                        return _Answer(json.loads(told["answer"]), answer["worker"], answer["answered_at_ms"] / 1000)
        if not self._read_s:
            raise BrokerError(f"no frontier worker that owns partition {partition} has answered: is one running?")
        self._note(f"no answer of a frontier worker; reading the state of partition {partition} from its changelog")
        return self._read(argument, partition, keep)

    def _read(self, argument: Mapping[str, Any], partition: int, keep: Keep) -> _Answer:
        deadline = time.monotonic() + self._read_s
        at_s = time.time()
        rows = read_rows(self._options, self._codecs, partition, keep, lambda: time.monotonic() < deadline)
        if rows is None:
            raise BrokerError(f"the state of partition {partition} could not be read within {self._read_s:.0f} s")
        with self._policies() as policies:
            # The rows of one URL are no queue; nor are more rows than memory should hold.
            whole = "url" not in argument and not rows.overflowed
            insight = Insight(
                rows, policies, self._settings.politeness, self._settings.frontier, _out_of(rows),
                self._codecs.decoder(TASKS.subject), queue_is_whole=whole,
            )  # fmt: skip
            return _Answer(explain_rows(insight, argument, at_s), None, at_s)

    @contextmanager
    def _policies(self) -> Iterator[Policies]:
        partitions = self._settings.topics.partitions
        table = GlobalTable(self._options, CRAWLS.name, partitions, self._codecs.decoder(CRAWLS.subject))
        table.start()
        try:
            table.wait(self._settings.broker.wait_s)
            yield Policies(table.get, self._settings.frontier)
        finally:
            table.stop()


def _out_of(rows: KeptRows) -> Callable[[str], int]:
    return lambda domain: sum(1 for _, packed in rows.items(OUT) if unpack_out(packed).task.domain == domain)


def _origin(answer: _Answer) -> dict[str, Any]:
    return {"answered_by": answer.worker, "as_of_ms": int(answer.at_s * 1000)}


def _with_letters(crawls: list[dict[str, Any]], letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Say of a URL that ended without a page, or that never got in, that its dead letter is the reason."""
    unanswered = {letter["crawl"]: letter for letter in reversed(letters) if letter["state"] == "open"}
    told = []
    for row in crawls:
        letter = unanswered.pop(row["crawl"], None)
        if letter is not None and (row["state"] == "unknown" or row["why"] == "failed"):
            told.append({**row, "why": "dead_letter", "reason": letter["reason"]})
        else:
            told.append(row)
    told += [
        {"crawl": crawl, "state": "unknown", "why": "dead_letter", "reason": letter["reason"]}
        for crawl, letter in unanswered.items()
    ]
    return told
