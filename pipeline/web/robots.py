"""robots.txt: parsed and matched by RFC 9309, with the habits of real files that the RFC leaves open.

Beyond the RFC's grammar (2.2):

- UTF-16 files with a byte order mark are read; bytes that are no UTF-8 are compared as the bytes they are.
- Usual misspellings of `User-agent` and `Disallow` count, and so does a line without its colon: the wish is plain.
- Product tokens may have digits and letters of any script (`bot1` and `bot2` are different agents).
- A pattern that begins with neither `/` nor `*` is read as if it had the `/` (`Disallow: private/`).
- `Crawl-delay` and `Sitemap` are read. As any record that the RFC does not define, neither opens or closes a group of
  rules (2.2.4); a delay is for the agents named right above it.

How a robots.txt is fetched, and what holds while it can't be, is not decided here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, Self, TypeVar

MAX_BYTES: Final = 512_000
"""RFC 9309 2.5: at least 500 KiB are parsed; what stands after them is left out."""

MAX_CRAWL_DELAY_S: Final = 86_400.0
"""Longer wishes count as this: after 24 hours the file is read anew (RFC 9309 2.4), and may say something else."""

MAX_RULE_BYTES: Final = 256
"""How much of a deciding line is told; it goes into records, and a line may be as long as the file."""

_USER_AGENT_NAMES: Final = frozenset({b"user-agent", b"useragent", b"user agent"})
_DISALLOW_NAMES: Final = frozenset({b"disallow", b"dissallow", b"dissalow", b"disalow", b"diasllow", b"disallaw"})
_SITEMAP_NAMES: Final = frozenset({b"sitemap", b"site-map"})
_ANY_AGENT: Final = "*"

_BLANKS: Final = b" \t\x0b\x0c\x00"
_PRODUCT_TOKEN: Final = re.compile(r"[\w-]+")
_COMPATIBLE: Final = re.compile(r"Mozilla/[0-9.]+ \(compatible; *", re.IGNORECASE)
_NUMBER: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")
_NO_COLON: Final = re.compile(rb"([A-Za-z-]+)[ \t]+([^ \t]+)")
_ABSOLUTE_URL: Final = re.compile(r"https?://[^/?#]", re.IGNORECASE)
_ESCAPE_OR_UNSAFE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[^!-~]|[%*$\"<>\\^`{|}]")
_QUERY_DELIMITER: Final = re.compile(r"[:/@\[\]]")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

_Item = TypeVar("_Item")


class Verdict(NamedTuple):
    """Whether a URL may be asked for.

    Attributes:
        allowed: the answer.
        line: number of the deciding line, from 1; None where no rule matches.
        rule: text of that line, without comment and blanks around, its first `MAX_RULE_BYTES`.
    """

    allowed: bool
    line: int | None
    rule: str | None


_FREE: Final = Verdict(allowed=True, line=None, rule=None)


class RobotsRules:
    """The rules of one robots.txt.

    Attributes:
        sitemaps: absolute http and https URLs of all `Sitemap` lines, as written, each once.
        truncated: whether the file was longer than `MAX_BYTES` and rules may have been left out.
    """

    __slots__ = ("_compiled", "_lines", "sitemaps", "truncated")

    def __init__(self, lines: _Lines, *, truncated: bool) -> None:
        self.sitemaps = tuple(lines.sitemaps)
        self.truncated = truncated
        self._lines = lines
        # Groups are merged for the agents that are asked about, not for all: a file may name 10,000 agents for
        # 10,000 rules.
        self._compiled: dict[str, _AgentRules] = {}

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read a file.

        Args:
            body: as it was received, decompressed. Any bytes will do: what can't be read is skipped, nothing is raised.
        """
        truncated = len(body) > MAX_BYTES
        if truncated:
            # Half a line is another rule: "Allow: /public" must not become "Allow: /".
            body = body[:MAX_BYTES]
            body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
        lines = _Lines()
        for number, raw_line in enumerate(_as_utf8(body).splitlines(), start=1):
            lines.add(number, raw_line.partition(b"#")[0].strip(_BLANKS))
        return cls(lines, truncated=truncated)

    def verdict(self, agent: str, url: str) -> Verdict:
        """Tell whether `agent` may ask for `url`.

        Args:
            agent: product token, or a User-Agent header that begins with it, alone or as `Mozilla/5.0 (compatible; …`;
                compared without case.
            url: absolute, or path and query alone; a fragment is left out.

        Returns:
            What the longest matching rule says; `Allow` where an `Allow` and a `Disallow` are equally long (RFC 9309
            2.2.2). `/robots.txt` itself is always allowed.
        """
        path = _path_and_query(url)
        if path == "/robots.txt":
            return _FREE
        rule = self._of(agent).decide(_normalize(path))
        return _FREE if rule is None else Verdict(rule.allows, rule.line, rule.text)

    def crawl_delay_s(self, agent: str) -> float | None:
        """Return the pause between requests that the site asks `agent` for, in seconds.

        Args:
            agent: as for `verdict`.

        Returns:
            The longest where the file names several, at most `MAX_CRAWL_DELAY_S`; None where it names none that begins
            with a number. An agent with a group of its own has no delay from the group `*`.
        """
        return self._of(agent).crawl_delay_s

    def _of(self, agent: str) -> _AgentRules:
        token = _product_token(_COMPATIBLE.sub("", agent, count=1))
        if token not in self._lines.groups_of:
            token = _ANY_AGENT
        compiled = self._compiled.get(token)
        if compiled is None:
            compiled = self._compiled[token] = _AgentRules(
                (rule for group in self._lines.groups_of.get(token, ()) for rule in group),
                max(
                    (delay_s for delays_s in self._lines.delays_of.get(token, ()) for delay_s in delays_s), default=None
                ),
            )
        return compiled


