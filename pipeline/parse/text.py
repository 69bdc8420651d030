"""Main text of an HTML document: paragraphs separated by newlines, white space collapsed.

Cheap first: the element that the page itself marks as its content, by selectors. Only a page that marks none is given
to a heuristic, which costs several times as much; what that leaves empty is read whole.
"""

from __future__ import annotations

import re
from typing import Final

from resiliparse.extract.html2text import extract_plain_text
from selectolax.lexbor import LexborHTMLParser, LexborNode

CONTENT_SELECTORS: Final = (
    "[itemprop~=articleBody]",
    "article:not(article article)",
    "main",
    "[role=main]",
    "[role=article]",
)
"""In this order; all elements of the first selector that has text. A page with several articles is a list: its main
element comes before them."""

MAX_TITLE_CHARACTERS: Final = 1_000

_LEFT_OUT: Final = frozenset({
    "nav", "aside", "footer", "menu",  # HTML 4.3: about the page, not of its text
    "script", "style", "template", "noscript", "head", "title",
    "button", "select", "textarea", "datalist", "dialog",  # not form: some sites put the whole page in one
    "iframe", "object", "embed", "canvas", "svg", "math", "audio", "video", "map",
})  # fmt: skip
_BLOCKS: Final = frozenset({
    # HTML 15.3 ("flow content" and lists, tables of the suggested rendering): what begins and ends a line.
    "address", "article", "blockquote", "body", "br", "caption", "center", "dd", "details", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr", "legend",
    "li", "main", "ol", "p", "search", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_CELLS: Final = frozenset({"td", "th"})
_PREFORMATTED: Final = frozenset({"pre", "listing", "plaintext", "xmp"})
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
_MAX_DEPTH: Final = 512  # where browsers stop nesting too
_TEXT: Final = "-text"  # selectolax's name of a text node
_BREAK: Final = "\x1e"  # stands for the edge of a block until white space is collapsed; in a page it is a blank too
_BLANKS: Final = tuple(c for c in map(chr, range(0x3001)) if c.isspace() and c not in {" ", _BREAK})


def main_text(tree: LexborHTMLParser) -> str:
    """Return the text of a document that a reader came for.

    Args:
        tree: the document; it is not changed.

    Returns:
        Lines, one a block; empty where the document has no text at all.
    """
    for selector in _selectors(tree):
        text = "\n".join(filter(None, map(node_text, tree.css(selector))))
        if text:
            return text
    body = tree.body
    if body is None:
        return ""
    guess = "" if _is_deep(body) else extract_plain_text(tree.html or "", main_content=True)
    return _collapse(guess.replace("\n", _BREAK)) or node_text(body)


def node_text(node: LexborNode) -> str:
    """Return the text of an element without what is left out of a main text: one line a block."""
    hidden = {element.mem_id for element in node.css("[hidden]")}
    parts: list[str] = []
    # A stack of our own: a page may nest deeper than Python recurses.
    open_elements = [(node.iter(include_text=True), _BREAK)]
    while open_elements:
        children, closing = open_elements[-1]
        child = next(children, None)
        if child is None:
            open_elements.pop()
            parts.append(closing)
            continue
        tag = child.tag
        if tag == _TEXT:
            parts.append(child.text_content or "")
        elif tag in _LEFT_OUT or (hidden and child.mem_id in hidden):
            continue
        elif tag in _PREFORMATTED:
            parts += _BREAK, child.text().replace("\n", _BREAK), _BREAK
        else:
            edge = _BREAK if tag in _BLOCKS else " " if tag in _CELLS else ""
            parts.append(edge)
            open_elements.append((child.iter(include_text=True), edge))
    return _collapse("".join(parts))


def one_line(text: str | None) -> str:
    """Collapse white space, Unicode's too, to single blanks; make the text fit for a record.

    U+0000 counts as white space; lone surrogates, which JSON can spell, become U+FFFD: UTF-8 has none.
    """
    return " ".join(_NO_TEXT.sub("\ufffd", text).replace("\0", " ").split()) if text else ""


def title_line(text: str | None) -> str:
    """Return a title: on one line, and no longer than titles are, whatever a page has in its title element."""
    return one_line(text)[:MAX_TITLE_CHARACTERS]


def _is_deep(node: LexborNode) -> bool:
    """Say whether elements nest too deep for the heuristic: its time grows with the square of the depth."""
    open_elements = [node.iter()]
    while open_elements:
        child = next(open_elements[-1], None)
        if child is None:
            open_elements.pop()
        elif len(open_elements) == _MAX_DEPTH:
            return True
        else:
            open_elements.append(child.iter())
    return False


def _selectors(tree: LexborHTMLParser) -> tuple[str, ...]:
    body, article, main, *others = CONTENT_SELECTORS
    return (body, main, article, *others) if len(tree.css(article)) > 1 else CONTENT_SELECTORS


def _collapse(text: str) -> str:
    # As one_line on each line, in a tenth of the time: most blanks do not occur, and `in` finds that out fast.
    for blank in _BLANKS:
        if blank in text:
            text = text.replace(blank, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return "\n".join(filter(None, (line.strip(" ") for line in text.split(_BREAK))))
