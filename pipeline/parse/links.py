"""Links of one page: canonical, each once, in the order of the page; what was left out is counted by reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from pipeline.web.encoding_labels import CODECS
from pipeline.web.url import MAX_URL_BYTES, CanonicalUrl, RefusedUrl, canonicalize, resolve

NOFOLLOW: Final = "nofollow"
_UNUSABLE_BASES: Final = ("data:", "javascript:")  # HTML 4.2.3, "set the frozen base URL"
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_OUTPUT_CODECS: Final = {
    # Encoding Standard 4.3, "get an output encoding": these are read, but never written.
    "replacement": "utf-8", "UTF-16BE": "utf-8", "UTF-16LE": "utf-8", "x-user-defined": "utf-8",
    "GBK": "gbk",  # read as gb18030, written without its four-byte forms
}  # fmt: skip
_QUERY_SAFE: Final = "!$%()*+,-./:=?@[\\]^_`{|}~"  # URL Standard 1.3: the query percent-encode set leaves them


@dataclass(slots=True)
class Link:
    """One target.

    Attributes:
        url: where it leads.
        rel: link types of the first element that names it, lower case, separated by one blank; empty for none.
        nofollow: every element that names it has `rel=nofollow`. A hint for ranking: such links are followed.
    """

    url: CanonicalUrl
    rel: str = ""
    nofollow: bool = False


@dataclass(slots=True)
class Links:
    """Collects the links of a page.

    Attributes:
        base: absolute URL that relative links are resolved against; need not be http.
        encoding: the page's, as the Encoding Standard names it; other than UTF-8 it decides how a query is written.
        max_url_bytes: longer URLs are refused.
        found: by canonical URL, in the order of the page.
        refused: how many different attribute values were left out, by `RefusedUrl.refusal`.
    """

    base: str
    encoding: str = "UTF-8"
    max_url_bytes: int = MAX_URL_BYTES
    found: dict[str, Link] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, Link | None] = field(default_factory=dict)

    def add(self, written: str, rel: str = "") -> CanonicalUrl | None:
        """Add a link as it stands in an attribute.

        Args:
            written: a valid or invalid URL, relative or absolute, blanks around it and all.
            rel: the rel attribute as written.

        Returns:
            The canonical URL; None where it was refused.
        """
        types = rel.lower().split() if rel else ()
        nofollow = NOFOLLOW in types
        if written in self._seen:
            known = self._seen[written]
        else:
            known = self._seen[written] = self._resolve(written, " ".join(types), nofollow=nofollow)
        if known is None:
            return None
        if not nofollow:
            known.nofollow = False
        return known.url

    def _resolve(self, written: str, rel: str, *, nofollow: bool) -> Link | None:
        if not written.isascii():
            written = encode_query(written, self.encoding)
        try:
            url = canonicalize(written, self.base, max_bytes=self.max_url_bytes)
        except RefusedUrl as refused:
            self.refused[refused.refusal] = self.refused.get(refused.refusal, 0) + 1
            return None
        known = self.found.get(url.href)
        if known is None:
            known = self.found[url.href] = Link(url, rel, nofollow)
        return known


def base_url(document_url: str, href: str | None) -> str:
    """Return the base of a document's links (HTML 4.2.3).

    Args:
        document_url: absolute URL of the document.
        href: of the first base element that has one; None where none has.

    Returns:
        `href` resolved against the document's URL; the document's URL where it does not parse, or is a data: or
        javascript: URL.
    """
    if href is None:
        return document_url
    try:
        base = resolve(href, document_url)
    except ValueError:
        return document_url
    return document_url if base.startswith(_UNUSABLE_BASES) else base


def encode_query(written: str, encoding: str) -> str:
    """Percent-encode what is not ASCII in the query of a link, in the encoding of its page (HTML 2.4.2).

    A page in GBK that links to `?q=中` means the bytes of GBK; path and host are UTF-8 whatever the page is in.

    Args:
        written: the URL as written.
        encoding: as the Encoding Standard names it. UTF-8 needs nothing: the URL parser writes it.
    """
    codec = _OUTPUT_CODECS.get(encoding) or CODECS[encoding]
    if codec == "utf-8":
        return written
    rest, hash_mark, fragment = written.partition("#")
    before, mark, query = rest.partition("?")
    if not mark or query.isascii():
        return written
    # What the encoding lacks becomes a numeric reference (URL Standard 1.3, "percent-encode after encoding").
    encoded = _NOT_ASCII.sub(
        lambda run: quote(run[0].encode(codec, "xmlcharrefreplace"), safe=_QUERY_SAFE),
        query,
    )
    return before + mark + encoded + hash_mark + fragment