class _Lines:
    """The lines of a file, sorted by agent.

    Attributes:
        groups_of: agent to the rules of each group that names it (RFC 9309 2.2.1: they count as one).
        delays_of: agent to the delays, in seconds, below each run of user-agent lines that names it.
        sitemaps: the keys are URLs.
    """

    __slots__ = ("_delays_s", "_rules", "delays_of", "groups_of", "sitemaps")

    def __init__(self) -> None:
        self.groups_of: dict[str, list[list[_Rule]]] = {}
        self.delays_of: dict[str, list[list[float]]] = {}
        self.sitemaps: dict[str, None] = {}
        self._rules: _Section[_Rule] = _Section(self.groups_of)
        self._delays_s: _Section[float] = _Section(self.delays_of)

    def add(self, number: int, line: bytes) -> None:
        """Take a line, without comment and blanks around; `number` counts from 1."""
        name, value = _record(line)
        if name in _USER_AGENT_NAMES:
            token = _product_token(value.decode(errors="replace"))
            self._rules.name(token)
            self._delays_s.name(token)
        elif name == b"allow" or name in _DISALLOW_NAMES:
            self._rules.begun = self._delays_s.begun = True
            if value:  # an empty pattern matches nothing
                text = line[:MAX_RULE_BYTES].decode(errors="replace")
                pattern = value.decode("latin-1")
                self._rules.items.append(_Rule(pattern, allows=name == b"allow", line=number, text=text))
        elif name == b"crawl-delay":
            self._delays_s.begun = True
            delay = _NUMBER.match(value)
            if delay is not None:
                self._delays_s.items.append(min(float(delay[0]), MAX_CRAWL_DELAY_S))
        elif name in _SITEMAP_NAMES:
            url = value.decode(errors="replace")
            if _ABSOLUTE_URL.match(url):
                self.sitemaps[url] = None


class _Section(Generic[_Item]):
    """What is being collected for the agents of the last run of user-agent lines.

    Attributes:
        items: shared by all of these agents; before the first of them, by nobody.
        begun: whether the run has ended, so that the next user-agent line starts another.
    """

    __slots__ = ("_of", "begun", "items")

    def __init__(self, of: dict[str, list[list[_Item]]]) -> None:
        self._of = of
        self.items: list[_Item] = []
        self.begun = True

    def name(self, agent: str) -> None:
        """Take a user-agent line; an empty `agent` is nobody's."""
        if self.begun:
            self.items = []
            self.begun = False
        if agent:
            shared = self._of.setdefault(agent, [])
            if not shared or shared[-1] is not self.items:
                shared.append(self.items)


class _Rule:
    """One `Allow` or `Disallow` line.

    Patterns are held in normal form (`_normalize`), cut at each `*`. The escapes of `:` and `/` in a query mean the
    characters themselves (RFC 9309 2.2.2, table), but in a path they don't: so there is a second form, whose query has
    them escaped.
    """

    __slots__ = ("allows", "anchored", "line", "octets", "pieces", "query_pieces", "text")

    def __init__(self, pattern: str, *, allows: bool, line: int, text: str) -> None:
        if pattern[0] not in "/*":
            pattern = f"/{pattern}"
        self.allows = allows
        self.line = line
        self.text = text
        self.anchored = pattern.endswith("$")
        body = pattern[:-1] if self.anchored else pattern
        pieces = [_normalize(piece) for piece in body.split("*")]
        self.pieces = pieces
        self.query_pieces = _escape_query("*".join(pieces)).split("*") if "?" in body else pieces
        self.octets = sum(map(len, self.query_pieces)) + len(pieces) - 1 + self.anchored

    @property
    def literal(self) -> str | None:
        """The pattern where it is a plain prefix, in the form with an escaped query."""
        return self.query_pieces[0] if len(self.pieces) == 1 and not self.anchored else None

    def matches(self, path: str, query_escaped: str) -> bool:
        """Tell whether the pattern matches a URL, given in both forms."""
        return self._matches(self.pieces, path) or (
            (query_escaped is not path or self.query_pieces is not self.pieces)
            and self._matches(self.query_pieces, query_escaped)
        )

    def _matches(self, pieces: list[str], path: str) -> bool:
        """Take each piece at the first place it fits: later ones can only gain by it, so nothing is tried twice."""
        first, last = pieces[0], pieces[-1]
        if not path.startswith(first):
            return False
        if len(pieces) == 1:
            return not self.anchored or len(path) == len(first)
        position = len(first)
        for piece in pieces[1 : -1 if self.anchored else None]:
            position = path.find(piece, position)
            if position < 0:
                return False
            position += len(piece)
        return not self.anchored or (len(path) - len(last) >= position and path.endswith(last))


