"""What a page asks of robots: meta elements and X-Robots-Tag, as two answers.

Neither has an RFC; read here as Google documents them ("Robots meta tag, data-nosnippet, and X-Robots-Tag
specifications"): directives are separated by commas, case does not matter, the most restrictive one wins, and one that
is prefixed with the name of another robot (`otherbot: noindex`) is not ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_WITH_VALUE: Final = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
"""Directives that have a colon of their own: what stands before it is no robot's name."""


@dataclass(frozen=True, slots=True)
class Directives:
    """The page's wish.

    Attributes:
        index: False: no document may be made of the page.
        follow: False: no link of the page may be followed.
    """

    index: bool = True
    follow: bool = True

    def and_also(self, other: Directives) -> Directives:
        """Both wishes together: the stricter answer of each."""
        return Directives(self.index and other.index, self.follow and other.follow)


def product_token(user_agent: str) -> str:
    """Return our name in robots.txt and robots directives: the first token of the User-Agent (RFC 9309 2.2.1)."""
    return user_agent.partition("/")[0].partition(" ")[0]


def from_header(lines: Iterable[str], agent: str) -> Directives:
    """Read X-Robots-Tag.

    Args:
        lines: values of the header, one for each time it was sent.
        agent: our product token (RFC 9309 2.2.1), such as `headrace`.
    """
    found = Directives()
    for line in lines:
        ours = True  # a robot's name counts for the rest of its line
        for directive in line.split(","):
            name, colon, rest = directive.partition(":")
            if colon and name.strip().lower() not in _WITH_VALUE:
                ours = name.strip().lower() in {agent.lower(), "*", "robots"}
                word = rest
            else:
                word = name
            if ours:
                found = found.and_also(_directive(word))
    return found


def from_meta(content: str) -> Directives:
    """Read the content of `<meta name=robots>`, or of one that is named after us."""
    found = Directives()
    for directive in content.split(","):
        found = found.and_also(_directive(directive))
    return found


def _directive(text: str) -> Directives:
    found = Directives()
    for word in text.lower().split():  # blanks instead of commas are no form Google reads, but the wish is plain
        if word == "none":
            return Directives(index=False, follow=False)
        found = found.and_also(Directives(index=word != "noindex", follow=word != "nofollow"))
    return found
