"""Patterns of crawl definitions: globs over canonical URLs, and patterns of source names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

Matcher = Callable[[str], bool]

ONE_WORD: Final = "*"
REST: Final = ">"

_ORIGIN: Final = re.compile(r"(https?)://([^/?#*]*)(.*)", re.DOTALL | re.IGNORECASE)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def glob_matcher(pattern: str) -> Matcher:
    """Compile a glob over canonical URLs: `*` stands for any run of characters, everything else for itself.

    Linear in the URL, whatever the pattern: a regular expression would backtrack.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern.__eq__
    *middle, last = rest

    def matches(url: str) -> bool:
        if not url.startswith(first):
            return False
        at = len(first)
        for part in middle:
            at = url.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return len(url) - len(last) >= at and url.endswith(last)

    return matches


def nearest_glob(pattern: str) -> str:
    """Return the glob that can match a canonical URL and is nearest to one that may not; the same where it can.

    A canonical URL is ASCII, begins with `http://` or `https://`, has a host in lower case, a path, and neither a
    default port nor a fragment.
    """
    text = "".join(sign if "!" <= sign <= "~" else quote(sign) for sign in pattern.strip()).partition("#")[0]
    text = text.removeprefix("^")  # of a regular expression; no URL begins so
    origin = _ORIGIN.match(text)
    if origin is not None:
        scheme, authority, rest = origin.groups()
        scheme, authority = scheme.lower(), authority.lower()
        if rest[:1] != "*" or not authority:
            authority = authority.removesuffix(_DEFAULT_PORTS[scheme])
        return f"{scheme}://{authority}{rest or '/'}"
    start = text.partition("*")[0]
    if "*" in text and any(scheme.startswith(start) for scheme in ("http://", "https://")):
        return text
    if start.startswith("/") or not start:
        return f"*{text}"
    if "/" in start or "." in start:
        return f"*://{text}" if "/" in text else f"*://{text}/*"
    return f"*{text}"


def source_matcher(pattern: str) -> Matcher:
    """Compile a pattern of source names, which are words between dots.

    Args:
        pattern: `*` stands for one word, `>` at the end for one or more, any other word for itself: `news.*` matches
            `news.reuters`, not `news` nor `news.reuters.markets`; `exchange.>` matches `exchange.nyse.halts`.

    Raises:
        ValueError: an empty word, `>` before the end, or a wildcard inside a word.
    """
    words = pattern.split(".")
    for at, word in enumerate(words):
        if not word:
            raise ValueError("a word is empty")
        if word == REST and at < len(words) - 1:
            raise ValueError("> stands at the end alone")
        if word not in {ONE_WORD, REST} and (ONE_WORD in word or REST in word):
            raise ValueError(f"{word!r} mixes a word and a wildcard")
    open_end = words[-1] == REST
    fixed = words[:-1] if open_end else words

    def matches(source: str) -> bool:
        found = source.split(".")
        if len(found) <= len(fixed) if open_end else len(found) != len(fixed):
            return False
        return all(word in {ONE_WORD, one} and one for word, one in zip(fixed, found, strict=False))

    return matches
