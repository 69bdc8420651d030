"""From a page record to what the parse stage writes: a document, link records, and one answer to the frontier."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pipeline import topics
from pipeline.contracts import Codecs
from pipeline.delivery.api import Output
from pipeline.parse.content import Content, Options, read_content
from pipeline.parse.html import ParsedHtml
from pipeline.parse.unpack import body_of
from pipeline.topics import Topic
from pipeline.web.domains import PSL_VERSION, registrable_domain
from pipeline.web.partition import partition_for
from pipeline.web.url import CanonicalUrl, canonical_form, canonicalize

LINK_RECORD_BYTES: Final = 256 << 10
"""Longest link record; a page with more links for one partition writes several."""

LINK_PRIORITY: Final = 3
"""Best priority of what was found as a link by chance."""

NOFOLLOW_REFUSAL: Final = "nofollow"
"""Under this reason `links_refused` counts the links of a page that asks not to follow any."""

HASH_BYTES: Final = 16
_ENTRY_BYTES: Final = 4  # Avro: the length before a URL, and its share of the array's block counts
_RECORD_BYTES: Final = 256  # frame, depth, time, lengths


class Draft(NamedTuple):
    """A record to be written, not yet encoded.

    Attributes:
        topic: its topic.
        partition: by number.
        key: None for link records.
        record: as the topic's contract has it.
    """

    topic: Topic
    partition: int
    key: bytes | None
    record: dict[str, Any]


class PageReader:
    """Reads values of page records to finished outputs: what a worker process does.

    Args:
        codecs: contracts.
        partitions: of every topic.
        options: see there.
    """

    def __init__(self, codecs: Codecs, *, partitions: int, options: Options) -> None:
        self._decode = codecs.decoder(topics.PAGES.subject)
        self._encoders = {
            topic.name: codecs.encoder(topic.subject) for topic in (topics.DOCUMENTS, topics.LINKS, topics.PARSED)
        }
        self._partitions = partitions
        self._options = options

    def outputs(self, value: bytes, partition: int, now_ms: int) -> list[Output]:
        """Parse one page.

        Args:
            value: of the page record.
            partition: it was read from; document and answer go to the same number.
            now_ms: time of parsing, milliseconds since the epoch.

        Raises:
            InputError: the value is no page record, or its body can't be had.
        """
        page = self._decode(value)
        content = read_content(
            body_of(page),
            page["url"],
            fetched_at_s=page["fetched_at_ms"] / 1_000,
            content_type=page["content_type"],
            robots_header=page["robots_header"],
            options=self._options,
        )
        drafts = page_drafts(page, content, partition=partition, partitions=self._partitions, now_ms=now_ms)
        return [
            Output(draft.topic.name, self._encoders[draft.topic.name](draft.record), draft.key, draft.partition)
            for draft in drafts
        ]


def page_drafts(
    page: Mapping[str, Any], content: Content, *, partition: int, partitions: int, now_ms: int
) -> list[Draft]:
    """Say what is written for a page.

    Args:
        page: a record of `crawl.pages.v1-value`.
        content: the page's body, read.
        partition: the page's own.
        partitions: of every topic.
        now_ms: time of parsing, milliseconds since the epoch.

    Returns:
        Link records, the document where there is one that was not published before, and always one parsed record.

    Raises:
        InputError: the record's URL is none.
    """
    url = _canonical(page)
    domain = registrable_domain(url.host)
    key = domain.encode()
    followed = content.directives.follow
    link_drafts = _link_drafts(page, url.href, content, partitions, now_ms) if followed else []
    refused = dict(content.links.refused)
    if not followed and content.links.found:
        refused[NOFOLLOW_REFUSAL] = len(content.links.found)
    document = _document(page, url.href, content.html, domain, now_ms) if content.html else None
    hashed = document["content_hash"] if document else _links_hash(content)
    is_published = document is not None and hashed not in page["known_content_hashes"]
    drafts = list(link_drafts)
    if document and is_published:
        drafts.append(Draft(topics.DOCUMENTS, partition, key, document))
    parsed = {
        "crawl": page["crawl"],
        "url": url.href,
        "url_key": page["url_key"],
        "delivery": page["delivery"],
        "kind": content.kind.name,
        "document_id": document["id"] if document and is_published else None,
        "content_hash": hashed,
        "poll": page["poll"],
        "items_found": content.items_found,
        "links_found": len(content.links.found),
        "links_refused": refused,
        "link_records": [draft.partition for draft in link_drafts],
        "parsed_at_ms": now_ms,
    }
    drafts.append(Draft(topics.PARSED, partition, key, parsed))
    return drafts


def dead_letter_draft(page: Mapping[str, Any], *, partition: int, now_ms: int) -> Draft:
    """Say what the frontier is told of a page that became a dead letter: its parsing has ended too.

    Raises:
        InputError: the record's URL is none.
    """
    url = _canonical(page)
    record = {
        "crawl": page["crawl"],
        "url": url.href,
        "url_key": page["url_key"],
        "delivery": page["delivery"],
        "kind": "DEAD_LETTER",
        "document_id": None,
        "content_hash": None,
        "poll": page["poll"],
        "links_found": 0,
        "links_refused": {},
        "link_records": [],
        "parsed_at_ms": now_ms,
    }
    return Draft(topics.PARSED, partition, registrable_domain(url.host).encode(), record)


def _canonical(page: Mapping[str, Any]) -> CanonicalUrl:
    """The canonical URL of a page; the frontier has judged its length already."""
    return canonicalize(page["url"], max_bytes=len(page["url"]))


def link_priority(page: Mapping[str, Any]) -> int:
    """Return the priority of a page's links: what a poll finds is as pressing as the poll, all else at most normal."""
    priority: int = page["priority"]
    return priority if page["poll"] else max(LINK_PRIORITY, priority)


