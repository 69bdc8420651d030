"""Bytes of the simulated web: pages as HTML, and whole HTTP answers, made before anybody asks."""

from __future__ import annotations

import gzip
import html
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from pipeline.local.simulated_limits import Quota
from pipeline.local.simulated_site import SLUGS, Charset, FirstAnswer, Link, Resource, Site, seeded

PARAGRAPHS = 400
WORDS = (
    "a", "about", "after", "all", "and", "are", "as", "at", "before", "been", "but", "by", "can", "city",
    "council", "day", "every", "few", "first", "for", "from", "has", "have", "in", "into", "is", "it", "last",
    "local", "many", "market", "more", "morning", "near", "new", "now", "of", "officials", "old", "on", "one",
    "other", "over", "people", "plan", "price", "report", "said", "since", "some", "still", "than", "that", "the",
    "their", "there", "they", "this", "three", "to", "town", "trade", "under", "until", "was", "week", "were",
    "when", "which", "while", "will", "with", "year", "years",
)  # fmt: skip
CHINESE = (
    "今天早晨河边起了薄雾", "市场里的价格比上周略有下降", "记者从会议上了解到新的计划", "城里的老桥将在春天修好",
    "许多居民在广场上等候消息", "港口的船只按时离开", "果园的收成好于往年", "学校请来了三位工匠",
    "山谷里的铁路恢复通车", "图书馆延长了开放时间", "专家认为水位还会上涨", "明年的预算已经公布",
)  # fmt: skip
_RULES = "".join(f".c{n}{{margin:{n}px;padding:{n % 7}px;line-height:1.{n % 9}}}\n" for n in range(40))
_STYLE = f"<style>\n{_RULES}</style>"
_FRAME_BYTES = len(_STYLE) + 600
_TEXT_SHARE = 0.6
"""Of what a page has beside its links and its frame, how much is main text; the rest is data for scripts."""


@dataclass(slots=True)
class Answer:
    """One HTTP response, ready to be sent.

    Attributes:
        status: HTTP status.
        response: status line, header fields, body.
        head_bytes: how many of those come before the body.
        delay_s: time before it is sent, seconds.
        first_answers: what is answered before it, once each, in order; the server takes them away.
        quota: of its site; None where that has no limit.
    """

    status: int
    response: bytes
    head_bytes: int
    delay_s: float = 0.0
    first_answers: list[FirstAnswer] = field(default_factory=list)
    quota: Quota | None = None

    def with_fields(self, fields: tuple[str, ...]) -> Answer:
        """Return the same with more header fields."""
        if not fields:
            return self
        more = "".join(f"{text}\r\n" for text in fields).encode("latin-1")
        end = self.head_bytes - len(b"\r\n")
        return replace(self, response=self.response[:end] + more + self.response[end:], head_bytes=end + len(more) + 2)


_CHARSETS: dict[Charset, tuple[str, str, str]] = {
    "utf-8": ("utf-8", '<meta charset="utf-8">', "text/html; charset=utf-8"),
    "gb18030-meta": ("gb18030", '<meta charset="gb18030">', "text/html"),
    "gb18030-silent": ("gb18030", "", "text/html"),
    "gb18030-lying": ("gb18030", '<meta charset="gb18030">', "text/html; charset=utf-8"),
}
"""What is written how: encoding of the bytes, element in the page, Content-Type."""


