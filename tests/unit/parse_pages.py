"""Page records for tests of the parse stage."""

from __future__ import annotations

import hashlib
from typing import Any

import zstandard

from pipeline.contracts import load_codec
from pipeline.web.url import canonicalize, url_key

FETCHED_AT_MS = 1_717_172_775_000  # 2024-05-31T16:26:15Z


def page_record(content: bytes, url: str = "https://n.test/", **fields: Any) -> dict[str, Any]:
    """A record of `crawl.pages.v1-value`, its body packed as the fetch stage packs it; `fields` replace its own."""
    canonical = canonicalize(url, max_bytes=1 << 20)
    return {
        "crawl": "c1",
        "url": canonical.wire,
        "url_key": url_key(canonical.href),
        "delivery": 1,
        "depth": 2,
        "priority": 3,
        "source": "",
        "parser": "",
        "max_depth": None,
        "poll": 0,
        "render": False,
        "known_content_hashes": [],
        "status": 200,
        "content_type": "text/html; charset=utf-8",
        "robots_header": "",
        "body_encoding": "ZSTD",
        "body": zstandard.compress(content, 1),
        "body_ref": None,
        "body_bytes": len(content),
        "body_sha256": hashlib.sha256(content).digest(),
        "truncated": None,
        "redirects": [],
        "submitted_at_ms": FETCHED_AT_MS - 2_000,
        "fetched_at_ms": FETCHED_AT_MS,
        **fields,
    }


def page_value(content: bytes, url: str = "https://n.test/", **fields: Any) -> bytes:
    """The same as the value of a Kafka record."""
    return load_codec().encode("crawl.pages.v1-value", page_record(content, url, **fields))