def content_hash(title: str, text: str) -> bytes:
    """BLAKE2b-128 of title and text with a NUL between them, which neither can have."""
    return hashlib.blake2b(f"{title}\0{text}".encode(), digest_size=HASH_BYTES).digest()


def _links_hash(content: Content) -> bytes | None:
    """BLAKE2b-128 of the URLs found, in any order: what a feed, a sitemap or a list says. None where there are none."""
    urls = sorted(content.links.found)
    return hashlib.blake2b("\n".join(urls).encode(), digest_size=HASH_BYTES).digest() if urls else None


def document_id(url: str, hashed: bytes) -> bytes:
    """BLAKE2b-128 of canonical URL and content hash: an unchanged page is the same document."""
    return hashlib.blake2b(url.encode() + hashed, digest_size=HASH_BYTES).digest()


def _document(page: Mapping[str, Any], href: str, html: ParsedHtml, domain: str, now_ms: int) -> dict[str, Any] | None:
    if not html.directives.index or not (html.title or html.text):
        return None
    hashed = content_hash(html.title, html.text)
    return {
        "id": document_id(href, hashed),
        "crawl": page["crawl"],
        "url": href,
        "domain": domain,
        "source": page["source"],
        "depth": page["depth"],
        "title": html.title,
        "text": html.text,
        "language": html.language,
        "authors": list(html.authors),
        "published": html.published.value if html.published else None,
        "published_evidence": html.published.evidence if html.published else None,
        "modified": html.modified.value if html.modified else None,
        "canonical": html.canonical,
        "encoding": html.encoding,
        "content_hash": hashed,
        "links": len(html.links.found),
        "redirects": [canonical_form(hop) for hop in page["redirects"]],
        "submitted_at_ms": page["submitted_at_ms"],
        "fetched_at_ms": page["fetched_at_ms"],
        "parsed_at_ms": now_ms,
    }


def _link_drafts(
    page: Mapping[str, Any], page_href: str, content: Content, partitions: int, now_ms: int
) -> list[Draft]:
    """One record for each partition that links lead to, more only where one would be too long."""
    by_partition: dict[int, list[str]] = {}
    for href, link in content.links.found.items():
        if href != page_href:  # the frontier knows the page itself
            by_partition.setdefault(_partition_of_host(link.url.host, partitions), []).append(link.url.wire)
    return [
        Draft(
            topics.LINKS,
            partition,
            None,
            {
                "crawl": page["crawl"],
                "page": page_href,
                "depth": page["depth"] + 1,
                "source": page["source"],
                "priority": link_priority(page),
                "max_depth": page["max_depth"],
                "poll": page["poll"],
                "found_at_ms": now_ms,
                "psl_version": PSL_VERSION,
                "urls": urls,
            },
        )
        for partition, all_urls in by_partition.items()
        for urls in _split(all_urls, LINK_RECORD_BYTES - _RECORD_BYTES - len(page_href) - len(page["crawl"].encode()))
    ]


def _split(urls: list[str], limit_bytes: int) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    length = 0
    for url in urls:
        length += len(url) + _ENTRY_BYTES
        if length > limit_bytes and parts[-1]:
            parts.append([])
            length = len(url) + _ENTRY_BYTES
        parts[-1].append(url)
    return parts


@lru_cache(maxsize=65_536)
def _partition_of_host(host: str, partitions: int) -> int:
    return partition_for(registrable_domain(host).encode(), partitions)
