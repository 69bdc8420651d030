from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.robots import MAX_BYTES, MAX_CRAWL_DELAY_S, MAX_RULE_BYTES, RobotsRules, Verdict


def rules(*lines: str) -> RobotsRules:
    """A file of these lines."""
    return RobotsRules.parse("\n".join(lines).encode())


def allowed(url: str, *lines: str, agent: str = "newsbot") -> bool:
    """The verdict of a file of these lines; they stand in the group `*` where they name no agent."""
    if not any(line.lower().startswith("user") for line in lines):
        lines = ("User-agent: *", *lines)
    return rules(*lines).verdict(agent, url).allowed


def test_a_verdict_names_the_deciding_line():
    """People ask why a page was not fetched; the answer is one line of the site's own file."""
    file = rules("# ours", "User-agent: *", "", "  disallow : /a  # not this", "Allow: /a/b")
    assert Verdict(allowed=False, line=4, rule="disallow : /a") == file.verdict("newsbot", "http://h.example/a/x")
    assert Verdict(allowed=True, line=5, rule="Allow: /a/b") == file.verdict("newsbot", "http://h.example/a/b")
    assert Verdict(allowed=True, line=None, rule=None) == file.verdict("newsbot", "http://h.example/")


def test_the_text_of_a_deciding_line_is_bounded():
    """It travels in records, and a line may be as long as the file."""
    verdict = rules("User-agent: *", "Disallow: /*" + "a*" * 10_000).verdict("newsbot", "/" + "a" * 10_000)
    assert (False, "Disallow: /*") == (verdict.allowed, verdict.rule[:12])
    assert MAX_RULE_BYTES == len(verdict.rule)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_counts(end):
    """RFC 9309 2.2: CR, LF or both. Files of a single line to a naive reader would open the site."""
    file = RobotsRules.parse(end.join([b"User-agent: *", b"", b"Disallow: /a"]))
    assert Verdict(allowed=False, line=3, rule="Disallow: /a") == file.verdict("newsbot", "/a")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_byte_order_marks_are_no_part_of_the_first_line(encoding):
    """Editors write them; the first group must not vanish."""
    text = "User-agent: *\nDisallow: /é\n"
    if encoding in {"utf-16-le", "utf-16-be"}:
        text = f"\ufeff{text}"
    assert not RobotsRules.parse(text.encode(encoding)).verdict("newsbot", "/%C3%A9").allowed


def test_bytes_that_are_no_utf8_are_compared_as_bytes():
    """A Latin-1 file on a Latin-1 site still means its own paths."""
    file = RobotsRules.parse(b"User-agent: *\nDisallow: /caf\xe9\n")
    assert Verdict(allowed=False, line=2, rule="Disallow: /caf\ufffd") == file.verdict("newsbot", "/caf%E9")


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("newsbot", False),
        ("NewsBot/2.1", False),
        ("newsbot/2.1 (+http://h.example/)", False),
        ("Mozilla/5.0 (compatible; NewsBot/2.1; +http://h.example/)", False),
        ("newsbot-images", True),
        ("news", True),
        ("otherbot newsbot", True),
        ("", True),
    ],
)
def test_an_agent_is_told_by_its_product_token(agent, expected):
    """RFC 9309 2.2.1: the whole token, without case; a name that only begins alike is somebody else."""
    assert expected is allowed("/a", "User-agent: NEWSBOT/1.0", "Disallow: /", agent=agent)


def test_the_group_of_all_is_for_those_without_their_own():
    """A group of one's own replaces the general one, even when it forbids nothing."""
    lines = ("User-agent: *", "Disallow: /", "User-agent: newsbot", "Disallow:")
    assert allowed("/a", *lines, agent="newsbot")
    assert not allowed("/a", *lines, agent="otherbot")
    assert not allowed("/a", *lines, agent="*")


def test_user_agent_lines_in_a_row_share_their_rules():
    """RFC 9309 2.1; blank lines, comments and other records between them change nothing (2.2.4)."""
    lines = ("User-agent: a", "", "# and", "Sitemap: http://h.example/s", "Host: h", "User-agent: b", "Disallow: /x")
    assert not allowed("/x", *lines, agent="a")
    assert not allowed("/x", *lines, agent="b")
    assert allowed("/x", *lines, agent="c")


def test_groups_of_one_agent_are_one_group():
    """RFC 9309 2.2.1: rules of an agent may stand in several places."""
    lines = ("User-agent: a", "Disallow: /x", "User-agent: b", "User-agent: a", "Disallow: /y")
    assert not allowed("/x", *lines, agent="a")
    assert not allowed("/y", *lines, agent="a")
    assert allowed("/x", *lines, agent="b")


