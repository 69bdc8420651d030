from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli import cli

FILE = b"User-agent: newsbot\nDisallow: /a\nCrawl-delay: 2.5\nSitemap: http://h.example/s.xml\n"


@pytest.fixture
def robots_file(tmp_path):
    """A robots.txt."""
    file = tmp_path / "robots.txt"
    file.write_bytes(FILE)
    return str(file)


def run(*arguments, stdin=None):
    """Call `headrace robots`."""
    return CliRunner().invoke(cli, ["robots", *arguments], input=stdin)


def test_a_verdict_is_shown_with_its_line(robots_file):
    """These fields are a contract."""
    result = run("--file", robots_file, "--agent", "NewsBot/1.0", "--json", "http://h.example/a", "/b")
    assert 0 == result.exit_code
    common = {"crawl_delay_s": 2.5, "sitemaps": ["http://h.example/s.xml"]}
    assert [
        {"url": "http://h.example/a", "allowed": False, "line": 2, "rule": "Disallow: /a", **common},
        {"url": "/b", "allowed": True, "line": None, "rule": None, **common},
    ] == [json.loads(line) for line in result.stdout.splitlines()]


def test_the_file_may_come_from_standard_input():
    """So that it can be piped from a client."""
    result = run("--file", "-", "--agent", "newsbot", "--json", "/a", stdin=FILE)
    assert not json.loads(result.stdout)["allowed"]


def test_people_get_lines(robots_file):
    """Without --json: verdicts first, then what holds for all of them."""
    assert [
        "disallowed  /a  (line 2: Disallow: /a)",
        "allowed     /b  (no rule)",
        "crawl delay: 2.5 s",
        "sitemap: http://h.example/s.xml",
    ] == run("--file", robots_file, "--agent", "newsbot", "/a", "/b").stdout.splitlines()


def test_a_terminal_is_not_told_what_to_do_by_a_site():
    """The file is a stranger's; escape sequences in it stay text."""
    stdin = b"User-agent: *\nDisallow: /a\x1b[2J\nSitemap: http://h.example/\x1b[2J\n"
    result = run("--file", "-", "--agent", "a", "/a%1B[2J", stdin=stdin)
    assert "disallowed  /a%1B[2J  (line 2: Disallow: /a\ufffd[2J)" == result.stdout.splitlines()[0]
    assert "\x1b" not in result.stdout


def test_a_file_above_the_limit_is_told(tmp_path):
    """A verdict on part of a file may be wrong about the rest."""
    file = tmp_path / "robots.txt"
    file.write_bytes(b"User-agent: *\n" * 40_000)
    assert "left out" in run("--file", str(file), "--agent", "a", "/").stderr


def test_a_missing_file_is_the_callers_error():
    """No traceback, and no answer that could be taken for one."""
    result = run("--file", "no-such-file", "--agent", "a", "/")
    assert 2 == result.exit_code
    assert "no-such-file" in result.stderr