class _AgentRules:
    """All that a file says to one agent."""

    __slots__ = ("_lengths", "_literals", "_patterns", "crawl_delay_s")

    def __init__(self, rules: Iterable[_Rule], crawl_delay_s: float | None) -> None:
        self.crawl_delay_s = crawl_delay_s
        self._literals: dict[str, _Rule] = {}
        self._patterns: list[_Rule] = []
        # The rule that decides comes first: longest, then Allow, then the one that stands first in the file.
        for rule in sorted(rules, key=lambda rule: (-rule.octets, not rule.allows)):
            literal = rule.literal
            if literal is None:
                self._patterns.append(rule)
            else:
                self._literals.setdefault(literal, rule)
        self._lengths = sorted({len(literal) for literal in self._literals}, reverse=True)

    def decide(self, path: str) -> _Rule | None:
        """Return the rule that decides about a path in normal form; None where none matches."""
        query_escaped = _escape_query(path)
        best = self._longest_prefix(query_escaped)
        for rule in self._patterns:
            if best is not None and (rule.octets, rule.allows) <= (best.octets, best.allows):
                break
            if rule.matches(path, query_escaped):
                return rule
        return best

    def _longest_prefix(self, path: str) -> _Rule | None:
        # A prefix has its `?` where the URL has it, so that one form is enough; files with 30,000 prefixes exist.
        for length in self._lengths:
            rule = self._literals.get(path[:length])
            if rule is not None:
                return rule
        return None


def _as_utf8(body: bytes) -> bytes:
    if body.startswith(codecs.BOM_UTF8):
        return body[len(codecs.BOM_UTF8) :]
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace").encode("utf-8", "replace")
    return body


def _record(line: bytes) -> tuple[bytes, bytes]:
    """Cut a line into its name, in lower case, and its value."""
    name, colon, value = line.partition(b":")
    if not colon:
        match = _NO_COLON.fullmatch(line)
        if match is None:
            return b"", b""
        name, value = match.groups()
    return name.rstrip(_BLANKS).lower(), value.lstrip(_BLANKS)


def _product_token(text: str) -> str:
    """Return the token that a User-agent line or a User-Agent header begins with, in lower case; empty if none."""
    text = text.strip()
    if text[:1] == _ANY_AGENT and not text[1:2].strip():
        return _ANY_AGENT
    match = _PRODUCT_TOKEN.match(text)
    return match[0].lower() if match else ""


def _path_and_query(url: str) -> str:
    url = url.partition("#")[0]
    if not url.startswith("/"):
        authority = url.find("://")
        if authority >= 0:
            rest = url[authority + 3 :]
            start = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
            url = rest[start:]
        if not url.startswith("/"):
            url = f"/{url}"
    return url if url.isascii() else url.encode("utf-8", "surrogatepass").decode("latin-1")


def _normalize(text: str) -> str:
    """Bring a path, one character an octet, to the form in which it is compared (RFC 9309 2.2.2).

    Unreserved characters stand for themselves, reserved ones as they are written, everything else is escaped. `*` and
    `$` of a URL are escaped too, so that they meet only the `%2A` and `%24` of a pattern, never its operators.
    """
    return _ESCAPE_OR_UNSAFE.sub(_normal_octet, text)


def _normal_octet(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) == 1:
        return f"%{ord(found):02X}"
    character = chr(int(found[1:], 16))
    return character if character in _UNRESERVED else found.upper()


def _escape_query(path: str) -> str:
    start = path.find("?") + 1
    if not start or not _QUERY_DELIMITER.search(path, start):
        return path
    return path[:start] + _QUERY_DELIMITER.sub(lambda match: f"%{ord(match[0]):02X}", path[start:])