def test_rules_before_the_first_agent_are_nobodys():
    """They belong to no group."""
    assert allowed("/a", "Disallow: /", "User-agent: *", "Disallow: /b")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/a", False),
        ("/a/b", True),
        ("/a/b/c", True),
        ("/a/b/secret", False),
        ("/same", True),
        ("/wild/x.html", True),
        ("/wild/x.php", False),
    ],
)
def test_the_longest_rule_decides_and_allow_wins_a_tie(url, expected):
    """RFC 9309 2.2.2: neither the order of lines nor their kind decides but for a tie."""
    lines = ("Disallow: /a", "Allow: /a/b", "Disallow: /a/b/s", "Disallow: /same", "Allow: /same")
    assert expected is allowed(url, *lines, "Disallow: /wild/", "Allow: /wild/*.html")


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("/fish", "/fish.html", True),
        ("/fish", "/Fish", False),
        ("/fish*", "/fisher", True),
        ("/fish/", "/fish", False),
        ("/*.php", "/a/b.php?c", True),
        ("/*.php$", "/a/b.php", True),
        ("/*.php$", "/a/b.php?c", False),
        ("/*.php$", "/a.php/b.php", True),
        ("/a*a$", "/a", False),
        ("/a*a$", "/aa", True),
        ("/a*b*c", "/axcxbxc", True),
        ("/a*b*c", "/axcxb", False),
        ("*", "/", True),
        ("*$", "/a", True),
        ("/$", "/", True),
        ("/$", "/a", False),
        ("/a$b", "/a$b", True),
        ("/a$b", "/a%24b", True),
        ("/a**b", "/ab", True),
        ("a", "/a", True),
        ("", "/", False),
        ("/a?b=1", "/a?b=12", True),
        ("/a?b", "/axb", False),
    ],
)
def test_operators_are_star_and_a_final_dollar(pattern, url, matches):
    """RFC 9309 2.2.3."""
    assert matches is not allowed(url, f"Disallow: {pattern}")


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("/%62%61z", "/baz", True),
        ("/baz", "/%62az", True),
        ("/é", "/%c3%a9", True),
        ("/%c3%a9", "/é", True),
        ("/a b", "/a%20b", True),
        ("/a|b", "/a%7Cb", True),
        ("/a%2fb", "/a/b", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a%3Fb", "/a?b", False),
        ("/100%", "/100%25", True),
        ("/a?u=https://o.example", "/a?u=https%3A%2F%2Fo.example/x", True),
        ("/a?u=https%3A%2F%2Fo.example", "/a?u=https://o.example/x", True),
        ("/*u=https://o.example", "/a?u=https://o.example/x", True),
        ("/*?u=https%3A%2F%2Fo.example", "/a?u=https://o.example/x", True),
        ("/*/x", "/a?u=/x", True),
        ("/*?*/x$", "/a?u=/x", True),
        ("/*?*%2Fx$", "/a?u=/x", True),
    ],
)
def test_escapes_are_compared_by_what_they_mean(pattern, url, matches):
    """RFC 9309 2.2.2: unreserved characters and their escapes are one, reserved ones are not, but in a query."""
    assert matches is not allowed(url, f"Disallow: {pattern}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h.example", False),
        ("http://h.example?x", False),
        ("http://h.example/robots.txt", True),
        ("http://h.example/robots.txt#x", True),
        ("http://h.example/robots.txt?x", False),
        ("http://h.example/robots.txt.bak", False),
        ("h.example", False),
        ("", False),
        ("/\ud800", False),
    ],
)
def test_only_the_file_itself_is_always_allowed(url, expected):
    """RFC 9309 2.2.2; whatever else is asked about is under the rules."""
    assert expected is allowed(url, "Disallow: /")


@pytest.mark.parametrize(
    "lines",
    [
        ("user-agent *", "disallow /"),
        ("Useragent: *", "Dissallow: /"),
        ("USER-AGENT:*", "DISALLOW:/"),
        ("User-agent : * ", "\tDisallow\t:\t/\t"),
        ("User-agent: *  all of you", "Disallow: /"),
    ],
)
def test_a_plain_wish_in_sloppy_words_is_a_wish(lines):
    """Owners write these files by hand."""
    assert not allowed("/a", *lines)


@pytest.mark.parametrize(
    "line", ["Disallow", "/", ":", "Disallow: ", "Disallowed: /", "Noindex: /", "User-agent:", "*"]
)
def test_what_is_no_rule_forbids_nothing(line):
    """Noise in a group must not close a site, nor end the group."""
    assert allowed("/a", "User-agent: *", line, "Disallow: /b")


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("0", 0.0),
        ("10s", 10.0),
        ("10<BR>", 10.0),
        ("-5", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("999999999", MAX_CRAWL_DELAY_S),
    ],
)
def test_a_crawl_delay_is_a_number_of_seconds(value, delay_s):
    """A value that is none must neither stop the site's crawl nor raise."""
    assert delay_s == rules("User-agent: *", f"Crawl-delay: {value}").crawl_delay_s("newsbot")