class Renderer:
    """Makes pages of a web.

    Args:
        seed: of the web.
        page_bytes: about how long a page is; a single one differs by a third at most.
    """

    def __init__(self, seed: int, page_bytes: int) -> None:
        self._seed = seed
        self._page_bytes = page_bytes
        rng = seeded(seed, "paragraphs")
        self._paragraphs = []
        for _ in range(PARAGRAPHS):
            sentences = [" ".join(rng.choices(WORDS, k=rng.randint(8, 18))).capitalize() for _ in range(5)]
            self._paragraphs.append(f"<p>{'. '.join(sentences)}.</p>\n")
        self._paragraph_bytes = sum(map(len, self._paragraphs)) // PARAGRAPHS

    def answer(self, resource: Resource) -> Answer:
        """Return what a resource answers in the end."""
        if resource.kind == "redirect":
            return make_answer(301, "text/html; charset=utf-8", b"", ("Location: " + resource.location,))
        if resource.kind == "broken":
            return make_answer(500, "text/plain; charset=utf-8", b"This never works.\n")
        if resource.kind == "file":
            return make_answer(200, resource.content_type, resource.body)
        body, content_type = self._page(resource)
        fields: tuple[str, ...] = ()
        if resource.gzip:
            body, fields = gzip.compress(body, 6, mtime=0), ("Content-Encoding: gzip",)
        answer = make_answer(200, content_type, body, fields)
        answer.delay_s = resource.delay_s
        answer.first_answers = list(resource.first_answers)
        return answer

    def _page(self, page: Resource) -> tuple[bytes, str]:
        """Return body and Content-Type of an HTML page."""
        rng = seeded(self._seed, page.host, page.target)
        title = html.escape(page.title)
        links = "".join(_teaser(number, link) for number, link in enumerate(page.links))
        wanted = self._page_bytes * rng.uniform(2 / 3, 4 / 3)
        room = 0.0 if page.kind == "month" else max(0.0, wanted - len(links) - _FRAME_BYTES)
        opening = " ".join(rng.choices(WORDS, k=40))
        encoding, meta, content_type = _CHARSETS[page.charset]
        if encoding == "utf-8":
            text = rng.choices(self._paragraphs, k=2 + int(room * _TEXT_SHARE / self._paragraph_bytes))
        else:
            text = [f"<p>{'。'.join(rng.choices(CHINESE, k=6))}。</p>\n" for _ in range(2 + int(room / 300))]
        data = rng.randbytes(int(room * (1 - _TEXT_SHARE) / 2)).hex()
        document = (
            f'<!DOCTYPE html>\n<html lang="{"en" if encoding == "utf-8" else "zh"}">\n<head>'
            f"{meta}<title>{title}</title>\n"
            f'{_STYLE}\n<script type="application/json">{{"data": "{data}"}}</script>\n</head>\n<body>\n'
            f"<header>{page.host}</header>\n"
            f'<main><article class="c1">\n<h1>{title}</h1>\n<p>{title}: {opening}.</p>\n'
            f"{''.join(text)}</article></main>\n"
            f'<nav><ul>\n{links}</ul></nav>\n<footer class="c2"><a href="mailto:desk@{page.host}">Write to us</a> '
            '<a href="javascript:print()">Print</a> <a href="#top">Up</a></footer>\n</body>\n</html>\n'
        )
        return document.encode(encoding), content_type

    def robots(self, site: Site) -> Answer:
        """Return what robots.txt of a site's hosts answers."""
        if site.robots is None:
            return not_found()
        return make_answer(200, "text/plain; charset=utf-8", site.robots)


def _teaser(number: int, link: Link) -> str:
    words = " ".join(SLUGS[(number + step * 7) % len(SLUGS)] for step in range(5))
    return (
        f'<li class="c{number}"><a class="c3" href="{html.escape(link.href)}">{words}</a>'
        f'<span class="c4">{number + 1} min to read</span><time class="c5">{number % 24:02d}:00</time></li>\n'
    )


def make_answer(status: int, content_type: str, body: bytes, fields: tuple[str, ...] = ()) -> Answer:
    """Return an HTTP/1.1 response with the length of its body and further header fields."""
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Server: simulated-web",
        f"Content-Type: {content_type}",
        *fields,
        f"Content-Length: {len(body)}",
    )
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return Answer(status, head + body, len(head))


def not_found() -> Answer:
    """Return the answer for everything that isn't there."""
    return make_answer(404, "text/html; charset=utf-8", b"<!DOCTYPE html><title>Not here</title><p>Not here.</p>\n")