def test_a_crawl_delay_is_for_the_agents_right_above_it():
    """Rules below may be for more agents (RFC 9309 2.2.4), but nobody asked those to be slow."""
    file = rules(
        "User-agent: a", "Crawl-delay: 60", "User-agent: b", "Disallow: /x", "Crawl-delay: 5", "Crawl-delay: 7"
    )
    assert [60.0, 7.0, None] == [file.crawl_delay_s(agent) for agent in ("a", "b", "c")]
    assert [False, False] == [file.verdict(agent, "/x").allowed for agent in ("a", "b")]


def test_a_group_of_ones_own_has_no_delay_of_the_general_one():
    """The general group is for others."""
    file = rules("User-agent: *", "Crawl-delay: 60", "Disallow: /x", "User-agent: a", "Disallow: /y")
    assert [None, 60.0] == [file.crawl_delay_s(agent) for agent in ("a", "b")]


def test_sitemaps_stand_anywhere_and_are_absolute():
    """RFC 9309 2.2.4; a relative one has no defined base, and another scheme is not fetched."""
    file = rules(
        "Sitemap: http://h.example/1.xml",
        "User-agent: a",
        "sitemap:HTTPS://h.example/2.xml # more",
        "Sitemap: /3.xml",
        "Sitemap: ftp://h.example/4.xml",
        "Sitemap: http://h.example/1.xml",
        "Site-map: http://h.example/5.xml",
    )
    assert ("http://h.example/1.xml", "HTTPS://h.example/2.xml", "http://h.example/5.xml") == file.sitemaps


def test_a_line_that_the_limit_cuts_is_left_out():
    """Half of `Allow: /public` would open the site."""
    head = b"User-agent: *\nDisallow: /\n"
    body = head.ljust(MAX_BYTES - 9, b"\n") + b"Allow: /public"
    file = RobotsRules.parse(body)
    assert file.truncated
    assert not file.verdict("newsbot", "/a").allowed
    assert not RobotsRules.parse(head.ljust(MAX_BYTES, b"\n")).truncated


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: *\nDisallow: /" + b"*a" * 255_000,
        b"User-agent: *\n" + (b"Disallow: /" + b"*a" * 100 + b"*b\n") * 2_300,
        b"User-agent: *\n" + (b"Disallow: /*" + b"a" * 500 + b"b" + b"a" * 500 + b"$\n") * 490,
        b"User-agent: a\n" * 15_000 + b"User-agent: *\n" + b"Disallow: /b\n" * 20_000,
        b"".join(b"User-agent: a%d\n" % n for n in range(12_000)) + b"User-agent: *\n" + b"Disallow: /*b\n" * 20_000,
        b"User-agent: *\nDisallow: /?" + b":" * 500_000,
        b"\n" * 512_000,
    ],
    ids=["one-pattern", "patterns", "long-pieces", "same-agent", "agents", "query", "empty-lines"],
)
def test_a_hostile_file_costs_a_bounded_time(body):
    """A file is the site's to write: it must not be able to hold a worker up."""
    begun = time.process_time()
    file = RobotsRules.parse(body)
    file.verdict("newsbot", "/" + "a" * 2_000)
    file.verdict("a", "/" + "a" * 2_000)
    assert 2.0 > time.process_time() - begun


@given(st.binary(max_size=200), st.text(max_size=20), st.text(max_size=40))
def test_nothing_is_raised_on_any_input(body, agent, url):
    """Bytes of strangers."""
    file = RobotsRules.parse(b"User-agent: *\nDisallow: " + body)
    file.verdict(agent, url)
    file.crawl_delay_s(agent)


PATTERN = st.text(alphabet="ab*$", max_size=8)


@given(PATTERN, st.text(alphabet="ab", max_size=8))
def test_patterns_match_as_their_definition_says(pattern, path):
    """Against the plain definition, tried in all ways: the fast way must not miss a match."""

    def fits(pattern: str, path: str) -> bool:
        if not pattern:
            return True
        if pattern == "$":
            return not path
        if pattern[0] == "*":
            return any(fits(pattern[1:], path[start:]) for start in range(len(path) + 1))
        return path[:1] == pattern[0] and fits(pattern[1:], path[1:])

    assert fits(f"/{pattern}", f"/{path}") is not allowed(f"/{path}", f"Disallow: /{pattern}")
